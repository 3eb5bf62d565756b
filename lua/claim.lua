-- claim.lua: leases jobs to a dispatcher, each with its slot.
-- Slots are spaced by the bucket's rate over all dispatchers; the fraction of
-- an interval is carried. Asked again with the same claim id it answers the
-- same jobs, so that a lost reply loses none. The bytes of an answer are bounded, and so are those of the same answer given again.
-- In a bucket with flows, reserve.lua has said whose turn it is: the flow that
-- waited longest goes first, of the group that waited longest where there are groups; each has as many departures a turn as its weight says
-- (deficit round robin, Shreedhar and Varghese 1995), and all its own bounds hold
-- together with the bucket's. Each flow is put back on the calendar at its next turn; one that has nothing to send, has
-- as many in flight as it may, or is paused is taken off it.
-- A job that one more crash makes poison is on its last chance, and a process
-- holds at most one such job at a time. Sweep charges all that a dead process
-- had in flight, for it cannot know which job it was: let out together again,
-- all of them would be called poison. Now the last crash finds one, whose like
-- have been settled before it or still wait. They are held to one a process, not
-- to one a bucket, because it is processes that die, with jobs of all their
-- buckets; and only from the last chance on, because one crash of a full process is
-- common, and its jobs are to come back at the pace, not one at a time.
-- An innocent job on its last chance is still lost when another that crashed less often kills its process.
-- Those that may not go yet leave their slot to the next job, and wait in later.
-- One that has expired becomes a dead letter and takes no slot.
-- One that was sent away meanwhile is woken for the turns that are put back here, if the dispatcher has few workers left (see
-- away.lua).
-- In a bucket that shares a pool, its slots are also those of the pool, of which it leaves others theirs (share.lua).
-- A bucket that is paused hands out nothing new. No slot passes meanwhile: when
-- it is resumed, what it has of a burst is what any quiet bucket has.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:conf    hash  what the bucket obeys
-- KEYS[4]  …:pace    hash  slot: the last one; frac: its fraction in 1/rate_count microseconds; rate: of that slot, and its burst;
--          lease: the longest; since: when the pace began; clock, offset: see reserve.lua
-- KEYS[5]  …:leases  zset  id -> deadline, microseconds
-- KEYS[6]  …:claims  hash  dispatcher -> its last claim that got jobs: claim id, time, then id, slot, epoch of each
-- KEYS[7]  …:dead    zset  id -> time of death
-- KEYS[8]  …:count   hash  jobs that came as scheduled, bytes of dead letters
-- KEYS[9]  …:departed  list  times of the last departures, for the quotas
-- KEYS[10] …:flows   hash  flow -> what is kept of it
-- KEYS[11] …:flow_settings  hash  flow -> its own settings
-- KEYS[12] …:due:    zset  flow -> its turn on the calendar; where flows are in groups …:due_groups, group -> its turn
-- KEYS[13] …:sent_away  zset  dispatcher -> when it was told to come back (see away.lua)
-- KEYS[14] …:idle   zset  flow or group -> when it can be forgotten (see idle.lua)
-- KEYS[15...]  for each flow: …:q:<priority>:<flow> of the four priorities, …:later:<flow>, …:departed:<flow>; where
--          flows are in groups then …:groups, …:group_settings, and for each group: …:due:<group>, …:departed_group:<group>;
--          in a pool then the pool's four (see pool.lua)
-- ARGV[1]  dispatcher: its id, no spaces
-- ARGV[2]  claim: its id, no spaces
-- ARGV[3]  want: jobs at most, 0 to 1000; of 0 the turns are put back and no more
-- ARGV[4]  horizon: microseconds to look ahead, up to 200000
-- ARGV[5]  lease: microseconds, counted from the slot
-- ARGV[6]  lead: microseconds that the answer will need to be back; no slot lies nearer
-- ARGV[7]  last_chance: crashes that put a job on its last chance
-- ARGV[8]  may_go: 1 if one of those may be among the answer, 0 if the process holds one
-- ARGV[9]  expired_last: last response of a job that has expired (JSON)
-- ARGV[10] has_flows: 1 if the bucket has flows, 2 if these are in groups, 0 if there is only the flow ""
-- ARGV[11] member: the bucket's name where it is in a pool, '' if in none
-- ARGV[12] channel to wake dispatchers on
-- ARGV[13] bucket: with the id of a dispatcher what to publish there
-- ARGV[14] most_bytes: of bodies and of settings of flows in the answer, 1 to 1048576; one job is handed out however large it is
-- ARGV[15] stepped: microseconds by which the dispatcher has seen the clock of Redis step forwards since its last claim, at
--          most; 0 it has not
-- ARGV[16] number of flows
-- ARGV[17...]  with flows, for each: its name, its turn as reserve.lua said it; then for each group the same
-- Returns  {1} the bucket is not configured; else {0, now, next, in flight, expired, lone, rate_count,
--          rate_per, free_slot, and for each job: id, slot, epoch, delivery number, attempts so far, body, and with
--          flows the flow and what its settings say that is not for scripts}
--          next: when the next slot is worth asking for; 0 when there is nothing to do until a wake-up
--          (empty or paused), -1 when max_in_flight is reached, its own or the pool's; lone: which of the jobs, counted from 1,
--          is on its last chance, 0 none; expired: how many became dead letters; free_slot: the first one that nobody
--          has, 0 where nothing is handed out
-- Stores   lease and meta until the job is settled, the claim's answer until the next one; when a flow can be forgotten,
--          until it is
-- Needs    Redis 7.0

--#include lib/away.lua
--#include lib/dlq.lua
--#include lib/flow.lua
--#include lib/idle.lua
--#include lib/pending.lua
--#include lib/quota.lua
--#include lib/sender.lua
--#include lib/share.lua
--#include lib/turns.lua

local body, meta, conf, pace, leases, claims = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local dead, count, departed_key, flows, flow_settings, due, sent_away, idle_key =
  KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13], KEYS[14]
local dispatcher, claim = ARGV[1], ARGV[2]
local want, horizon, lease, lead = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local last_chance, may_go, expired_last, has_flows = tonumber(ARGV[7]), ARGV[8] == '1', ARGV[9], ARGV[10] ~= '0'
local in_groups, member, channel, bucket = ARGV[10] == '2', ARGV[11], ARGV[12], ARGV[13]
local most_bytes, stepped, flow_count = tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[16])
local FIRST_PLACE, FIRST_FLOW, WORKERS = 14, 16, want
local FIRST_GROUP, FIRST_GROUP_KEY = FIRST_FLOW + 2 * flow_count, FIRST_PLACE + flow_count * (flow.PLACES + 1)
local MAX_HORIZON = 200000
local SCHEDULED, IN_FLIGHT, RETRYING, DEAD = '2', '3', '4', '5'
local CHUNK = 500
local ASIDE = 100000 -- microseconds beyond the horizon, or the next claim would see it again
local MAX_ASIDE, MAX_EXPIRED = 500, 500
local MAX_READ = 4194304 -- bytes of bodies that a run reads, one job more or less: those of expired jobs are read too
local META = '^(%d) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$'

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('ZREM', leases, '')

local settings = redis.call('HMGET', conf, 'rate_count', 'rate_per', 'burst', 'max_in_flight', 'paused', 'quotas', 'aging',
  'flow_rate_count', 'flow_rate_per', 'flow_burst', 'flow_capacity', 'flow_max_in_flight', 'flow_quotas', 'weight', 'recheck')
if not settings[1] then return { 1 } end
local rate_count, rate_per = tonumber(settings[1]), tonumber(settings[2])
local burst, max_in_flight = tonumber(settings[3]), tonumber(settings[4])

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local in_flight = redis.call('ZCARD', leases)
local reply = { 0, now, 0, in_flight, 0, 0, rate_count, rate_per, 0 }
local NEXT, EXPIRED, LONE, FREE_SLOT, HEAD, JOB = 3, 5, 6, 9, 9, has_flows and 8 or 6
local reader = pending.reader(body, meta, last_chance, tonumber(settings[7] or 0), in_groups, most_bytes)
local function text(n) return string.format('%.0f', n) end

local function add(id, slot, epoch, number, attempts, stored, alone, name, own)
  local n = #reply
  if alone then reply[LONE] = (n - HEAD) / JOB + 1 end
  reply[n + 1], reply[n + 2], reply[n + 3] = id, slot, epoch
  reply[n + 4], reply[n + 5], reply[n + 6] = number, attempts, stored
  if has_flows then reply[n + 7], reply[n + 8] = name, own and string.match(own, '\n(.*)$') or '' end
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
        local name = has_flows and flow.of(job, in_groups)
        add(id, tonumber(slot), tonumber(epoch), tonumber(attempts) + tonumber(lost) + 1, tonumber(attempts), job,
          pending.on_last_chance(reader, stored), name, name and redis.call('HGET', flow_settings, name))
      end
    end
  end
  reply[NEXT] = now
  return reply
end

-- The last slot. A missing pace starts empty: the first slot is one interval
-- away. One that lies further ahead than it can means that the clock stepped back. The time that a step
-- forwards has skipped has not passed: no burst grew in it.
local whole = math.floor(rate_per / rate_count)
local part = rate_per - whole * rate_count
local back = (burst - 1) * whole + math.floor((burst - 1) * part / rate_count)
local rate = sender.pace(rate_count, rate_per, burst)
local kept = redis.call('HMGET', pace, 'slot', 'frac', 'lease', 'rate', 'since', 'offset')
local slot, frac, since, offset = tonumber(kept[1]), tonumber(kept[2]), tonumber(kept[5] or 0), tonumber(kept[6] or 0)
local pace_changed
local run = { now = now, since = since, latest = now + MAX_HORIZON }

if not slot then
  slot, frac, since, pace_changed = now + back, 0, now, true
else
  slot, frac, pace_changed = sender.cut(run, slot, frac, kept[4], rate, back)
  if since > now then since = now end
end
if stepped > 0 and slot < now + back then slot, frac, pace_changed = math.min(slot + stepped, now + back), 0, true end
run.since = since
local function write_pace()
  redis.call('HSET', pace, 'slot', text(slot), 'frac', text(frac), 'rate', rate, 'since', text(since))
end

local free, shared, more, own_next = max_in_flight - in_flight, nil, false, 0
if member ~= '' then
  shared = share.open(member, KEYS, tonumber(settings[14] or 1), now, now + lead, horizon, in_flight)
  if not shared then return { 1 } end
  horizon = shared.horizon
  if stepped > 0 then share.stepped(shared, stepped) end
end
if settings[5] or free <= 0 then
  local dues, last = {}, has_flows and FIRST_GROUP or FIRST_FLOW
  for i = FIRST_GROUP + 1, #ARGV, 2 do
    dues[ARGV[i]] = KEYS[FIRST_GROUP_KEY + 2 + i - FIRST_GROUP]
    redis.call('ZADD', due, 'XX', ARGV[i + 1], ARGV[i])
  end
  for i = FIRST_FLOW + 1, last, 2 do
    redis.call('ZADD', in_groups and dues[flow.group_of(ARGV[i])] or due, 'XX', ARGV[i + 1], ARGV[i])
  end
  if not settings[5] then reply[NEXT] = -1 end
  if stepped > 0 then write_pace() end
  if shared then share.close(shared, false) end
  return reply
end
want = math.min(want, free)
if shared then want = share.allows(shared, want) end

if frac >= rate_count then frac = 0 end
local earliest, latest = now + lead, now + horizon
local quotas = quota.open(departed_key, quota.windows(settings[6]), 64)

-- Bodies may be large: no more are read than there are slots to hand out, or
-- twice as many as the time before where cancelled jobs lie between.
local slots = (latest + back - math.max(slot, earliest)) * rate_count / rate_per
local at_once = math.max(math.min(math.floor(slots) + 1, want, CHUNK), 1)
if want == 0 or math.max(slot + whole - back, earliest, quota.ready(quotas, run.latest)) > latest then at_once = 0 end

-- The flows whose turn it is, and of them those that have something to send.
local named, ready, groups = {}, {}, {}
if has_flows then
  local at_once_each, names = math.ceil(at_once / math.max(flow_count, 1)), {}
  for i = 1, flow_count do names[i] = ARGV[FIRST_FLOW + 2 * i - 1] end
  local of_all, windows = { unpack(settings, 8, 12) }, quota.windows(settings[13])
  local common, own, states = flow.settings(false, of_all), {}, {}
  if #names > 0 then
    own, states = redis.call('HMGET', flow_settings, unpack(names)), redis.call('HMGET', flows, unpack(names))
  end
  for i, name in ipairs(names) do
    local base = FIRST_PLACE + (i - 1) * (flow.PLACES + 1)
    local f = sender.open(run, name, tonumber(ARGV[FIRST_FLOW + 2 * i]) - offset, own[i] and flow.settings(own[i], of_all) or common,
      states[i], quota.open(KEYS[base + flow.PLACES + 1], windows, 1))
    local from = sender.ready(run, f)
    f.places = pending.open(base, from > latest and 0 or at_once_each, name) -- of one that may not go, no job is read
    named[i], f.own = f, own[i]
    sender.waits(f, from)
    if not flow.is_held(f) then ready[#ready + 1] = f end
  end
  if in_groups then groups = turns.groups(run, conf, FIRST_GROUP, FIRST_GROUP_KEY, offset, named) end
else
  named[1] = { at = 0, places = pending.open(FIRST_PLACE, at_once) }
  ready[1] = named[1]
end
local heap = in_groups and turns.of_groups(groups, ready) or ready
turns.order(heap)
if at_once > 0 then pending.read_heads(reader, ready) end

local taken, bytes, metas, deadlines, log, deaths = 0, 0, {}, {}, {}, {}
local aside_count, expired, unscheduled = 0, 0, 0

-- The numbers of a meta, or those of a job that was never claimed.
local function numbers(stored)
  local _, epoch, attempts, lost, crashes, owner, last = string.match(stored or '', META)
  return tonumber(epoch or 0), tonumber(attempts or 0), tonumber(lost or 0), tonumber(crashes or 0), owner or '-', last or ''
end
local texts = {} -- of small numbers, which are nearly always the same
local function short(n)
  texts[n] = texts[n] or text(n)
  return texts[n]
end
local function set_meta(id, code, epoch, attempts, lost, crashes, owner, last)
  metas[#metas + 1] = id
  metas[#metas + 1] = table.concat({ code, short(epoch), short(attempts), short(lost), short(crashes), owner, last }, ' ')
end

local function take(f, id, job, stored, at, alone)
  local epoch, attempts, lost, crashes, _, last = numbers(stored)
  epoch = epoch + 1
  taken = taken + 1
  if alone then may_go = false end
  set_meta(id, IN_FLIGHT, epoch, attempts, lost, crashes, claim, last)
  deadlines[#deadlines + 1], deadlines[#deadlines + 2] = text(at + lease), id
  log[#log + 1] = table.concat({ id, text(at), short(epoch) }, ' ') .. ';'
  add(id, at, epoch, attempts + lost + 1, attempts, job, alone, f.name, f.own)
  quota.add(quotas, at)
  if shared then share.departs(shared, at) end
  if not f.name then return end
  sender.departs(run, f, at)
  if f.group then sender.departs(run, f.group, at) end
  turns.next(heap, flow.is_held(f))
end

local function expire(f, id, job, stored)
  local epoch, attempts, lost, crashes, owner = numbers(stored)
  set_meta(id, DEAD, epoch, attempts, lost, crashes, owner, expired_last)
  deaths[#deaths + 1] = id
  expired = expired + 1
  local _, delayed = pending.told(job)
  if delayed then unscheduled = unscheduled + 1 end
  if f.name then sender.drops(f, delayed) end
  if f.group then sender.drops(f.group, delayed) end
end

-- The job waits in later, behind those that were set aside before it.
local function set_aside(f, id, stored)
  local aside = f.places.aside
  aside[#aside + 1], aside[#aside + 2] = text(latest + ASIDE + aside_count), id
  aside_count = aside_count + 1
  if string.sub(stored, 1, 1) ~= RETRYING then
    metas[#metas + 1], metas[#metas + 2] = id, RETRYING .. string.sub(stored, 2)
  end
end

-- Decides one job, or one flow that has none. Returns true to go on.
local function step()
  local f, turn = turns.top(heap)
  if not f then return false end
  local tat, tat_frac = slot + whole, frac + part
  if tat_frac >= rate_count then tat, tat_frac = tat + 1, tat_frac - rate_count end
  own_next = math.max(tat - back, earliest, quota.ready(quotas, run.latest), turn)
  local at = shared and math.max(own_next, share.ready(shared, 0)) or own_next
  local full, read_enough = aside_count >= MAX_ASIDE, reader.bytes > MAX_READ and taken + expired > 0
  local due_id, due_time
  if not full then due_id, due_time = pending.peek_due(f.places, latest) end
  if at > latest or taken >= want or expired >= MAX_EXPIRED or read_enough or (shared and share.skips(shared, at)) then
    if due_id or pending.left(f.places) then reply[NEXT], more = at, true end
    return false
  end
  local entry, list
  if not due_id or due_time > at then entry, list = pending.peek(reader, f.places) end
  if not entry and not due_id then
    turns.next(heap, true)
    return true
  elseif not entry and due_time > at then
    sender.waits(f, due_time)
    turns.next(heap, false)
    return true
  end

  local id, stored, job, alone, expires
  if entry then
    id, stored, job, alone, expires = entry.id, entry.meta, entry.body, entry.alone, entry.expires
  else
    id, stored = due_id, redis.call('HGET', meta, due_id)
    alone = pending.on_last_chance(reader, stored)
  end
  local blocked = alone and not may_go
  if entry and blocked and full then
    reply[NEXT] = now
    return false
  end
  local kind = stored and string.sub(stored, 1, 1) or SCHEDULED
  local waits = entry or kind == SCHEDULED or kind == RETRYING
  if waits and not job and not blocked then
    job = redis.call('HGET', body, id)
    waits = job
    if job then expires, reader.bytes = select(3, pending.told(job)), reader.bytes + #job end
  end
  local is_over = expires and expires <= at
  local size = waits and not blocked and not is_over and #job + #(f.own or '') or 0
  if taken > 0 and size > 0 and bytes + size > most_bytes then
    reply[NEXT], more = at, true
    return false
  end
  pending.pass(f.places, list)
  reader.handled[id] = true
  if not entry and not (waits and blocked) then f.places.gone[#f.places.gone + 1] = id end
  if not waits then return true end
  if blocked then
    set_aside(f, id, stored)
  elseif is_over then
    expire(f, id, job, stored)
  else
    if tat < at then slot, frac = at, 0 else slot, frac = tat, tat_frac end
    pace_changed, bytes = true, bytes + size
    take(f, id, job, stored, at, alone)
  end
  return true
end
while step() do end

-- Where each flow goes on the calendar, and what is kept of it. Not to where reserve.lua looks at some again next.
local recheck = tonumber(string.match(settings[15] or '', '^%d+') or '')
local function behind(at) return at == recheck and at + 1 or at end
local calendar, states, idle_flows, idle_soon = { placed = {}, taken_off = {} }, {}, {}, {}
local function keep(f, kind, changed, gone)
  if flow.is_idle(f.state, now, f.settings.rate_count, f.settings.rate_per) then
    if f.had_text then gone[#gone + 1] = f.name end
  elseif f.changed then
    changed[#changed + 1], changed[#changed + 2] = f.name, flow.write(f.state)
    idle.note(idle_soon, kind, f)
  end
end
for _, f in ipairs(has_flows and named or {}) do
  local at
  if flow.is_held(f) then
    at = nil
  elseif pending.left(f.places) then
    at = f.at
  else
    f.state.turn = 0
    at = pending.due_next(f.places)
    if at then at = math.max(at, sender.ready(run, f)) end
  end
  turns.note(f.group or calendar, f.name, at and behind(at + offset))
  keep(f, 'f', states, idle_flows)
end
local next_slot = math.max(slot + whole - back, quota.ready(quotas, run.latest))
local unfinished = reader.looked_at >= pending.MAX_LOOKED_AT or expired >= MAX_EXPIRED
if unfinished then
  reply[NEXT] = now
elseif not has_flows and reply[NEXT] == 0 then
  local soonest = pending.due_next(named[1].places)
  if soonest then reply[NEXT] = math.max(soonest, next_slot) end
end
reply[EXPIRED], reply[FREE_SLOT] = expired, next_slot

-- Everything is decided. From here on there are only writes, but for the heads of calendars.
local function in_chunks(command, key, list)
  for i = 1, #list, CHUNK do
    redis.call(command, key, unpack(list, i, math.min(i + CHUNK - 1, #list)))
  end
end
for _, f in ipairs(named) do
  pending.write(f.places)
  if f.name then quota.write(f.quotas) end
end
in_chunks('ZADD', leases, deadlines)
in_chunks('HSET', meta, metas)
dlq.add(dead, body, meta, count, now, deaths)
flow.unschedule(count, unscheduled)
quota.write(quotas)
in_chunks('HSET', flows, states)
in_chunks('HDEL', flows, idle_flows)
-- A group goes at its turn, also where that of its flows is later, unless these have to wait longer than the bucket.
local group_states, idle_groups = {}, {}
for _, g in ipairs(groups) do
  in_chunks('ZREM', g.due, g.taken_off)
  in_chunks('ZADD', g.due, g.placed)
  quota.write(g.quotas)
  local head = tonumber(redis.call('ZRANGE', g.due, 0, 0, 'WITHSCORES')[2])
  if not head and g.state.turn > 0 then g.state.turn, g.changed = 0, true end
  local at = head and not flow.is_held(g) and g.at + offset
  if at and head > math.max(next_slot, now) + offset then at = math.max(at, head) end
  turns.note(calendar, g.name, at and behind(at))
  keep(g, 'g', group_states, idle_groups)
end
in_chunks('HSET', KEYS[FIRST_GROUP_KEY + 1], group_states)
in_chunks('HDEL', KEYS[FIRST_GROUP_KEY + 1], idle_groups)
in_chunks('ZADD', idle_key, idle_soon)
in_chunks('ZREM', due, calendar.taken_off)
in_chunks('ZADD', due, calendar.placed)
if taken > 0 then
  redis.call('HSET', claims, dispatcher, string.format('%s %.0f ', claim, now) .. table.concat(log))
end
if pace_changed then
  write_pace()
end
if lease > tonumber(kept[3] or 0) then redis.call('HSET', pace, 'lease', text(lease)) end
local head = has_flows and tonumber(redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2])
if has_flows and reply[NEXT] ~= now then
  reply[NEXT] = head and math.max(math.floor(head - offset), next_slot) or 0
  -- Of flows that are due, some may not have been reserved.
  more, own_next = head and head - offset <= latest, reply[NEXT]
end
if has_flows and settings[15] then reply[NEXT] = now end -- more flows are to be looked at again
if head and 2 * taken >= WORKERS then away.wake(sent_away, dispatcher, head, now + offset, channel, bucket) end
if head and taken < WORKERS and reply[NEXT] ~= now then away.note(sent_away, dispatcher, head, latest + offset, now + offset) end
if shared then
  more = more or unfinished
  if more and not unfinished then reply[NEXT] = share.next(shared, math.max(own_next, share.ready(shared, 0))) end
  share.close(shared, more, own_next, rate_per / rate_count)
end
return reply
