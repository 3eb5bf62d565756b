-- inspect_job.lua: returns the state and place of a job, and the bounds that hold it back.
-- Writes nothing.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:settings    hash  settings of the bucket
-- KEYS[4]  …:pace    hash  last slot; offset: of the engine's clock; down: see downstream.lua; window, drain: see timetable.lua
-- KEYS[5]  …:count   hash  purge_mark, purge_flow: sequence number up to which the last purge went, and its flow
-- KEYS[6]  …:leases  zset  id -> deadline, microseconds
-- KEYS[7]  …:dead    zset  id -> time of death
-- KEYS[8]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[9]  …:flows   hash  flow -> its state (see flow.lua)
-- KEYS[10] …:flow_settings  hash  flow -> its own settings
-- KEYS[11] …:departed  list  times of departures from the bucket, the newest first
-- KEYS[12] …:departed:<flow>  list  the same for the flow
-- KEYS[13] …:attempts  hash  id -> its first attempt and the last ones (see outcomes.lua)
-- KEYS[14] …:followers  zset  batch members in flight, without the first of each batch -> number of their batch (see batch.lua)
-- KEYS[15] …:due:    zset  the turn queue: flow -> its turn; where flows are in groups …:due_groups, group -> its turn
-- KEYS[16] …:charges  hash  charges to budgets (see charges.lua)
-- KEYS[17...]  jobs that a purge moved out and has not removed yet: …:purged:<priority>:, four lists,
--          and …:purged_later:, a zset; then the five places of the job's flow: …:q:<priority>:<flow>, four lists,
--          the most important first, then …:later:<flow>, a zset; where flows are in groups then what group.load
--          wants, and …:departed_group:<group>, a list; in a pool then the pool's seven (see pool.lua)
-- ARGV[1]  id
-- ARGV[2]  flow of the job
-- ARGV[3]  levels: 1 if the bucket has flows, 2 if they are in groups, 0 if it has only the flow ""
-- ARGV[4]  member: the name of the bucket if it is in a pool, else ''
-- Returns  names and values (see named_reply.lua), none for an unknown job. Times are in microseconds. For a settled job only state and
-- caller.
--   the job:
--     state         its code; caller: the letters of its caller (see callers.lua)
--     position      number of jobs of its flow ahead of it, -1 not in a list; exact in the first thousand of its list, then an estimate
--     instant       due time, deadline, time of death, or eta; absent if unknown, such as while the bucket is paused
--     meta, body, attempts  its stored texts
--     reserves      its reservation, "unit:amount,..."; '' the default
--   the bucket:
--     now           the time of Redis; offset: of the engine's clock
--     levels        1 if the bucket has flows, 2 if they are in groups
--     paused        when it was paused; paused_by, paused_reason
--     in_flight, max_in_flight  requests, and their bound
--     next_slot     the earliest slot that its rate allows
--     quota_frees, budget_frees  when its quotas and its budgets allow a departure
--     downstream    the text of downstream.lua; rate_count, rate_per: the effective rate, without the adaptive rate
--     closed        1 if its timetable is closed now; opens: when it is open, from now or from the job's time on, absent if unknown
--     quotas, budgets  what is used of each and when it is free (see allowance.lua)
--   the flow, as flow_…; the group has the same names, as group_…:
--     paused, note  when it was paused, and the note of the pause
--     disabled      the time and the reason; missing: 1 if the flow is missing (see flow.lua)
--     keeps         1 if its jobs are kept while it is disabled
--     in_flight, max_in_flight, quotas, budgets, quota_frees, budget_frees  as of the bucket
--     downstream, rate_count, rate_per  as of the bucket; only of the flow
--     ready         when its rate allows the departure, absent: at once
--   the pool, as pool_…: in_flight, max_in_flight, ready, downstream, rate_count, rate_per, quotas, budgets, quota_frees, budget_frees
-- Stores   nothing
-- Needs    Redis 7.0

--#include lib/allowance.lua
--#include lib/batch.lua
--#include lib/callers.lua
--#include lib/charges.lua
--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/downstream.lua
--#include lib/estimate.lua
--#include lib/flow.lua
--#include lib/group.lua
--#include lib/jobs_ahead.lua
--#include lib/named_reply.lua
--#include lib/pacer.lua
--#include lib/pool.lua
--#include lib/quota.lua
--#include lib/reservation.lua
--#include lib/server_time.lua
--#include lib/timetable.lua

local body, meta, conf, pace, count = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, dead, seen, flows, flow_settings = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local departed, flow_departed, tried, followers, turn_queue, charges_key = unpack(KEYS, 11, 16)
local id, name = ARGV[1], ARGV[2]
local levels, member = ARGV[3], ARGV[4]
local PURGED = 16 -- number of keys before the keys of a purge
local PLACES = PURGED + flow.PLACES
local later = KEYS[PLACES + flow.PLACES]
local QUEUED, SCHEDULED, IN_FLIGHT, RETRYING, DEAD, CANCELLED = 1, 2, 3, 4, 5, 7
local LOOKED_AT = 1000

local now = server_time()

local function sequence(stored)
  local base, index = string.match(stored or '', '^(%-?%d+) %d+ .............(%d+)')
  return tonumber(base or 0) + tonumber(index or 0)
end

local reply = {}
local function add(what, value) named_reply.add(reply, what, value) end
-- For a settled job only its state and its caller are known.
local function ended(state, caller)
  add('state', state)
  add('caller', caller)
  return reply
end

local job = redis.call('HGET', body, id)
if not job then
  local settled = redis.call('HGET', seen, id)
  if not settled then return {} end
  local _, state, expires = codec.seen(settled)
  if expires <= now then return {} end
  return ended(tonumber(state), callers.ended(settled))
end

local stored = redis.call('HGET', meta, id)
local due = redis.call('ZSCORE', later, id)
local state = QUEUED
if stored then
  state = tonumber(string.sub(stored, 1, 1))
elseif due then
  state = SCHEDULED
end
-- A job that a purge has moved out counts as purged.
if not due and (state == QUEUED or state == SCHEDULED or state == RETRYING)
  and redis.call('EXISTS', KEYS[PURGED + 1], KEYS[PURGED + 2], KEYS[PURGED + 3], KEYS[PURGED + 4], KEYS[PURGED + 5]) > 0 then
  local purge_mark, purge_flow = unpack(redis.call('HMGET', count, 'purge_mark', 'purge_flow'))
  if sequence(job) <= tonumber(purge_mark or 0) and (purge_flow or '') == name then
    local letters = callers.from_job(string.match(job, '^%S+ %S+ (.*)') or '')
    return ended(CANCELLED, letters ~= '' and callers.digits(letters))
  end
end

local rate_count, rate_per, max_in_flight, paused_at, paused_by, paused_reason, stored_levels, quotas, flow_quotas, group_quotas,
  timetable_text, batch_text, burst, weight =
  unpack(redis.call('HMGET', conf, 'rate_count', 'rate_per', 'max_in_flight', 'paused', 'paused_by', 'paused_reason', 'flows',
    'quotas', 'flow_quotas', 'group_quotas', 'timetable', 'batch', 'burst', 'weight'))
local paused = tonumber(paused_at or 0)
local has_flows = levels ~= codes.NO_FLOWS and stored_levels == levels
local slot, offset_text, down, window, drain, rate =
  unpack(redis.call('HMGET', pace, 'slot', 'offset', 'down', 'window', 'drain', 'rate'))
local offset = tonumber(offset_text or 0)
local clock = now + offset
-- The bucket as lib/estimate.lua expects it.
local bucket = { now = now, offset = offset, rate_count = tonumber(rate_count or 1), rate_per = tonumber(rate_per or 1),
  burst = tonumber(burst or 1), paused = paused > 0, shown = true, has_flows = has_flows, batch = batch.rules(batch_text),
  unfinished = redis.call('HLEN', body) - redis.call('ZCARD', dead) - 1
    - math.max(tonumber(redis.call('HGET', count, 'scheduled') or 0), 0),
  leased = redis.call('ZCARD', leases), times = rate_count and timetable.open(conf, timetable_text, window, drain) }
local times = bucket.times
if member ~= '' then bucket.pool, bucket.weight = estimate.pool(pool.keys(KEYS), now), weight end
estimate.budgets(bucket, conf, charges_key)
estimate.open(bucket, pace, slot, rate, nil, down, quotas, departed)
local in_force = times and timetable.rate_at(times, bucket, now) or bucket

-- Returns the bounds of a flow or a group.
local function bounds_of(f, own_text)
  local ready, free = estimate.own(bucket, f)
  return { paused = f.settings.paused > 1 and f.settings.paused, missing = f.settings.missing and 1,
    keeps = (f.settings.disabled or 0) > 0 and redis.call('HGET', conf, 'flow_keep') == '1' and 1,
    note = string.match(own_text or '', '^[^\n]*\n([^\n]*)'),
    in_flight = f.state.in_flight - f.state.followers, max_in_flight = f.settings.max_in_flight, ready = ready, quota_frees = free,
    disabled = string.match(own_text or '', '^%S+ %S+ %S+ %S+ %S+ %S+ %S+ (%S+)') }
end
local of_flow, of_group, own_flow, configured, group_departed = {}, {}, {}, {}, nil
local function windows_of(text)
  local windows = quota.windows(text)
  return #windows > 0 and windows or nil
end
if has_flows then
  local loaded = flow.load(conf, flows, flow_settings, { name })
  own_flow = loaded[1]
  configured = own_flow.configured.rate_count > 0 and own_flow.configured or in_force
  own_flow.obeys, own_flow.departed = own_flow.settings, flow_departed
  own_flow.ready = flow.ready(own_flow.state, own_flow.settings, clock) - offset
  bucket.rivals = estimate.rivals(turn_queue, clock)
  bucket.flow_windows, bucket.group_windows = windows_of(flow_quotas), nil
  of_flow = bounds_of(own_flow, redis.call('HGET', flow_settings, name))
  if levels == codes.GROUPS then
    local first = PLACES + flow.PLACES
    local g = group.load(conf, KEYS, first, loaded)[1]
    g.obeys, g.ready, g.departed = g.settings, group.ready(g, clock) - offset, KEYS[first + 4]
    g.rivals = estimate.rivals(g.due, clock)
    bucket.group_windows, group_departed = windows_of(group_quotas), g.departed
    of_group = bounds_of(g, redis.call('HGET', KEYS[first + 2], g.name))
  end
end

local in_requests = batch.in_flight(leases, followers)

-- Returns how many ids are ahead of the job in its list. Ids of cancelled jobs, of other flows and of other priorities
-- are in between. Far back in a long list,
-- the position is therefore estimated from the sequence numbers at both ends.
local function place_in(list)
  local nth = redis.call('LPOS', list, id, 'MAXLEN', LOOKED_AT)
  if nth then return nth end
  local length = redis.call('LLEN', list)
  if length == 0 then return 0 end
  local head, tail = unpack(redis.call('HMGET', body, redis.call('LINDEX', list, 0), redis.call('LINDEX', list, -1)))
  local first, last, own = sequence(head), sequence(tail), sequence(job)
  local place = own - first
  if last > first then place = math.floor((own - first) / (last - first) * (length - 1) + 0.5) end
  return math.max(math.min(place, length - 1), 0)
end

local position, instant = -1, 0
if state == QUEUED then
  local list = flow.list_of(codec.mark(job))
  position = place_in(KEYS[PLACES + list])
  local came, aging = codec.came(job) or now, tonumber(redis.call('HGET', conf, 'aging') or 0)
  local is_first = codec.goes_first(job)
  for other = is_first and flow.PLACES or 1, flow.PLACES - 1 do
    if other ~= list then position = position + jobs_ahead.in_list(KEYS[PLACES + other], other, list, came, aging, body) end
  end
  if not is_first then position = position + jobs_ahead.due(later, now) end
  if rate_count then instant = math.floor(estimate.of_job(bucket, own_flow, position, id, reservation.from_job(job))) end
elseif state == SCHEDULED or state == RETRYING then
  instant = tonumber(due or now)
elseif state == IN_FLIGHT then
  instant = tonumber(redis.call('ZSCORE', leases, id) or now)
elseif state == DEAD then
  instant = tonumber(redis.call('ZSCORE', dead, id) or now)
end
local _, quota_frees = estimate.own(bucket, bucket)
add('state', state)
add('position', position)
add('instant', instant)
add('meta', stored)
add('body', job)
add('attempts', redis.call('HGET', tried, id))
add('now', now)
add('paused', paused)
add('paused_by', paused_by)
add('paused_reason', paused_reason)
add('in_flight', in_requests)
add('max_in_flight', tonumber(max_in_flight))
add('next_slot', math.floor(math.max(bucket.rate_at, now)))
add('quota_frees', quota_frees)
add('levels', has_flows and tonumber(levels))
add('offset', offset)
add('closed', times and timetable.opens(times, now) ~= now and 1)
add('opens', times and timetable.opens(times, math.max(now, tonumber(due or 0))) or now)
-- The state of the downstream, and the rate without it.
add('downstream', down)
add('rate_count', in_force.rate_count)
add('rate_per', in_force.rate_per)
of_flow.downstream = own_flow.state and own_flow.state.down and downstream.write(own_flow.state.down)
of_flow.rate_count, of_flow.rate_per = configured.rate_count, configured.rate_per

local latest = now + pacer.MAX_HORIZON
add('quotas', allowance.text(departed, quotas, now, offset, latest + offset))
if has_flows then of_flow.quotas = allowance.text(flow_departed, own_flow.settings.quotas or flow_quotas, now, offset, latest + offset) end
if group_departed then
  of_group.quotas = allowance.text(group_departed, own_flow.group.settings.quotas or group_quotas, now, offset, latest + offset)
end
local charged, default_reservation =
  charges.read_levels(conf, charges_key, now, offset, has_flows and own_flow or nil, own_flow.group, job)
local function add_budgets(of, level, shift)
  local text, frees = allowance.budgets(level, now, shift)
  of.budgets, of.budget_frees = text, frees
end
local of_bucket = {}
add_budgets(of_bucket, charged.own, offset)
add_budgets(of_flow, charged.flow, offset)
add_budgets(of_group, charged.group, offset)
named_reply.add_all(reply, '', of_bucket)
add('reserves', reservation.from_job(job))
named_reply.add_all(reply, 'flow_', of_flow)
named_reply.add_all(reply, 'group_', of_group)
if member ~= '' then
  local k, p = pool.keys(KEYS), bucket.pool or {}
  local most, pool_quotas = unpack(redis.call('HMGET', k.conf, 'max_in_flight', 'quotas'))
  local of_pool = {}
  if bucket.pool then of_pool.ready, of_pool.quota_frees = estimate.own(bucket, p) end
  of_pool.in_flight, of_pool.max_in_flight = pool.in_flight(KEYS, member, in_requests), tonumber(most)
  of_pool.downstream, of_pool.rate_count, of_pool.rate_per = p.said, p.rate_count, p.rate_per
  of_pool.quotas = allowance.text(k.departed, pool_quotas, now, 0, latest)
  local charged_to_pool = charges.read_pool(k, now, job, default_reservation)
  add_budgets(of_pool, charged_to_pool, charged_to_pool.offset)
  named_reply.add_all(reply, 'pool_', of_pool)
end
return reply
