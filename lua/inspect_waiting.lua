-- inspect_waiting.lua: counts the waiting jobs of some flows, and returns what holds the flows and their groups back. Writes nothing.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:settings    hash  settings of the bucket
-- KEYS[4]  …:pace    hash  offset: of the engine's clock
-- KEYS[5]  …:flows   hash  flow -> its state (see flow.lua)
-- KEYS[6]  …:flow_settings  hash  flow -> its own settings
-- KEYS[7]  …:charges  hash  charges to budgets (see charges.lua)
-- KEYS[8...]  for each flow its five places and the times of its departures: …:q:<priority>:<flow>, four lists, …:later:<flow>, a zset, and
--          …:departed:<flow>, a list; where flows are in groups then what group.load wants, and for each flow
--          …:departed_group:<group>, a list
-- ARGV[1]  levels: 1 if the bucket has flows, 2 if they are in groups, 0 if it has only the flow ""
-- ARGV[2...]  flows, 40 at most: 3 ms where all have rates, quotas and budgets
-- Returns  {now, offset of the engine's clock, then for each flow the fields of its jobs, the fields of the flow as a scope and, where
--          flows are in groups, the fields of its group as a scope}; times are of the server's clock, in microseconds:
--   fields of jobs
--     1   number of waiting jobs
--     2   number of waiting jobs with a later due time
--     3   number of retries among jobs 2
--     4   the earliest due time of jobs 2, 0 none
--     5   when the oldest first job of a list or of the later set was enqueued, 0 none or not read
--   fields of a scope
--     1   when the scope was paused, 0 not paused
--     2   of a disabled flow "time/reason", else ''
--     3   1 if the flow is missing (see flow.lua), else 0
--     4   requests in flight
--     5   max_in_flight, 0 none
--     6   rate_count and
--     7   rate_per: the configured rate, without the adaptive rate; 0 none
--     8   when the rate allows a departure, 0 at once
--     9   when the quotas allow it, 0 at once
--     10  when the budgets allow it, 0 at once
--     11  the state of its downstream (see downstream.lua), '' none
--     12  its quotas, "count microseconds;" for each; '' if they hold nothing back
--     13  the number of the quota that holds longest, from 1; 0 none
--     14  its budgets, "unit amount microseconds;" for each; '' if they hold nothing back
--     15  the number of the budget that holds longest, from 1; 0 none
-- Stores   nothing
-- Needs    Redis 7.0

--#include lib/budget.lua
--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/downstream.lua
--#include lib/estimate.lua
--#include lib/flow.lua
--#include lib/group.lua
--#include lib/quota.lua
--#include lib/reservation.lua
--#include lib/server_time.lua
--#include lib/text.lua

local body, meta, conf, pace, flows, flow_settings, charges = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local levels, names = ARGV[1], { unpack(ARGV, 2) }
local FIRST, EACH = 7, flow.PLACES + 1 -- number of keys before the flows' keys, and per flow
local MOST_READ = 1048576 -- bytes of bodies that one run reads
local SOME = 10 -- jobs of a later that are read

local has_flows, in_groups = levels ~= codes.NO_FLOWS, levels == codes.GROUPS
local now = server_time()
local offset = tonumber(redis.call('HGET', pace, 'offset') or 0)
local clock = now + offset
local flow_quotas, group_quotas, default_reservation =
  unpack(redis.call('HMGET', conf, 'flow_quotas', 'group_quotas', 'default_reservation'))
local reply = { now, offset }
local function add(value) reply[#reply + 1] = value end

-- The bucket as lib/estimate.lua expects it, to estimate scopes.
local bucket = { now = now, offset = offset, has_flows = has_flows }
estimate.budgets(bucket, conf, charges)
local function windows_of(words)
  local windows = quota.windows(words)
  return #windows > 0 and windows or nil
end
bucket.flow_windows, bucket.group_windows = windows_of(flow_quotas), windows_of(group_quotas)

local bytes = 0
-- Returns the older of a time and a job's enqueue time, and the job if its body may still be read.
local function older(came, id)
  local size = id and redis.call('HSTRLEN', body, id) or 0
  if size == 0 or bytes + size > MOST_READ then return came, nil end
  bytes = bytes + size
  local job = redis.call('HGET', body, id)
  local at = codec.came(job) or 0
  return (came == 0 or at > 0 and at < came) and at or came, job
end

-- Returns how many jobs that wait for a later time wait for a retry; estimated from the first SOME of them.
local function retries(later, after, n)
  if n == 0 then return 0 end
  local ids, found = redis.call('ZRANGEBYSCORE', later, after, '+inf', 'LIMIT', 0, SOME), 0
  for _, stored in ipairs(redis.call('HMGET', meta, unpack(ids))) do
    if stored and string.sub(stored, 1, 1) == codec.RETRYING then found = found + 1 end
  end
  return math.floor(n * found / #ids + 0.5)
end

-- Adds the jobs behind KEYS[before] to the reply, and returns the first of them. waiting: number of waiting jobs, nil if not counted.
local function add_jobs(before, waiting)
  local later, after, oldest, first = KEYS[before + flow.PLACES], '(' .. text(now), 0, nil
  local n = redis.call('ZCOUNT', later, after, '+inf')
  local listed = redis.call('ZCARD', later)
  for i = 1, flow.PLACES - 1 do
    local length = redis.call('LLEN', KEYS[before + i])
    if length > 0 then
      local job
      oldest, job = older(oldest, redis.call('LINDEX', KEYS[before + i], 0))
      first = first or job
      listed = listed + length
    end
  end
  local soonest = redis.call('ZRANGE', later, 0, 0)
  if soonest[1] then
    local job
    oldest, job = older(oldest, soonest[1])
    first = first or job
  end
  add(math.max(waiting or listed, n))
  add(n)
  add(retries(later, after, n))
  add(n > 0 and tonumber(redis.call('ZRANGEBYSCORE', later, after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]) or 0)
  add(oldest)
  return first
end

-- Adds to the reply what holds the next job of a flow or a group back.
local function add_scope(f, quotas, own_text, job)
  local rate_frees, quota_frees = estimate.own(bucket, f)
  local budget_frees, budgets, holding = 0, '', 0
  if f.budgets then
    local amounts = job and reservation.amounts(reservation.from_job(job))
    local costs = amounts and reservation.costs(f.budgets.rules, amounts, tonumber(default_reservation or 1))
    local last = clock
    for i, one in ipairs(f.budgets) do
      local at = costs and budget.ready({ one }, { costs[i] }, clock) or budget.leaves({ one }, 0, clock)
      if at > last then last, holding = at, i end
      budgets = budgets .. string.format('%s %.0f %.0f;', one.rule.unit, one.rule.amount, one.rule.window)
    end
    budget_frees = math.ceil(last - offset)
  end
  local is_disabled, own = f.settings.disabled > 0, own_text or ''
  add(not is_disabled and f.settings.paused > 1 and f.settings.paused or 0)
  add(is_disabled and string.match(own, '^%S+ %S+ %S+ %S+ %S+ %S+ %S+ (%S+)') or '')
  add(f.settings.missing and 1 or 0)
  add(f.state.in_flight - f.state.followers)
  add(f.settings.max_in_flight)
  add(f.configured.rate_count)
  add(f.configured.rate_per)
  add(rate_frees)
  add(quota_frees)
  add(budget_frees > now and budget_frees or 0)
  add(f.state.down and downstream.write(f.state.down) or '')
  add(quota_frees > now and (f.settings.quotas or quotas) or '')
  add(quota_frees > now and quota.holding(f.quotas, clock, clock + pacer.MAX_HORIZON) or 0)
  add(holding > 0 and budgets or '')
  add(holding)
end

if not has_flows then
  add_jobs(FIRST)
  return reply
end
local loaded = flow.load(conf, flows, flow_settings, names)
local own_texts, group_texts = flow.own_texts(flow_settings, names), {}
local before_groups = FIRST + #names * EACH
if in_groups then
  local groups = group.load(conf, KEYS, before_groups, loaded)
  for n, g in ipairs(groups) do
    g.obeys, g.ready, g.rivals = g.settings, group.ready(g, clock) - offset, 1
    group_texts[n] = g.name
  end
  group_texts = flow.own_texts(KEYS[before_groups + 2], group_texts)
  for n, g in ipairs(groups) do g.own_text = group_texts[n] end
  for n, f in ipairs(loaded) do f.group.departed = KEYS[before_groups + 2 + #groups + n] end
end
for n, f in ipairs(loaded) do
  local before, state = FIRST + (n - 1) * EACH, f.state
  local job = add_jobs(before, math.max(state.unfinished + state.scheduled - state.in_flight, 0))
  f.obeys, f.departed, f.ready = f.settings, KEYS[before + EACH], flow.ready(state, f.settings, clock) - offset
  add_scope(f, flow_quotas, own_texts[n], job)
  if in_groups then add_scope(f.group, group_quotas, f.group.own_text, job) end
end
return reply
