-- claim.lua: leases jobs to a dispatcher, each with its slot.
-- Slots are spaced by the bucket's rate over all dispatchers; the fraction of
-- an interval is carried. Asked again with the same claim id it answers the
-- same jobs, so that a lost reply loses none.
-- A job that one more crash makes poison is on its last chance, and a process
-- holds at most one such job at a time. Sweep charges all that a dead process
-- had in flight, for it cannot know which job it was: let out together again,
-- all of them would be called poison. Now the last crash finds one, whose like
-- have been settled before it or still wait. They are held to one a process, not
-- to one a bucket, because it is processes that die, with jobs of all their
-- buckets; and only from the last chance on, because one crash of a full process is
-- common, and its jobs are to come back at the pace, not one at a time.
-- An innocent job can still be lost: when it is on its last chance and a job
-- that has crashed less often kills its process. One such crash takes one job at most.
-- Those that may not go yet leave their slot to the next job, and wait in later.
-- A bucket that is paused hands out nothing new. No slot passes meanwhile: when
-- it is resumed, what it has of a burst is what any quiet bucket has.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:conf    hash  what the bucket obeys
-- KEYS[4]  …:pace    hash  slot: the last one; frac: its fraction in 1/rate_count microseconds; rate: of that slot;
--          lease: the longest
-- KEYS[5]  …:q:<priority>:<flow>  list  ids that wait
-- KEYS[6]  …:later:<flow>  zset  id -> due time, microseconds
-- KEYS[7]  …:leases  zset  id -> deadline, microseconds
-- KEYS[8]  …:claims  hash  dispatcher -> its last claim that got jobs: claim id, time, then id, slot, epoch of each
-- ARGV[1]  dispatcher: its id, no spaces
-- ARGV[2]  claim: its id, no spaces
-- ARGV[3]  want: jobs at most, 1 to 1000
-- ARGV[4]  horizon: microseconds to look ahead, up to 200000
-- ARGV[5]  lease: microseconds, counted from the slot
-- ARGV[6]  lead: microseconds that the answer will need to be back; no slot lies nearer
-- ARGV[7]  last_chance: crashes that put a job on its last chance
-- ARGV[8]  may_go: 1 if one of those may be among the answer, 0 if the process holds one
-- Returns  {1} the bucket is not configured; else {0, now, next, waiting, in flight, lone, rate_count,
--          rate_per, and for each job: id, slot, epoch, delivery number, attempts so far, body}
--          next: when the next slot is worth asking for; 0 when there is nothing to do until a wake-up
--          (empty or paused), -1 when max_in_flight is reached; lone: which of the jobs, counted from 1,
--          is on its last chance, 0 none
-- Stores   lease and meta until the job is settled, the claim's answer until the next one
-- Needs    Redis 7.0

local body, meta, conf, pace = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local queue, later, leases, claims = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local dispatcher, claim = ARGV[1], ARGV[2]
local want, horizon, lease, lead = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local last_chance, may_go = tonumber(ARGV[7]), ARGV[8] == '1'
local MAX_HORIZON = 200000
local QUEUED, SCHEDULED, IN_FLIGHT, RETRYING = '1', '2', '3', '4'
local CHUNK = 500
local MAX_LOOKED_AT = 4000
local ASIDE = 100000 -- microseconds beyond the horizon, or the next claim would see it again
local MAX_ASIDE = 500
local META = '^(%d) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$'
local MARKED_QUEUED = '^%-?%d+ %d+ ...........%l'

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('ZREM', leases, '')

local settings = redis.call('HMGET', conf, 'rate_count', 'rate_per', 'burst', 'max_in_flight', 'paused')
if not settings[1] then return { 1 } end
local rate_count, rate_per = tonumber(settings[1]), tonumber(settings[2])
local burst, max_in_flight = tonumber(settings[3]), tonumber(settings[4])

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local in_flight = redis.call('ZCARD', leases)
local waiting = redis.call('LLEN', queue)
local reply = { 0, now, 0, waiting, in_flight, 0, rate_count, rate_per }
local HEAD, JOB, LONE = 8, 6, 6

local function on_last_chance(stored)
  return stored and tonumber(string.match(stored, '^%d %d+ %d+ %d+ (%d+) ') or 0) >= last_chance
end

local function add(id, slot, epoch, number, attempts, stored, alone)
  local n = #reply
  if alone then reply[LONE] = (n - HEAD) / JOB + 1 end
  reply[n + 1], reply[n + 2], reply[n + 3] = id, slot, epoch
  reply[n + 4], reply[n + 5], reply[n + 6] = number, attempts, stored
end

-- The same claim again: the same answer, less what was taken back meanwhile.
local previous = redis.call('HGET', claims, dispatcher)
if previous and string.sub(previous, 1, #claim + 1) == claim .. ' ' then
  local jobs = string.match(previous, '^%S+ %d+ (.*)$')
  for id, slot, epoch in string.gmatch(jobs, '(%S+) (%d+) (%d+);') do
    local stored, job = redis.call('HGET', meta, id), redis.call('HGET', body, id)
    if stored and job then
      local state, now_epoch, attempts, lost, _, owner = string.match(stored, META)
      if state == IN_FLIGHT and now_epoch == epoch and owner == claim then
        add(id, tonumber(slot), tonumber(epoch), tonumber(attempts) + tonumber(lost) + 1, tonumber(attempts), job,
          on_last_chance(stored))
      end
    end
  end
  reply[3] = now
  return reply
end

if settings[5] then return reply end

if want > max_in_flight - in_flight then want = max_in_flight - in_flight end

-- The last slot. A missing pace starts empty: the first slot is one interval
-- away. One that lies further ahead than it can means that the clock stepped back.
local whole = math.floor(rate_per / rate_count)
local part = rate_per - whole * rate_count
local back = (burst - 1) * whole + math.floor((burst - 1) * part / rate_count)
local rate = settings[1] .. '/' .. settings[2]
local state = redis.call('HMGET', pace, 'slot', 'frac', 'lease', 'rate')
local slot, frac = tonumber(state[1]), tonumber(state[2])
local pace_changed = false
if not slot then
  slot, frac, pace_changed = now + back, 0, true
elseif state[4] ~= rate then
  -- What is used of the burst counts in intervals of another rate: it counts as
  -- all used, from the last slot on that can have been handed out.
  if slot > now then slot = math.max(slot, math.min(slot, now + MAX_HORIZON) + back) end
  pace_changed = true
end
if slot > now + MAX_HORIZON + back then
  -- Stored also if nothing is taken, or it would stay as far ahead of now for ever.
  slot, frac, pace_changed = now + MAX_HORIZON + back, 0, true
end
if frac >= rate_count then frac = 0 end
local earliest, latest = now + lead, now + horizon

-- What may go: first what is due in later, then the list.
local due, due_at, due_before, due_more = {}, 1, 0, true

-- The next id of later that is due within the horizon and its time, or nil.
local function peek_due()
  if due_at > #due and due_more then
    due_before = due_before + #due / 2
    due = redis.call('ZRANGEBYSCORE', later, '-inf', string.format('%.0f', latest), 'WITHSCORES',
      'LIMIT', due_before, want)
    due_at, due_more = 1, #due == 2 * want
  end
  return due[due_at], tonumber(due[due_at + 1])
end
local popped, chunk, chunk_at = 0, {}, 1

-- Bodies may be large: no more are read than there are slots to hand out, or
-- twice as many as the time before where cancelled jobs lie between.
local slots = (latest + back - math.max(slot, earliest)) * rate_count / rate_per
local read_at_once = math.max(math.min(math.floor(slots) + 1, want, CHUNK), 1)

local seen_here = {}

-- Whether the list is where the job of an entry waits. One that came as scheduled
-- (a capital in its mark) is in later until it is claimed for the first time.
local function in_list(entry)
  if seen_here[entry.id] or not (entry.body or entry.alone) then return false end
  if entry.meta then return string.sub(entry.meta, 1, 1) == QUEUED end
  return string.find(entry.body, MARKED_QUEUED) ~= nil
end

-- The next id of the list that is still a waiting job, or nil. Others are left
-- overs of cancelled jobs; they are popped without a slot. The body of one on its
-- last chance is not read: many of them may have to be passed.
local function peek()
  while true do
    while chunk_at <= #chunk do
      local entry = chunk[chunk_at]
      if in_list(entry) then return entry end
      chunk_at = chunk_at + 1
      popped = popped + 1
    end
    if popped >= MAX_LOOKED_AT then return nil end
    local ids = redis.call('LRANGE', queue, popped, popped + read_at_once - 1)
    read_at_once = math.min(2 * read_at_once, CHUNK)
    if #ids == 0 then return nil end
    local stored, wanted, of = redis.call('HMGET', meta, unpack(ids)), {}, {}
    chunk, chunk_at = {}, 1
    for i = 1, #ids do
      local entry = { id = ids[i], meta = stored[i], alone = on_last_chance(stored[i]) }
      chunk[i] = entry
      if not entry.alone then wanted[#wanted + 1], of[#of + 1] = ids[i], entry end
    end
    local bodies = #wanted > 0 and redis.call('HMGET', body, unpack(wanted))
    for i = 1, #wanted do of[i].body = bodies[i] end
  end
end

local taken, from_later, metas, deadlines, log = 0, {}, {}, {}, {}
local aside, aside_metas = {}, {}

local function take(id, job, stored, at, alone)
  local epoch, attempts, lost, crashes, last = 0, 0, 0, 0, ''
  if stored then
    local _, e, a, l, c, _, rest = string.match(stored, META)
    epoch, attempts, lost, crashes, last = tonumber(e), tonumber(a), tonumber(l), tonumber(c), rest
  end
  epoch = epoch + 1
  taken = taken + 1
  seen_here[id] = true
  if alone then may_go = false end
  metas[#metas + 1] = id
  metas[#metas + 1] = string.format('%s %.0f %.0f %.0f %.0f %s ', IN_FLIGHT, epoch, attempts, lost, crashes, claim) .. last
  deadlines[#deadlines + 1] = string.format('%.0f', at + lease)
  deadlines[#deadlines + 1] = id
  log[#log + 1] = string.format('%s %.0f %.0f;', id, at, epoch)
  add(id, at, epoch, attempts + lost + 1, attempts, job, alone)
end

-- The job waits in later, behind those that were set aside before it.
local function set_aside(id, stored)
  seen_here[id] = true
  aside[#aside + 1] = string.format('%.0f', latest + ASIDE + #aside / 2)
  aside[#aside + 1] = id
  if string.sub(stored, 1, 1) ~= RETRYING then
    aside_metas[#aside_metas + 1] = id
    aside_metas[#aside_metas + 1] = RETRYING .. string.sub(stored, 2)
  end
end

local next_at = 0
while want > 0 do
  local tat, tat_frac = slot + whole, frac + part
  if tat_frac >= rate_count then tat, tat_frac = tat + 1, tat_frac - rate_count end
  local at = math.max(tat - back, earliest)

  local full = #aside >= 2 * MAX_ASIDE
  local due_id, due_time
  if not full then due_id, due_time = peek_due() end
  if at > latest or taken >= want then
    if due_id or popped < waiting then next_at = at end
    break
  end
  local entry
  if not due_id or due_time > at then
    entry = peek()
    if not entry and not due_id then break end
  end
  local id, stored, job, alone
  if entry then
    id, stored, job, alone = entry.id, entry.meta, entry.body, entry.alone
  else
    at = math.max(at, due_time)
    id, stored = due_id, redis.call('HGET', meta, due_id)
    alone = on_last_chance(stored)
  end
  local blocked = alone and not may_go
  if entry and blocked and full then
    next_at = now
    break
  end
  local kind = stored and string.sub(stored, 1, 1) or SCHEDULED
  local waits = entry or kind == SCHEDULED or kind == RETRYING
  if waits and not blocked then
    job = job or redis.call('HGET', body, id)
    waits = job
  end
  if not waits then
    if not entry then from_later[#from_later + 1] = id end
  elseif blocked then
    set_aside(id, stored)
  else
    take(id, job, stored, at, alone)
    if not entry then from_later[#from_later + 1] = id end
    if tat < at then slot, frac = at, 0 else slot, frac = tat, tat_frac end
    pace_changed = true
  end
  if entry then chunk_at, popped = chunk_at + 1, popped + 1 else due_at = due_at + 2 end
end
if want <= 0 then
  next_at = -1
elseif next_at == 0 then
  if popped >= MAX_LOOKED_AT then
    next_at = now
  else
    local passed = due_before + (due_at - 1) / 2
    local soonest = tonumber(redis.call('ZRANGE', later, passed, passed, 'WITHSCORES')[2] or aside[1])
    if soonest and aside[1] then soonest = math.min(soonest, tonumber(aside[1])) end
    if soonest then next_at = math.max(soonest, slot + whole - back) end
  end
end
reply[3] = next_at

-- Everything is decided. From here on there are only writes.
if popped > 0 then redis.call('LPOP', queue, popped) end
for i = 1, #from_later, CHUNK do
  redis.call('ZREM', later, unpack(from_later, i, math.min(i + CHUNK - 1, #from_later)))
end
for i = 1, #metas, CHUNK do
  redis.call('ZADD', leases, unpack(deadlines, i, math.min(i + CHUNK - 1, #deadlines)))
  redis.call('HSET', meta, unpack(metas, i, math.min(i + CHUNK - 1, #metas)))
end
for i = 1, #aside, CHUNK do
  redis.call('ZADD', later, unpack(aside, i, math.min(i + CHUNK - 1, #aside)))
end
for i = 1, #aside_metas, CHUNK do
  redis.call('HSET', meta, unpack(aside_metas, i, math.min(i + CHUNK - 1, #aside_metas)))
end
if taken > 0 then
  redis.call('HSET', claims, dispatcher, string.format('%s %.0f ', claim, now) .. table.concat(log))
end
if pace_changed then
  redis.call('HSET', pace, 'slot', string.format('%.0f', slot), 'frac', string.format('%.0f', frac), 'rate', rate)
end
if lease > tonumber(state[3] or 0) then
  redis.call('HSET', pace, 'lease', string.format('%.0f', lease))
end
return reply
