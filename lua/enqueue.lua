-- enqueue.lua: checks the limits and the capacity, and stores the admitted jobs, in one atomic step. A rejected job uses up no limit.
--
-- Jobs with the same id are the same job: the second call reports a duplicate. The first write is one that Redis refuses when it is out of
-- memory, so the script then changes nothing. A paused bucket admits jobs until it is full, and returns no times. In a bucket with flows
-- the flow and its group also need free capacity for the job. The script puts a flow that has something to send, and its group, into the
-- turn queue (see flow.lua). It admits the job of a schedule's fire and advances the schedule in the same run (see schedule.lua).
--
-- KEYS[1]  …:body   hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta   hash  id -> state of a job that was claimed once
-- KEYS[3]  …:settings   hash  settings of the bucket
-- KEYS[4]  …:pace   hash  last slot; offset of the engine's clock; largest, expiring: of the bodies (see queue.lua); window, drain
-- KEYS[5]  …:count  hash  last sequence number, jobs enqueued with a delay, bytes of dead letters
-- KEYS[6]  …:dead   zset  id -> time of death
-- KEYS[7]  …:seen   hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[8]  …:flows  hash  flow -> its state (see flow.lua)
-- KEYS[9]  …:due:   zset  the turn queue: flow -> its turn; where flows are in groups …:due_groups, group -> its turn
-- KEYS[10]  …:flow_settings  hash  flow -> its own settings
-- KEYS[11]  …:idle  zset  flow or group -> when it can be forgotten (see idle.lua)
-- KEYS[12] …:outbox  zset  events -> when to move them on (see outbox.lua)
-- KEYS[13] …:outbox_texts  hash  their texts
-- KEYS[14] …:callback_texts  hash  callbacks, which count against the capacity (see callbacks.lua)
-- KEYS[15] …:callback_counts  hash  number of callbacks of each flow and group (see callbacks.lua)
-- KEYS[16] …:expiries  zset  id -> when the job expires (see expiries.lua)
-- KEYS[17] …:flow_owners  zset  flow -> its caller (see flow_owners.lua)
-- KEYS[18...]  first for each limit key: …:limit:<limit>:<key>, its state: list (sliding_window_log) or string;
--          …:limit_keys:<limit>:<life>, string, how many keys there are (see limit_keys.lua); and …:limit:<limit>:overflow:<tier>, the
--          state of the key that the callers above max share;
--          then for each flow of the jobs its places: …:q:<priority>:<flow> for critical, high, normal, low: list ids that wait;
--          …:later:<flow>  zset  id -> due time, microseconds; where flows are in groups then what group.load wants;
--          with q then …:departed, …:leases, …:charges, where there are flows for each …:departed:<flow>, where they are in groups for each
--          …:departed_group:<group>; with p then conf, pace and departed of the pool;
--          of a fire, last …:schedules, …:schedule_due
-- ARGV[1]  channel: to wake dispatchers on
-- ARGV[2]  bucket: the message to publish
-- ARGV[3]  limits_rev: the revision of the limits that the caller has read. "fire": no limit applies, there is one job, and the last ARGV
--          is its fire (see schedule.lua)
-- ARGV[4]  limit_count: number of limits, L
-- ARGV[5]  job_count: number of jobs
-- ARGV[6]  alike: 1 if the jobs are alike: no due, cost 1, the same priority and limit keys, all ids different; 2 if their ids were also
--          made for this batch, which was not sent before; 3 if they are not alike, in a batch that was sent before; else 0
-- ARGV[7]  levels: 1 if the bucket has flows, 2 if they are in groups; else 0, and the only flow is ""; then q if there are the keys that
--          buckets with quotas, budgets or a timetable need, then p if there are the keys of the pool
-- ARGV[8]  flow_count: number of flows, each in KEYS once
-- ARGV[9...]  the names of the flows; for each limit key of KEYS[18...]: algorithm, a, b, full (see limits.lua), max, life (see
--          limit_keys.lua); then for each limit: 1 in shadow mode, else 0; then if the jobs are alike their common values:
--          their priority (1 critical, 2 high, 3 normal, 4 low) and for each limit the number of its key among KEYS[18...], 0 not asked;
--          then for each job: id, sealed job ("mark index envelope", no space after the mark; the mark is 11 characters of fingerprint,
--          then c or g: id from the caller or generated, then the priority: k, h, n or l; the index has three digits and counts the jobs
--          from 1; ~N after it: it expires N microseconds after its enqueue, letters: its caller, ^: it has a callback; see codec.lua); if
--          they are alike and there is more than one flow, the number of its flow; if they are not alike: priority, number of the flow, a
--          key number for each limit, due ("" now, "+N" in N microseconds, "N" at that time), cost, max_wait in microseconds ("" any)
-- Returns  {1} the bucket is not configured; {2} the limits have changed: read them again; {3} the bucket has flows, and the caller
--          assumes that it has none, or the reverse; {5} the keys of q are needed; {4, 0} another dispatcher was faster with the
--          fire, or the schedule is paused or was changed; {4, 1} it was skipped, as the previous job is unfinished; {0,
--          from, 1, for each flow: position of its first job, its eta in microseconds (0 paused), count, per: the others depart per/count
--          microseconds apart, and none before from; for each limit: remaining (-1 not asked), reset}: all are alike and queued, in order;
--          {0, from, 2, the same, and for each job its eta}: the same, if they depart unevenly; else {0, now, 0, and for each job:
--          code, position or state, eta in microseconds, wait in microseconds, and for each limit: verdict (0 allowed, 1 refused, 2
--          impossible, 3 not asked; 4 more if the shared key was asked), remaining, wait, reset}; for a job refused by limits the values
--          after the batch. code: see codes.lua; position is the number of jobs of the flow that depart first (see jobs_ahead.lua); eta is
--          0 while the bucket, the group or the flow is paused.
--          If something is full, position is the present number, eta the maximum, and wait 0 while it is paused; with DEAD_FULL and
--          DEAD_TOO_LARGE, a negative wait is a guess; with FLOW_DISABLED, position is the time, microseconds; with OVER_BUDGET it is
--          the budget (see estimate.over_budget), and eta the reservation; with WAIT_TOO_LONG it is the number of jobs ahead, eta the
--          departure, and wait the time until that is soon enough (both 0: unknown); with WAITS_FOR_BUDGET the same, and position is
--          a text with the number of jobs ahead and the budget (see estimate.holding_budget)
-- Stores   place of the job and its body, "base time" and the sealed job, until it is settled; its sequence number is base + index, so that
--          a batch needs one text; in a bucket with flows the flow's counts, and its turn; limit states expire by themselves
-- Needs    Redis 7.0

--#include lib/arrivals.lua
--#include lib/batch.lua
--#include lib/callers.lua
--#include lib/codes.lua
--#include lib/dedupe.lua
--#include lib/dlq.lua
--#include lib/estimate.lua
--#include lib/flow.lua
--#include lib/group.lua
--#include lib/limit_checks.lua
--#include lib/outbox.lua
--#include lib/placement.lua
--#include lib/refusal.lua
--#include lib/reservation.lua
--#include lib/schedule.lua
--#include lib/server_time.lua
--#include lib/timetable.lua

local body, meta, conf, pace, count = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local dead, seen, flows, turn_queue, flow_settings, idle_key = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local outbox_key, outbox_texts, callback_texts, callback_counts, expiries_key = KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16]
local flow_owners_key, FIRST_LIMIT_KEY = KEYS[17], 17
local channel, bucket_name, known_rev = ARGV[1], ARGV[2], ARGV[3]
local limit_count, job_count, alike = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1' or ARGV[6] == '2'
local sent_again = ARGV[6] == '3'
local levels, flow_count, more, pooled = ARGV[7], tonumber(ARGV[8]), string.sub(ARGV[7], 2), nil
if more ~= '' then levels, pooled = string.sub(levels, 1, 1), string.find(more, 'p', 1, true) end
local FIRST_ARG = 8

-- Redis searches for each field from the first one on, so rarely needed fields are read elsewhere.
local capacity, scheduled_capacity, rate_count, rate_per, limits_rev, burst, shed_normal, quotas, paused, stored_levels, expires,
  timetable_text, batch_text, events, budgets, some_have_budgets, weight =
  unpack(redis.call('HMGET', conf, 'capacity', 'scheduled_capacity', 'rate_count', 'rate_per', 'limits_rev', 'burst', 'shed_normal',
    'quotas', 'paused', 'flows', 'expires', 'timetable', 'batch', 'events', 'budgets', 'own_budgets', pooled and 'weight' or 'capacity'))
if not capacity then return { 1 } end
if known_rev ~= 'fire' and (limits_rev or '') ~= known_rev then return { 2 } end
if (stored_levels or codes.NO_FLOWS) ~= levels then return { 3 } end
local has_flows = levels ~= codes.NO_FLOWS
capacity, scheduled_capacity = tonumber(capacity), tonumber(scheduled_capacity)

-- The maximum number of jobs for each priority: a percentage of the capacity.
local bounds = { capacity, false, math.ceil(capacity * tonumber(shed_normal or 100) / 100), false }
local function bound_of(priority)
  if not bounds[priority] then
    local percent = redis.call('HGET', conf, priority == 2 and 'shed_high' or 'shed_low')
    bounds[priority] = math.ceil(capacity * tonumber(percent or 100) / 100)
  end
  return bounds[priority]
end

local now = server_time()

local last_key, fire, over = #KEYS, nil, nil
if known_rev == 'fire' then last_key, fire, over = schedule.begin(KEYS, ARGV, now, body, dead) end
if over then return over end

local names, group_names, group_of, group_keys, pool_of, quota_keys = {}, nil, nil, nil, nil, nil
for n = 1, flow_count do names[n] = ARGV[FIRST_ARG + n] end
if more ~= '' then last_key, pool_of, quota_keys = placement.more_keys(last_key, more, tonumber(levels) * flow_count, now) end
local wants_more = (timetable_text or '') ~= '' or (quotas or '') ~= '' or (budgets or '') ~= '' or some_have_budgets
if not quota_keys and known_rev ~= 'fire' and wants_more then return { 5 } end
if levels == codes.GROUPS then
  group_names, group_of = group.names(names)
  group_keys = last_key - 2 - #group_names
end
local first_place = (group_keys or last_key) - flow.PLACES * flow_count
local key_count = (first_place - FIRST_LIMIT_KEY) / limit_checks.KEYS_OF_LIMIT
local asked = limit_checks.open(now, FIRST_LIMIT_KEY, key_count, FIRST_ARG + flow_count, limit_count)
local first_job = FIRST_ARG + flow_count + key_count * limit_checks.ARGS_OF_LIMIT + limit_count
local common = first_job
if alike then first_job = first_job + 1 + limit_count end
local width = alike and (flow_count > 1 and 3 or 2) or 7 + limit_count
local args, ids = ARGV, {}
for j = 1, job_count do ids[j] = args[first_job + (j - 1) * width + 1] end
local known, settled = redis.call('HMGET', body, unpack(ids)), redis.call('HMGET', seen, unpack(ids))

local seq, scheduled, dead_bytes = unpack(redis.call('HMGET', count, 'seq', 'scheduled', 'dead_bytes'))
seq, scheduled = tonumber(seq or 0), math.max(tonumber(scheduled or 0), 0)
local slot, offset, largest, was_expiring, down, window, drain, rate =
  unpack(redis.call('HMGET', pace, 'slot', 'offset', 'largest', 'expiring', 'down', 'window', 'drain', 'rate'))

-- Admitted jobs may always become dead letters, so their number is bounded here.
local dead_count, dead_full, dead_there, dead_most = redis.call('ZCARD', dead), nil, nil, nil
if dead_count > 0 then dead_full, dead_there, dead_most = dlq.full_of(conf, dead_count, tonumber(dead_bytes or 0), capacity) end

local there = redis.call('HLEN', body) -- what follows: see placement.lua and estimate.lua
local bucket = { now = now, offset = tonumber(offset or 0), rate_count = tonumber(rate_count), rate_per = tonumber(rate_per),
  burst = tonumber(burst or 1), paused = paused, has_flows = has_flows, group_names = group_names, group_of = group_of,
  group_keys = group_keys, etas = {}, body = body, conf = conf, pool = pool_of, weight = weight, quota_keys = quota_keys,
  unfinished = there - dead_count - scheduled, callbacks = redis.call('HLEN', callback_texts) }
local dead_shares = dead_full and dlq.shares(count, dead_full, dead_there, dead_most)
if dead_full then refusal.dead(bucket, dead, dead_full, dead_there, dead_most, conf) end
if (batch_text or '') ~= '' then bucket.batch = batch.rules(batch_text) end
if (timetable_text or '') ~= '' or drain then bucket.times = timetable.open(conf, timetable_text, window, drain) end
if bucket.times then bucket.leased = quota_keys and redis.call('ZCARD', KEYS[quota_keys + 2]) or 0 end
if quota_keys then estimate.budgets(bucket, conf, KEYS[quota_keys + 3]) end
estimate.open(bucket, pace, slot, rate, rate_count .. '/' .. rate_per, down, quota_keys and quotas,
  KEYS[(quota_keys or 0) + 1])
local parts = {}
for n = 1, flow_count do
  parts[n] = { name = names[n], at = first_place + (n - 1) * flow.PLACES, state = false, obeys = false, known = false, ready = now,
    pushed = false }
end
if has_flows then
  placement.read(bucket, parts, names, conf, flows, turn_queue, flow_settings, idle_key, callback_counts, flow_owners_key)
end
if bucket.lacks_keys and known_rev ~= 'fire' then return { 5 } end

local over_budget, over_amount = placement.over_budget(bucket, parts, job_count, first_job, width, alike and 3 or 4)
local new = arrivals.open(bucket, there, largest, was_expiring)
-- Everything is decided when this is called. It writes; what it still reads refuses no job.
local function write()
  arrivals.write_bodies(new, body, pace, conf, expiries_key, expires)
  redis.call('HSET', count, 'seq', string.format('%d', seq), 'scheduled', string.format('%d', scheduled))
  local wake = arrivals.write(new, bucket, parts, idle_key)
  limit_checks.write(asked)
  if wake then redis.pcall('PUBLISH', channel, bucket_name) end
end

-- The usual case: new jobs that are alike, with room and tokens for all of them.
-- They are decided together, which costs 33 % of deciding them one by one.
local function all_in()
  if not alike or dead_full or bucket.times or next(over_budget) then return false end
  if bucket.unfinished + bucket.callbacks + job_count > bound_of(tonumber(args[common + 1])) then return false end
  for j = 1, job_count do
    if known[j] or settled[j] then return false end
  end
  if flow_count == 1 then
    parts[1].coming = ids
  else
    for n = 1, flow_count do parts[n].coming = {} end
    for j = 1, job_count do
      local coming = parts[args[first_job + j * 3] + 0].coming
      coming[#coming + 1] = ids[j]
    end
  end
  if has_flows and not placement.all_fit(bucket, parts, job_count, first_job, width) then return false end
  return limit_checks.all_allow(asked, common + 1, job_count, limit_count > 0 and callers.from_job(args[first_job + 2]) or '')
end

if all_in() then
  local reply, priority = { 0, math.floor(bucket.from), codes.EVENLY }, tonumber(args[common + 1])
  limit_checks.take_all(asked, common + 1, job_count, reply, 3 + 4 * flow_count)
  arrivals.add_all(new, bucket, ids, string.format('%d %d ', seq, now), first_job, width)
  seq = seq + job_count
  for n = 1, flow_count do
    local part = parts[n]
    part.pushed = { [priority] = part.coming }
    if has_flows then placement.count(bucket, part, #part.coming, 0, args[first_job + 2]) end
  end
  write()
  bucket.unfinished = bucket.unfinished + job_count - 1
  local aheads = {}
  for n = 1, flow_count do
    local part, to = parts[n], 4 * n
    aheads[n] = placement.elsewhere(bucket, part, priority) + new.waited[n]
    reply[to], reply[to + 1], reply[to + 2], reply[to + 3] = aheads[n], placement.next(bucket, part, aheads[n])
  end
  if estimate.leaps(bucket) then placement.report_positions(bucket, parts, aheads, job_count, first_job, width, reply) end
  return reply
end

-- One by one.

-- Returns the state of a job that exists or existed, as a code of State of the Go package.
local function state_of(part, id)
  local stored = redis.call('HGET', meta, id)
  if stored then return tonumber(string.sub(stored, 1, 1)) end
  if redis.call('ZSCORE', KEYS[part.at + flow.PLACES], id) then return 2 end
  return 1
end

local reply, n, fresh, fresh_state = { 0, now, codes.ONE_BY_ONE }, placement.KIND, {}, {}
local floor, ceil = math.floor, math.ceil
local function answer(code, position, at, wait)
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = code, position, floor(at), wait == 0 and 0 or ceil(wait)
end
local function not_asked()
  for i = 1, limit_count do
    local to = n + 4 * i
    reply[to + 1], reply[to + 2], reply[to + 3], reply[to + 4] = 3, 0, 0, 0
  end
end

-- Replies for a job whose id is known, and returns whether it is known; see callers.known.
local function there_already(part, id, sealed, fingerprint, existing, ended)
  if not existing and dedupe.is_free(id, ended) and not (sent_again and string.sub(ended, 1, 11) == fingerprint) then return false end
  local code, state = callers.known(existing, ended, sealed, fingerprint, now)
  if not code then return false end
  if code == codes.DUPLICATE then state = state or fresh[id] and (fresh_state[id] or 1) or state_of(part, id) end
  answer(code, state or 0, 0, 0)
  return true
end

-- Jobs refused by limits: at, their index in the reply; numbers_at, the index before their key numbers; cost; jobs admitted before.
local limited, admitted = {}, 0
local box = (events or '') ~= '' and outbox.open(events, outbox_key, outbox_texts, count, now)
-- The bound of the whole bucket that is reached.
local IS_FULL = { [codes.BUCKET_FULL] = 'capacity', [codes.DEAD_FULL] = 'dead_capacity', [codes.DEAD_TOO_LARGE] = 'dead_bytes' }

-- Replies for a job without room: `full` is the reason.
local function refuse(id, full, part, bound, sealed)
  bucket.scheduled, bucket.scheduled_capacity = scheduled, scheduled_capacity
  answer(full, refusal.reply(full, bucket, part, bound, sealed))
  if box and IS_FULL[full] and not outbox.is_own(id) then outbox.note(box, 'bucket.full', nil, 1, { reason = IS_FULL[full] }) end
end

-- Records an admitted job. base and prefix: the beginning of the previous bodies, usually the same for all.
local base, prefix
local function admit(j, part, priority, due_at)
  admitted = admitted + 1
  local id, sealed = ids[j], args[first_job + (j - 1) * width + 2]
  -- A job due later gets the number of the previous one: a purge
  -- identifies the earlier jobs by their numbers.
  local number = seq
  if due_at then
    -- Capital letters mark jobs that count against scheduled_capacity.
    sealed = string.sub(sealed, 1, 11) .. string.upper(string.sub(sealed, 12, 12)) .. string.sub(sealed, 13)
    scheduled = scheduled + 1
    if has_flows then placement.count(bucket, part, 0, 1, sealed) end
    placement.delay(bucket, part, id, due_at)
    answer(codes.SCHEDULED, 0, estimate.held(bucket, part) and 0 or due_at, 0)
  else
    local ahead = placement.ahead(bucket, part, priority, sealed)
    answer(codes.QUEUED, ahead, estimate.of_job(bucket, part, ahead, id, reservation.from_sealed(sealed)), 0)
    seq = seq + 1
    number = seq
    bucket.unfinished = bucket.unfinished + 1
    if has_flows then placement.count(bucket, part, 1, 0, sealed) end
    local lists = part.pushed or {}
    local pushed = lists[priority] or {}
    pushed[#pushed + 1] = id
    part.pushed, lists[priority], part.lengths[priority] = lists, pushed, part.lengths[priority] + 1
  end
  if number - j ~= base then base, prefix = number - j, string.format('%d %d ', number - j, now) end
  local stored = prefix .. sealed
  arrivals.add(new, bucket, id, stored, sealed)
  fresh[id] = stored
  if due_at then fresh_state[id] = 2 end
end

for j = 1, job_count do
  local at = first_job + (j - 1) * width
  local id = ids[j]
  local trait, of, numbers_at = common, flow_count > 1 and at + 3, common + 1
  if not alike then trait, of, numbers_at = at + 2, at + 4, at + 4 end
  local priority, part = args[trait + 1] + 0, parts[of and args[of] + 0 or 1]
  local bound = bound_of(priority)
  local due, cost, max_wait = '', 1, ''
  if not alike then
    local rest = numbers_at + limit_count
    due, max_wait = args[rest + 1], args[rest + 3]
    if limit_count > 0 then cost = tonumber(args[rest + 2]) end
  end

  local existing, ended = known[j] or fresh[id], settled[j]
  if (existing or ended) and there_already(part, id, args[at + 2], string.sub(args[at + 2], 1, 11), existing, ended) then
    not_asked()
  elseif has_flows and placement.closed(part, args[at + 2]) then -- no limit and no bound matters until an operator changes it
    not_asked()
    answer(placement.closed(part, args[at + 2]), part.obeys.disabled, 0, 0)
  elseif over_budget[j] then
    not_asked()
    answer(codes.OVER_BUDGET, over_budget[j], over_amount[j], 0)
  else
    local due_at
    if due ~= '' then
      due_at = tonumber(due)
      if string.sub(due, 1, 1) == '+' then due_at = now + due_at end
      if due_at <= now then due_at = nil end
    end
    local full = has_flows and placement.refusal(bucket, part, due_at and 0 or 1, args[at + 2])
    if due_at then
      if bucket.callbacks >= capacity then full = codes.BUCKET_FULL end
      if scheduled >= scheduled_capacity then full = codes.SCHEDULED_FULL end
    elseif bucket.unfinished + bucket.callbacks >= bound then
      full = bucket.unfinished + bucket.callbacks < capacity and codes.SHED or codes.BUCKET_FULL
    end
    full = dead_full and not dlq.may_have(dead_shares, callers.from_job(args[at + 2])) and dead_full or full
    local late, ahead, late_at, excess
    if max_wait ~= '' and not full and not due_at then
      late, ahead, late_at, excess = placement.too_late(bucket, part, priority, max_wait, args[at + 2])
    end
    local worst, longest = codes.ALLOWED, 0
    if limit_count > 0 then
      worst, longest = limit_checks.ask(asked, numbers_at, cost, not full and not late, reply, n, callers.from_job(args[at + 2]))
    end
    if worst == codes.NEVER_ALLOWED then
      answer(codes.IMPOSSIBLE, 0, 0, 0)
    elseif worst == codes.REFUSED then
      answer(codes.LIMITED, 0, 0, longest)
      limited[#limited + 1] = { at = n, numbers_at = numbers_at, cost = cost, admitted = admitted }
    elseif full then
      refuse(id, full, part, bound, args[at + 2])
    elseif late then
      answer(late, ahead, late_at, excess)
    else
      admit(j, part, priority, due_at)
    end
  end
  n = n + 4 + 4 * limit_count
end

-- A job admitted later may have spent tokens that a refused job waits for.
for _, one in ipairs(limited) do
  if one.admitted < admitted then
    n = one.at
    answer(codes.LIMITED, 0, 0, select(2, limit_checks.ask(asked, one.numbers_at, one.cost, false, reply, n, '')))
  end
end

if box then outbox.write(box) end
if new.size > 0 then
  write()
else
  limit_checks.write(asked)
  arrivals.forget(bucket, idle_key) -- even if that is not enough: the next run finds more
end
if fire and reply[placement.KIND + 1] <= codes.DUPLICATE then schedule.finish(fire, 'fired') end -- it is admitted, or was before
return reply
