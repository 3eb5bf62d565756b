-- inspect_bucket.lua: a bucket in numbers. Writes nothing.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:settings    hash  settings of the bucket
-- KEYS[3]  …:pace    hash  last slot; offset: of the engine's clock; down: see downstream.lua; window, drain: see timetable.lua
-- KEYS[4]  …:count   hash  jobs that came as scheduled, ids forgotten early, bytes of dead letters; held, open, half_open: see
--          sweep.lua; oldest: see oldest_waiting.lua; events_dropped: see outbox.lua
-- KEYS[5]  …:leases  zset  id -> deadline, microseconds
-- KEYS[6]  …:dead    zset  id -> time of death
-- KEYS[7]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[8]  …:flows   hash  flow -> its state (see flow.lua)
-- KEYS[9]  …:due:    zset  flow -> its turn in calendar time, where flows are in no groups
-- KEYS[10]  …:groups  hash  group -> its state (see group.lua)
-- KEYS[11]  …:due_groups  zset  group -> its turn
-- KEYS[12] …:disabled  zset  disabled flow -> when empty_disabled.lua is to look at it
-- KEYS[13] …:callbacks  zset  callbacks -> when they are to be handed out (see callbacks.lua)
-- KEYS[14] …:callback_texts  hash  their texts
-- KEYS[15] …:riders  zset  jobs that are in flight with another one -> number of their batch (see batch.lua)
-- KEYS[16] …:departed  list  times of departures, for the quotas
-- KEYS[17...]  jobs that a purge moved aside and has not removed yet: …:purged:<priority>:, four lists,
--          and …:purged_later:, a zset; then the five places of the flow "": …:q:<priority>:<flow>, four lists,
--          then …:later:<flow>, a zset; in a pool then the pool's seven (see pool.lua)
-- ARGV[1]  member: the name of the bucket if it is in a pool, else ''
-- Returns  {now, configured (1 or 0), revision, rate_count, rate_per in microseconds, burst, capacity,
--          scheduled_capacity, max_in_flight, unfinished, in the lists, in later, came as scheduled,
--          in flight, dead, remembered ids, forgotten ids, time of enqueue of the oldest head of a list (0 none, with flows also unknown),
--          last slot (0 none), paused since (0 it is not), entries that a purge has yet to remove,
--          jobs that purges have removed, 1 if the bucket has flows, 2 if they are in groups, number of flows,
--          of flows on the calendar, of groups, and of groups on their calendar; of
--          its pool, 0 without one: rate_count, rate_per, burst, max_in_flight (0 none), requests in flight in all its buckets, last slot,
--          the bucket's weight; bytes of dead letters; bounds of their number and bytes (0 no bound); dead letters
--          dropped because of their retention, and because of the bounds; flows that are held, whose breaker is open, and half-open
--          (as the last audit of sweep.lua found them); disabled flows; events that no hook was told of;
--          callbacks that wait, time of the oldest one (0 none);
--          offset of the engine's clock; requests in flight: fewer than jobs, where there are batches; the texts of the downstream of
--          the bucket and of its pool ("" none, see downstream.lua); 1 if the bucket has a timetable, or a drain runs, and eight numbers
--          of it (see timetable.view), 0 of none; when the last of the waiting jobs is expected to leave (0 none waits, or nobody knows);
--          the text of its last drain ("" none); author and reason of the pause; its quotas and what is left of them
--          ("" none, see allowance.lua), and those of its pool; and for each override: field, value of the configuration, value
--          in force, "time author"}; of a bucket with flows, "in the lists" counts all waiting jobs and "in later" is 0. The oldest
--          head is then the one that the last audit found (see oldest_waiting.lua). If that job has left, the next one is taken to be as
--          old.
-- Stores   nothing
-- Needs    Redis 7.0

--#include lib/allowance.lua
--#include lib/batch.lua
--#include lib/dlq.lua
--#include lib/estimate.lua
--#include lib/flow.lua
--#include lib/overrides.lua
--#include lib/pacer.lua
--#include lib/pool.lua
--#include lib/timetable.lua

local body, conf, pace, count = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local leases, dead, seen, flows, due_flows = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local groups, due_groups, disabled, callbacks, callback_texts, riders, departed =
  KEYS[10], KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16]
local member = ARGV[1]
local PURGED = 16 -- the keys before those of a purge
local PLACES = PURGED + flow.PLACES
local OVERRIDABLE = { 'rate_count', 'rate_per', 'burst', 'capacity', 'scheduled_capacity', 'max_in_flight', 'shed_low',
  'shed_normal', 'shed_high' }

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local settings = redis.call('HMGET', conf, 'revision', 'rate_count', 'rate_per', 'burst', 'capacity',
  'scheduled_capacity', 'max_in_flight', 'flows', 'dead_capacity', 'dead_max_bytes', 'timetable', 'quotas', 'batch')
local parted = tonumber(settings[8] or 0)
local has_flows = parted > 0
local counters = redis.call('HMGET', count, 'scheduled', 'forgotten', 'purged', 'dead_bytes', 'dead_dropped_old', 'dead_dropped_full',
  'held', 'open', 'half_open', 'events_dropped', 'oldest')
local scheduled = math.max(tonumber(counters[1] or 0), 0)
local jobs, in_flight, dead_count = redis.call('HLEN', body), redis.call('ZCARD', leases), redis.call('ZCARD', dead)
local requests = batch.in_flight(leases, riders)

local function in_lists(before)
  local n = 0
  for i = before + 1, before + flow.PLACES - 1 do n = n + redis.call('LLEN', KEYS[i]) end
  return n
end
local unpurged = in_lists(PURGED) + redis.call('ZCARD', KEYS[PURGED + flow.PLACES])
local waiting, later, oldest = math.max(jobs - dead_count - in_flight - unpurged, 0), 0, 0
if not has_flows then
  later = redis.call('ZCARD', KEYS[PLACES + flow.PLACES])
  waiting = math.min(in_lists(PLACES), math.max(waiting - later, 0)) -- lists may hold ids of jobs that ended
  for i = PLACES + 1, PLACES + flow.PLACES - 1 do
    local head = redis.call('LINDEX', KEYS[i], 0)
    local job = head and redis.call('HGET', body, head)
    local came = job and tonumber(string.match(job, '^%-?%d+ (%d+) '))
    if came and (oldest == 0 or came < oldest) then oldest = came end
  end
elseif waiting > 0 then
  local came, seen_at, id = string.match(counters[11] or '', '^(%d+) (%d+) (.*)$')
  if came then
    local waits = redis.call('HEXISTS', body, id) == 1 and not redis.call('ZSCORE', leases, id) and not redis.call('ZSCORE', dead, id)
    oldest = waits and came + 0 or now - (seen_at - came)
  end
end

local reply = { now, settings[1] and 1 or 0 }
for i = 1, 7 do reply[#reply + 1] = tonumber(settings[i] or 0) end
local of_pace = redis.call('HMGET', pace, 'slot', 'offset', 'down', 'window', 'drain', 'rate', 'last')
local offset = tonumber(of_pace[2] or 0)
local last_slot = tonumber(of_pace[1] or 0) - offset
for _, n in ipairs({ jobs - dead_count - scheduled, waiting, later, scheduled, in_flight, dead_count, redis.call('HLEN', seen),
  tonumber(counters[2] or 0), oldest, last_slot }) do
  reply[#reply + 1] = n
end

local pause = redis.call('HMGET', conf, 'paused', 'paused_by', 'paused_reason')
reply[#reply + 1] = tonumber(pause[1] or 0)
reply[#reply + 1] = unpurged
reply[#reply + 1] = tonumber(counters[3] or 0)
reply[#reply + 1] = parted
reply[#reply + 1] = redis.call('HLEN', flows)
reply[#reply + 1] = redis.call('ZCARD', due_flows)
reply[#reply + 1] = redis.call('HLEN', groups)
reply[#reply + 1] = redis.call('ZCARD', due_groups)
local of_pool, said_of_pool, left_of_pool = { 0, 0, 0, 0, 0, 0, 0 }, false, ''
if member ~= '' then
  local k = pool.keys(KEYS)
  local p = redis.call('HMGET', k.conf, 'rate_count', 'rate_per', 'burst', 'max_in_flight', 'quotas')
  local pool_pace = redis.call('HMGET', k.pace, 'slot', 'down')
  of_pool = { p[1], p[2], p[3], p[4], pool.in_flight(KEYS, member, requests), pool_pace[1], redis.call('HGET', conf, 'weight') }
  said_of_pool, left_of_pool = pool_pace[2], allowance.text(k.departed, p[5], now, 0, now + pacer.MAX_HORIZON)
end
for i = 1, 7 do reply[#reply + 1] = tonumber(of_pool[i] or 0) end
local first_callback = 0
-- Those that are handed out, or were put off, are at the end.
for _, command in ipairs({ 'ZRANGE', 'ZREVRANGE' }) do
  for _, name in ipairs(redis.call(command, callbacks, 0, 49)) do
    local at = tonumber(string.match(name, '^%d+') or 0)
    if at > 0 and (first_callback == 0 or at < first_callback) then first_callback = at end
  end
end
local in_trouble = { 0, 0, 0 }
if has_flows then
  for i = 1, 3 do in_trouble[i] = tonumber(counters[6 + i] or 0) end
end
local most, most_bytes = 0, 0
if settings[1] then most, most_bytes = dlq.bounds(tonumber(settings[5]), settings[9], settings[10]) end
for _, n in ipairs({ tonumber(counters[4] or 0), most < math.huge and most or 0, most_bytes < math.huge and most_bytes or 0,
  tonumber(counters[5] or 0), tonumber(counters[6] or 0), in_trouble[1], in_trouble[2], in_trouble[3],
  redis.call('ZCARD', disabled), tonumber(counters[10] or 0), redis.call('HLEN', callback_texts), first_callback, offset, requests }) do
  reply[#reply + 1] = n
end
reply[#reply + 1] = of_pace[3] or ''
reply[#reply + 1] = said_of_pool or ''
local times = settings[1] and timetable.open(conf, settings[11], of_pace[4], of_pace[5])
local of_times, rules = { 0, 0, 0, 0, 0, 0, 0, 0 }, batch.rules(settings[13])
if times then
  local base = { rate_count = tonumber(settings[2]), rate_per = tonumber(settings[3]), burst = tonumber(settings[4]) }
  local function unfinished(after)
    return timetable.unfinished(body, dead, count, not has_flows and KEYS[PLACES + flow.PLACES] or nil, after)
  end
  of_times = timetable.view(times, base, now, (tonumber(of_pace[7]) or last_slot + offset) - offset, unfinished, in_flight,
    rules and timetable.together(times, rules) or 1)
end
-- When the last one of the waiting jobs leaves.
local empty = 0
if settings[1] and waiting > 0 then
  local b = { now = now, offset = offset, rate_count = tonumber(settings[2]), rate_per = tonumber(settings[3]),
    burst = tonumber(settings[4]), paused = pause[1], batch = rules, times = times, leased = in_flight,
    unfinished = jobs - dead_count - scheduled - 1, weight = of_pool[7],
    pool = member ~= '' and estimate.pool(pool.keys(KEYS), now) or nil }
  estimate.open(b, pace, of_pace[1], of_pace[6], nil, of_pace[3], settings[12], departed)
  empty = math.floor(estimate.of_bucket(b, estimate.requests(b, waiting - 1)))
end
reply[#reply + 1] = times and 1 or 0
for _, n in ipairs(of_times) do reply[#reply + 1] = n end
reply[#reply + 1] = empty
reply[#reply + 1] = of_pace[5] or ''
reply[#reply + 1] = pause[2] or ''
reply[#reply + 1] = pause[3] or ''
reply[#reply + 1] = allowance.text(departed, settings[12], now, offset, now + offset + pacer.MAX_HORIZON)
reply[#reply + 1] = left_of_pool
overrides.add(reply, conf, OVERRIDABLE)
return reply
