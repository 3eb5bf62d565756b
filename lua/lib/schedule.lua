-- schedule.lua: stores the schedules of a bucket, and records their fires. A schedule enqueues a job at each of its times; that is a fire.
-- The Go package schedule parses the definition and computes the times. This piece has the changes of the stored state that must be atomic.
--
--   …:schedules     hash  "name" -> its definition: the line, a line feed, the rest as JSON
--                       "name:state" -> JSON, times in microseconds as texts:
--                         v         the number of its definition: unique among all definitions of this name
--                         due       the next fire, "0" not computed yet, "" none
--                         since     fires after this time count, if due is not computed yet
--                         manual, manual_by  when an operator asked for a fire that is still pending, and the operator
--                         paused    since when, paused_by, paused_reason
--                         blocked   why the job of the due fire was not admitted
--                         job, last  the job of the last fire, and the time of that fire
--                         fired, missed, skipped  numbers of fires
--                       "name:runs" -> the outcomes of the last fires, newest first, a line of JSON each; at most RUNS
--                       "name:made" -> if made through the API: when, a space, and the author
--                       "name:configured" -> for such a schedule: the definition of this name in the configuration, which waits
--   …:schedule_due  zset  name -> when a dispatcher has something to do, or NEVER
--
-- The dispatcher sends a fire as JSON: name; v; due (of a manual fire: when the operator asked for it); at; next; manual; skip (a fire
-- is skipped while the previous job is unfinished); job; by; missed, the number of earlier fires that are given up; first, the time of
-- the first of these.

local schedule = { RUNS = 20, NEVER = 9007199254740991 } -- a time in the year 2255

local function field_of(name, kind) return name .. ':' .. kind end

function schedule.read(key, name)
  local text = redis.call('HGET', key, field_of(name, 'state'))
  return text and cjson.decode(text)
end

-- Writes a state, and when it needs a dispatcher next: at `again`, a text, or at its next fire.
function schedule.write(key, due_key, name, state, again)
  local look = again or state.manual or (not state.paused and state.due ~= '' and state.due) or string.format('%d', schedule.NEVER)
  redis.call('HSET', key, field_of(name, 'state'), cjson.encode(state))
  redis.call('ZADD', due_key, look, name)
end

function schedule.remove(key, due_key, name)
  redis.call('HDEL', key, name, field_of(name, 'state'), field_of(name, 'runs'), field_of(name, 'made'), field_of(name, 'configured'))
  redis.call('ZREM', due_key, name)
end

-- Stores a schedule with a definition, and returns whether that changes anything. If its time changes, its next fire is
-- computed again, from now on; other changes apply from its next fire on.
function schedule.define(key, due_key, name, text, now)
  local before = redis.call('HGET', key, name)
  local state = before and schedule.read(key, name)
  if state and before == text then return false end
  if not state or string.match(before, '^[^\n]*') ~= string.match(text, '^[^\n]*') then
    state = state or { v = 0 }
    state.due, state.since, state.blocked = '0', string.format('%d', now), nil
  end
  state.v = math.max(state.v + 1, math.floor(now / 100)) -- of fourteen digits, all of which JSON keeps here; it also grows after a removal
  redis.call('HSET', key, name, text)
  schedule.write(key, due_key, name, state)
  return true
end

-- Parses a fire; nil if another dispatcher was faster, or the schedule is paused or was changed.
function schedule.open(key, due_key, text, now)
  local fire = cjson.decode(text)
  local state = schedule.read(key, fire.name)
  if not state or state.v ~= fire.v then return nil end
  local due = state.due
  if fire.manual then due = state.manual elseif state.paused then return nil end
  if due ~= fire.due then return nil end
  fire.key, fire.due_key, fire.state, fire.now = key, due_key, state, string.format('%d', now)
  return fire
end

-- Returns whether the job of the previous fire is unfinished, and overlaps are skipped.
function schedule.overlaps(fire, body, dead)
  local job = fire.skip and fire.state.job
  return job and redis.call('HEXISTS', body, job) == 1 and not redis.call('ZSCORE', dead, job)
end

-- Ends the fire: outcome is fired or skipped, nil if it only gives up earlier fires, or does nothing.
function schedule.finish(fire, outcome)
  local state, runs = fire.state, {}
  local function note(run, n)
    runs[#runs + 1] = cjson.encode(run)
    state[run.outcome] = (state[run.outcome] or 0) + n
  end
  if fire.missed > 0 then
    local reason = state.blocked or 'late'
    note({ at = fire.first, now = fire.now, by = fire.by, outcome = 'missed', count = fire.missed, reason = reason }, fire.missed)
  end
  if outcome then
    local run = { at = fire.at, now = fire.now, by = fire.by, outcome = outcome, job = fire.job }
    if fire.manual then run.asked_by = state.manual_by end
    if outcome == 'fired' then state.job, state.last = fire.job, fire.at else run.job, run.reason = state.job, 'overlap' end
    note(run, 1)
  end
  if #runs > 0 then
    local field, lines = field_of(fire.name, 'runs'), {}
    for i = #runs, 1, -1 do lines[#lines + 1] = runs[i] end
    for line in string.gmatch(redis.call('HGET', fire.key, field) or '', '[^\n]+') do
      if #lines < schedule.RUNS then lines[#lines + 1] = line end
    end
    redis.call('HSET', fire.key, field, table.concat(lines, '\n'))
  end
  state.blocked = nil
  if fire.manual then state.manual, state.manual_by = nil, nil else state.due, state.since = fire.next, nil end
  schedule.write(fire.key, fire.due_key, fire.name, state)
end

-- Begins a fire in enqueue.lua. Returns how many keys precede the keys of the fire, the fire, and the reply if it gets no job.
function schedule.begin(keys, args, now, body, dead)
  local last = #keys - 2
  local fire = schedule.open(keys[last + 1], keys[last + 2], args[#args], now)
  if not fire then return last, nil, { 4, 0 } end
  if not schedule.overlaps(fire, body, dead) then return last, fire, nil end
  schedule.finish(fire, 'skipped')
  return last, nil, { 4, 1 }
end

return schedule
