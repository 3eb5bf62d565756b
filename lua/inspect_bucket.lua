-- inspect_bucket.lua: returns the counts, ages and settings of a bucket. Writes nothing.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:settings    hash  settings of the bucket
-- KEYS[3]  …:pace    hash  last slot; offset: of the engine's clock; down: see downstream.lua; window, drain: see timetable.lua
-- KEYS[4]  …:count   hash  jobs enqueued with a delay, ids forgotten early, bytes of dead letters; held, open, half_open: see
--          sweep.lua; oldest: see oldest_waiting.lua; events_dropped: see outbox.lua
-- KEYS[5]  …:leases  zset  id -> deadline, microseconds
-- KEYS[6]  …:dead    zset  id -> time of death
-- KEYS[7]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[8]  …:flows   hash  flow -> its state (see flow.lua)
-- KEYS[9]  …:due:    zset  flow -> its turn, by the engine's clock, where flows are in no groups
-- KEYS[10]  …:groups  hash  group -> its state (see group.lua)
-- KEYS[11]  …:due_groups  zset  group -> its turn
-- KEYS[12] …:disabled  zset  disabled flow -> when empty_disabled.lua checks it next
-- KEYS[13] …:callbacks  zset  callbacks -> when to hand them out (see callbacks.lua)
-- KEYS[14] …:callback_texts  hash  their texts
-- KEYS[15] …:followers  zset  batch members in flight, without the first of each batch -> number of their batch (see batch.lua)
-- KEYS[16] …:departed  list  times of departures, for the quotas
-- KEYS[17] …:charges  hash  charges to budgets (see charges.lua)
-- KEYS[18] …:results  hash  id -> the stored response (see results.lua)
-- KEYS[19] …:result_ends  zset  id -> when its result is dropped
-- KEYS[20] …:result_flows  hash  id -> when its result was stored, and its flow
-- KEYS[21...]  jobs that a purge moved out and has not removed yet: …:purged:<priority>:, four lists,
--          and …:purged_later:, a zset; then the five places of the flow "": …:q:<priority>:<flow>, four lists,
--          then …:later:<flow>, a zset; in a pool then the pool's seven (see pool.lua)
-- ARGV[1]  member: the name of the bucket if it is in a pool, else ''
-- ARGV[2...]  the settings that operators may change: their fields
-- Returns  names and values (see named_reply.lua). Times are of the server's clock, in microseconds:
--   now, configured (1), revision, and the settings that operators may change
--   unfinished; waiting (in the lists); later; next_due (the first due time in later); scheduled (enqueued with a delay); in_flight;
--     requests (in flight; fewer than jobs where there are batches); dead; remembered and forgotten (ids). In a bucket with flows,
--     waiting counts all waiting jobs, and later is 0
--   oldest_age   age of the oldest head of a list. With flows: of the head that the last audit found (see oldest_waiting.lua); once that
--                job is sent, the next one is assumed to be as old
--   last_slot; empty: when the last waiting job is expected to depart, absent if unknown
--   paused (since when), paused_by, paused_reason; resumed (when the last pause ended); changing (when the last
--   changes of settings began); purging (entries that a purge has yet to remove), purged
--   levels       1 if the bucket has flows, 2 if they are in groups; flows, flows_wait (in turn queues), groups, groups_wait; flows_held,
--                flows_open and flows_half_open (their breakers), as the last audit of sweep.lua found them; flows_disabled
--   dead_bytes; dead_capacity and dead_max_bytes: the bounds that hold; dead_dropped_old, dead_dropped_extra: by retention, by the bounds
--   events_dropped; callbacks, oldest_callback_age
--   results, result_bytes, oldest_result (when it was kept), results_dropped (by the bounds, ever), and the bounds: result_retention
--     (microseconds), results_max, results_max_bytes; nothing of these where no result is kept
--   moves_to: the tag of the place that the bucket has left this one for, while it moves (see relocate.lua)
--   name: of the bucket, as the process says that wrote its settings; it may have been renamed
--   offset (of the engine's clock), downstream (its text), quotas and budgets (what is used of each and when it is free, see allowance.lua)
--   pool_rate_count, pool_rate_per, pool_burst, pool_max_in_flight, pool_in_flight (in all its buckets), pool_last_slot, pool_weight (of
--     the bucket), pool_downstream, pool_quotas, pool_budgets: of its pool
--   timetable    1 if the bucket has one, or a drain runs; hours_…: see timetable.view; drain: the text of the last one
--   overrides    for each: field, configured value, effective value, "time author"
-- Stores   nothing
-- Needs    Redis 7.0

--#include lib/allowance.lua
--#include lib/batch.lua
--#include lib/charges.lua
--#include lib/codec.lua
--#include lib/dlq.lua
--#include lib/estimate.lua
--#include lib/flow.lua
--#include lib/jobs_ahead.lua
--#include lib/named_reply.lua
--#include lib/overrides.lua
--#include lib/pacer.lua
--#include lib/pool.lua
--#include lib/results.lua
--#include lib/server_time.lua
--#include lib/timetable.lua

local body, conf, pace, count = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local leases, dead, seen, flows, due_flows = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local groups, due_groups, disabled, callbacks, callback_texts, followers, departed, charges_key = unpack(KEYS, 10, 17)
local results_key, result_ends, result_flows = KEYS[18], KEYS[19], KEYS[20]
local member, changeable = ARGV[1], { unpack(ARGV, 2) }
local PURGED = 20 -- number of keys before the keys of a purge
local PLACES = PURGED + flow.PLACES

local now = server_time()
local revision, rate_count, rate_per, burst, capacity, levels, most_dead, most_dead_bytes, timetable_text, quotas, batch_text, left_for,
  shown_name =
  unpack(redis.call('HMGET', conf, 'revision', 'rate_count', 'rate_per', 'burst', 'capacity', 'flows', 'dead_capacity', 'dead_max_bytes',
    'timetable', 'quotas', 'batch', 'left_for', 'name'), 1, 13)
local parted = tonumber(levels or 0)
local has_flows = parted > 0
local scheduled_count, forgotten, purged, dead_bytes, dropped_old, dropped_full, held, open, half_open, events_dropped, oldest_found =
  unpack(redis.call('HMGET', count, 'scheduled', 'forgotten', 'purged', 'dead_bytes', 'dead_dropped_old', 'dead_dropped_full', 'held',
    'open', 'half_open', 'events_dropped', 'oldest'), 1, 11)
local scheduled = math.max(tonumber(scheduled_count or 0), 0)
local jobs, in_flight, dead_count = redis.call('HLEN', body), redis.call('ZCARD', leases), redis.call('ZCARD', dead)
local requests = batch.in_flight(leases, followers)

local function in_lists(before)
  local n = 0
  for i = before + 1, before + flow.PLACES - 1 do n = n + redis.call('LLEN', KEYS[i]) end
  return n
end
local unpurged = in_lists(PURGED) + redis.call('ZCARD', KEYS[PURGED + flow.PLACES])
local waiting, later, oldest = math.max(jobs - dead_count - in_flight - unpurged, 0), 0, 0
if not has_flows then
  later = redis.call('ZCARD', KEYS[PLACES + flow.PLACES])
  waiting = math.min(in_lists(PLACES), math.max(waiting - later, 0)) -- lists may have ids of ended jobs
  for i = PLACES + 1, PLACES + flow.PLACES - 1 do
    local head = redis.call('LINDEX', KEYS[i], 0)
    local job = head and redis.call('HGET', body, head)
    local came = job and codec.came(job)
    if came and (oldest == 0 or came < oldest) then oldest = came end
  end
elseif waiting > 0 then
  local came, seen_at, id = string.match(oldest_found or '', '^(%d+) (%d+) (.*)$')
  if came then
    local waits = redis.call('HEXISTS', body, id) == 1 and not redis.call('ZSCORE', leases, id) and not redis.call('ZSCORE', dead, id)
    oldest = waits and came + 0 or now - (seen_at - came)
  end
end

local reply = {}
local function add(name, value) named_reply.add(reply, name, value) end
add('now', now)
add('configured', revision and 1)
add('moves_to', left_for)
add('name', shown_name)
add('revision', tonumber(revision or 0))
add('levels', parted)
if changeable[1] then
  for i, value in ipairs(redis.call('HMGET', conf, unpack(changeable))) do add(changeable[i], tonumber(value or 0)) end
end
local slot, offset_text, down, window, drain, rate, last =
  unpack(redis.call('HMGET', pace, 'slot', 'offset', 'down', 'window', 'drain', 'rate', 'last'))
local offset = tonumber(offset_text or 0)
add('offset', offset)
add('downstream', down)
add('drain', drain)
add('last_slot', tonumber(slot or 0) - offset)
add('unfinished', jobs - dead_count - scheduled)
add('waiting', waiting)
add('later', later)
add('next_due', later > 0 and tonumber(redis.call('ZRANGE', KEYS[PLACES + flow.PLACES], 0, 0, 'WITHSCORES')[2]))
add('scheduled', scheduled)
add('in_flight', in_flight)
add('requests', requests)
add('dead', dead_count)
add('remembered', redis.call('HLEN', seen))
add('forgotten', tonumber(forgotten or 0))
add('oldest_age', oldest > 0 and math.max(now - oldest, 0))

local paused, paused_by, paused_reason, resumed, changing =
  unpack(redis.call('HMGET', conf, 'paused', 'paused_by', 'paused_reason', 'resumed', 'changing'))
add('paused', tonumber(paused or 0))
add('resumed', tonumber(resumed or 0))
add('changing', tonumber(string.match(changing or '', '^%d+') or 0))
add('paused_by', paused_by)
add('paused_reason', paused_reason)
add('purging', unpurged)
add('purged', tonumber(purged or 0))
add('flows', redis.call('HLEN', flows))
add('flows_wait', redis.call('ZCARD', due_flows))
add('groups', redis.call('HLEN', groups))
add('groups_wait', redis.call('ZCARD', due_groups))
if has_flows then
  add('flows_held', tonumber(held or 0))
  add('flows_open', tonumber(open or 0))
  add('flows_half_open', tonumber(half_open or 0))
end
add('flows_disabled', redis.call('ZCARD', disabled))
local first_callback = 0
-- Callbacks that are handed out or postponed are at the end.
for _, command in ipairs({ 'ZRANGE', 'ZREVRANGE' }) do
  for _, name in ipairs(redis.call(command, callbacks, 0, 49)) do
    local at = tonumber(string.match(name, '^%d+') or 0)
    if at > 0 and (first_callback == 0 or at < first_callback) then first_callback = at end
  end
end
add('callbacks', redis.call('HLEN', callback_texts))
add('oldest_callback_age', first_callback > 0 and math.max(now - first_callback, 0))
add('events_dropped', tonumber(events_dropped or 0))

local retention, results_max, results_bytes = unpack(redis.call('HMGET', conf, 'result_retention', 'results_max', 'results_bytes'))
local kept = results.open(retention, results_max, results_bytes, now, { results_key, result_ends, count, result_flows })
if kept.retention > 0 then
  local number, bytes, oldest_result = results.count(kept)
  add('results', number)
  add('result_bytes', bytes)
  add('oldest_result', oldest_result)
  add('results_dropped', tonumber(redis.call('HGET', count, 'results_dropped') or 0))
  add('results_max', kept.max)
  add('results_max_bytes', kept.bytes)
  add('result_retention', kept.retention)
end

add('dead_bytes', math.max(tonumber(dead_bytes or 0), 0))
add('dead_dropped_old', tonumber(dropped_old or 0))
add('dead_dropped_extra', tonumber(dropped_full or 0))
if revision then
  local most, most_bytes = dlq.bounds(tonumber(capacity), most_dead, most_dead_bytes)
  add('dead_capacity', most < math.huge and most)
  add('dead_max_bytes', most_bytes < math.huge and most_bytes)
end

add('quotas', allowance.text(departed, quotas, now, offset, now + offset + pacer.MAX_HORIZON))
local charged = charges.read_levels(conf, charges_key, now, offset)
add('budgets', (allowance.budgets(charged.own, now, offset)))
local weight = member ~= '' and redis.call('HGET', conf, 'weight')
if member ~= '' then
  local k = pool.keys(KEYS)
  local pool_rate_count, pool_rate_per, pool_burst, pool_max_in_flight, pool_quotas =
    unpack(redis.call('HMGET', k.conf, 'rate_count', 'rate_per', 'burst', 'max_in_flight', 'quotas'))
  local pool_slot, pool_down = unpack(redis.call('HMGET', k.pace, 'slot', 'down'))
  local of_pool = charges.read_pool(k, now)
  named_reply.add_all(reply, 'pool_', { rate_count = tonumber(pool_rate_count), rate_per = tonumber(pool_rate_per),
    burst = tonumber(pool_burst), max_in_flight = tonumber(pool_max_in_flight), in_flight = pool.in_flight(KEYS, member, requests),
    last_slot = tonumber(pool_slot), weight = tonumber(weight), downstream = pool_down,
    quotas = allowance.text(k.departed, pool_quotas, now, 0, now + pacer.MAX_HORIZON),
    budgets = allowance.budgets(of_pool, now, of_pool.offset) })
end

local times, rules = revision and timetable.open(conf, timetable_text, window, drain), batch.rules(batch_text)
if times then
  local base = { rate_count = tonumber(rate_count), rate_per = tonumber(rate_per), burst = tonumber(burst) }
  local function unfinished(after)
    return timetable.unfinished(body, dead, count, not has_flows and KEYS[PLACES + flow.PLACES] or nil, after)
  end
  add('timetable', 1)
  named_reply.add_all(reply, 'hours_', timetable.view(times, base, now, tonumber(last or slot or 0) - offset, unfinished, in_flight,
    rules and timetable.together(times, rules) or 1))
end
-- The estimated departure of the last waiting job.
if revision and waiting > 0 then
  local b = { now = now, offset = offset, rate_count = tonumber(rate_count), rate_per = tonumber(rate_per),
    burst = tonumber(burst), paused = paused, batch = rules, times = times, leased = in_flight,
    unfinished = jobs - dead_count - scheduled - 1, weight = weight,
    pool = member ~= '' and estimate.pool(pool.keys(KEYS), now) or nil, budgets = charged.own.all }
  estimate.open(b, pace, slot, rate, nil, down, quotas, departed)
  local are_due = has_flows and 0 or jobs_ahead.due(KEYS[PLACES + flow.PLACES], now)
  add('empty', math.floor(estimate.of_bucket(b, estimate.requests(b, waiting - 1 + are_due))))
end
add('overrides', overrides.list(conf, changeable))
return reply
