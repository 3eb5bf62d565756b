-- placement.lua: decides where enqueue.lua puts jobs (see arrivals.lua): the flows of a batch, and their times. A bucket without flows has
-- one flow, "", with no stored state but its lists and its later (see flow.lua). With groups,
-- the turn queue has the groups.
--
-- The functions take the bucket of estimate.lua, with body and conf (their keys), and hurries (one of the jobs expires). placement.read
-- adds there (number of flows without the idle ones), idle (the idle flows), max_flows, and the fields of flows for estimate.lua.
-- With groups it also adds groups (see group.load; each with known) and groups_there. Their keys begin
-- behind group_keys.
--
-- A part is one flow of the batch: name; at, the number of keys before its places in
-- KEYS; lengths of its lists, as far as known; and the admitted jobs: pushed (priority -> ids), delayed (score, id, ...)
-- and first_due, the earliest of these. lengths, pushed and delayed are nil or false while they are empty. In a bucket with flows it
-- also has state and obeys (see flow.lua), known (the flow has a state), and the fields for estimate.lua.
--
--   …:q:<priority>:<flow>  list  ids that wait, in order; without flows the flow is ""
--   …:later:<flow>  zset  ids of delayed jobs and retries -> due time, microseconds
--   …:purged:<priority>:  list  ids that a purge moved out of a list and has not removed yet
--   …:purged_later:  zset  the same, out of later

--#include lib/callbacks.lua
--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/estimate.lua
--#include lib/flow.lua
--#include lib/flow_owners.lua
--#include lib/group.lua
--#include lib/idle.lua
--#include lib/jobs_ahead.lua
--#include lib/pacer.lua
--#include lib/quota.lua
--#include lib/reservation.lua

local placement = {
  KIND = 3, -- index of the kind in the reply of enqueue.lua, see codes.lua
  LOOKS = 100, -- entries of flows that may be idle, and one more for each new flow
}
-- Letters of places (see flow.lua), by priority: of all places but its list, and of the less important ones.
local OTHERS, LESS_IMPORTANT = { '[hnld]', '[knld]', '[khld]', '[khnd]' }, { '[hnld]', '[nld]', '[ld]', 'd' }

-- Finds the keys of quotas and of the pool at the end of KEYS, as `more` announces them. Returns the last key before them, the pool
-- as a scope (see estimate.lua), and the key before the keys of quotas; of_flows: how many of these are of flows and groups.
function placement.more_keys(last_key, more, of_flows, now)
  local pool_of, quota_keys = nil, nil
  if string.find(more, 'p', 1, true) then
    last_key = last_key - 3
    pool_of = estimate.pool({ conf = KEYS[last_key + 1], pace = KEYS[last_key + 2], departed = KEYS[last_key + 3] }, now)
  end
  if string.find(more, 'q', 1, true) then
    last_key = last_key - 3 - of_flows
    quota_keys = last_key
  end
  return last_key, pool_of, quota_keys
end

-- Reads the quotas of flows, or of groups. departed(n, f): the key of their departures, nil if the caller did not give it. Returns the
-- default windows, nil without any.
local function read_quotas(bucket, list, text, departed)
  local of_all, is_counted = (text or '') ~= '', false
  for n, f in ipairs(list) do
    local own = (f.obeys or f.settings).quotas
    if own then bucket.some_own_quotas = true end
    if own or of_all then
      is_counted, f.departed = true, departed(n, f) or nil
      if not f.departed then bucket.lacks_keys = true end
    end
  end
  return of_all and is_counted and bucket.quota_keys and quota.windows(text) or nil
end

local function read_groups(bucket, parts, conf)
  bucket.groups = group.load(conf, KEYS, bucket.group_keys, parts, bucket.group_names, bucket.group_of)
  local quotas, budgets = unpack(redis.call('HMGET', conf, 'group_quotas', 'group_budgets'))
  local before = bucket.quota_keys
  if (budgets or '') ~= '' and not before then bucket.lacks_keys = true end
  local departed = {}
  for n, part in ipairs(parts) do departed[part.group] = before and KEYS[before + 3 + #parts + n] end
  bucket.group_windows = read_quotas(bucket, bucket.groups, quotas, function(_, g) return departed[g] end)
  bucket.groups_there = redis.call('HLEN', bucket.groups.key)
  for _, g in ipairs(bucket.groups) do
    local s = g.settings
    g.known, g.obeys = not g.state.new, s
    g.ready = group.ready(g, bucket.now + bucket.offset) - bucket.offset
    g.rivals = estimate.rivals(g.due, bucket.now + bucket.offset)
    if g.rivals == 0 then g.nth, bucket.rivals = bucket.rivals, bucket.rivals + 1 end
  end
end

-- Finds idle flows and groups if there are new ones: the new ones take their places, when arrivals.forget is called.
local function find_idle(bucket, parts, new, conf, idle_key, flows, flow_settings)
  local spared = {}
  for _, g in ipairs(bucket.groups or {}) do
    if not g.known then new = new + 1 end
  end
  if new == 0 then return end
  for _, part in ipairs(parts) do spared['f' .. part.name] = true end
  for _, g in ipairs(bucket.groups or {}) do spared['g' .. g.name] = true end
  local clock = bucket.now + bucket.offset
  local found = idle.find(idle_key, clock, placement.LOOKS + new, conf, flows, flow_settings, KEYS, bucket.group_keys, spared)
  if not found then return end
  bucket.idle, bucket.there = found, bucket.there - #found.flows
  if bucket.groups then bucket.groups_there = bucket.groups_there - #found.groups end
end

-- Reads how many callbacks of the flows and of the groups wait: they take places, too.
local function read_callbacks(bucket, parts, names, counts)
  for n, there in ipairs(callbacks.counted(counts, 'f', names)) do parts[n].callbacks = there end
  local groups, of_groups = bucket.groups or {}, {}
  for n, g in ipairs(groups) do of_groups[n] = g.name end
  for n, there in ipairs(#groups > 0 and callbacks.counted(counts, 'g', of_groups) or groups) do groups[n].callbacks = there end
end

-- Returns how many places of a flow, or of a group, are taken.
function placement.taken(f) return f.state.unfinished + (f.callbacks or 0) end

-- Adds the flows of this script that had nothing to send to the rivals, in the order of their
-- jobs, including flows that wait for their rate or their downstream.
local function count_rivals(bucket, parts)
  local soon = bucket.now + pacer.RESERVED
  for n = 1, #parts do
    local part = parts[n]
    local filled = part.state.filled
    if filled == '.' or filled == '.d' or part.ready > soon then -- its lists are empty, or it may not send yet
      local row = part.group or bucket
      part.nth, row.rivals = row.rivals, row.rivals + 1
    end
  end
end

-- Reads the flows, and makes room for new ones.
function placement.read(bucket, parts, names, conf, flows, turn_queue, flow_settings, idle_key, callback_counts, flow_owners_key)
  local texts = redis.call('HMGET', flows, unpack(names))
  local of_all = redis.call('HMGET', conf, 'flow_rate_count', 'flow_rate_per', 'flow_burst', 'flow_capacity',
    'flow_max_in_flight', 'flow_must_exist', 'max_flows', 'flow_scheduled_capacity', 'group_scheduled_capacity', 'flow_quotas',
    'max_per_caller', 'flow_budgets', 'flow_keep')
  local must_exist, max_flows, flow_later, group_later, quotas, max_per_caller, budgets, keep =
    unpack(of_all, #flow.OF_ALL, #flow.OF_ALL + 7)
  bucket.flows, bucket.turn_queue = flows, turn_queue
  bucket.flow_later, bucket.group_later = tonumber(flow_later or 0), tonumber(group_later or 0)
  bucket.there, bucket.max_flows = redis.call('HLEN', flows), tonumber(max_flows)
  bucket.rivals = estimate.rivals(turn_queue, bucket.now + bucket.offset)
  local own_texts, clock = flow.own_texts(flow_settings, names), bucket.now + bucket.offset
  local settings, now, new = flow.all_settings(own_texts, of_all, #names), bucket.now, 0
  local before = bucket.quota_keys
  if (budgets or '') ~= '' and not before then bucket.lacks_keys = true end
  for n = 1, #parts do
    local part, state = parts[n], flow.read(texts[n])
    local obeys = state.down and flow.obeys(state, settings[n]) or settings[n]
    if keep == '1' and obeys.disabled > 0 then obeys.disabled = 0 end -- its jobs wait, as in a paused flow
    part.state, part.obeys, part.known, part.ready = state, obeys, not state.new, now
    if state.new then
      new = new + 1
      -- A flow without a stored state has empty places, unless its state was lost.
      if redis.call('EXISTS', unpack(KEYS, part.at + 1, part.at + flow.PLACES)) == 0 then state.filled = '.' end
    end
    if obeys.rate_count > 0 then
      part.ready = flow.ready(state, obeys, clock) - bucket.offset
    elseif state.down then
      part.ready = math.max(state.down.till - bucket.offset, bucket.now)
    end
  end
  bucket.flow_windows = read_quotas(bucket, parts, quotas, function(n) return before and KEYS[before + 3 + n] end)
  if must_exist == '1' and redis.call('HGET', conf, 'flow_needs_url') == '1' then
    for n = 1, #parts do parts[n].lacks_url = not flow.has_url(own_texts[n]) end
  end
  if bucket.group_keys then read_groups(bucket, parts, conf) end
  count_rivals(bucket, parts)
  if bucket.callbacks > 0 then read_callbacks(bucket, parts, names, callback_counts) end
  if new > 0 then bucket.flow_owners = flow_owners.open(flow_owners_key, flows, max_per_caller, bucket.there, new, now) end
  find_idle(bucket, parts, new, conf, idle_key, flows, flow_settings)
end

-- Returns the estimated departures of the next jobs of a flow, for the reply of enqueue.lua: the first one, with `ahead` jobs before it,
-- and estimate.step. Flows without a rate and a group share them, as long as no more jobs arrive.
function placement.next(bucket, part, ahead)
  local obeys = part.obeys
  if not obeys or obeys.rate_count > 0 or part.group or obeys.paused > 0 or part.state.down or obeys.quotas then
    return math.floor(estimate.first(bucket, part, ahead)), estimate.step(bucket, part)
  end
  local at = bucket.etas[ahead]
  if not at then
    at = math.floor(estimate.eta(bucket, part, ahead))
    bucket.etas[ahead], bucket.step_count, bucket.step_per = at, estimate.step(bucket, part)
  end
  return at, bucket.step_count, bucket.step_per
end

-- Appends the estimated departure of each of many equal jobs to the reply. aheads: for each flow, the number of jobs before its
-- first job. The number of a job's flow is the last of its width arguments.
function placement.report_positions(bucket, parts, aheads, job_count, first_job, width, reply)
  reply[placement.KIND] = codes.EACH_ETA
  for j = 1, job_count do
    local n = #parts > 1 and ARGV[first_job + j * width] + 0 or 1
    local reserves = reservation.from_sealed(ARGV[first_job + (j - 1) * width + 2])
    reply[#reply + 1], aheads[n] = math.floor(estimate.of_job(bucket, parts[n], aheads[n], '', reserves)), aheads[n] + 1
  end
end

-- Returns how many scheduled jobs a flow, or a group, may have; 0: as many as the bucket. most is the default for all; without one it is
-- the capacity.
function placement.scheduled_bound(f, most) return most > 0 and most or f.obeys.capacity end

local function is_scheduled_full(f, most)
  local bound = placement.scheduled_bound(f, most)
  return bound > 0 and f.state.scheduled >= bound
end

-- Returns whether a flow, or a group, has no room for at_once jobs, or, with 0, for the callback of a job that comes due later.
local function is_full(f, at_once)
  local bound = f.obeys.capacity
  if bound == 0 then return false end
  if at_once == 0 then return (f.callbacks or 0) >= bound end
  return placement.taken(f) + at_once > bound
end

-- Returns why a flow takes no jobs before an operator changes it: a code, or nil. sealed is a job that may name a URL, nil for any.
function placement.closed(part, sealed)
  if part.obeys.missing then return codes.FLOW_MISSING end
  if part.lacks_url and not (sealed and string.find(sealed, '^[^\n]*"u":"[^/?]')) then return codes.FLOW_LACKS_URL end
  return part.obeys.disabled > 0 and codes.FLOW_DISABLED or nil
end

-- Returns why a flow, if the bucket has flows, does not admit one more job, or at_once jobs:
-- a code, or nil. at_once is 0 for a job that comes due later. sealed is the job, if its caller's flows may be counted.
function placement.refusal(bucket, part, at_once, sealed)
  local g = part.group
  local closed = (part.obeys.paused > 0 or part.lacks_url) and placement.closed(part, sealed) -- a closed flow is paused too
  if closed then return closed end
  if g and is_full(g, at_once) then return codes.GROUP_FULL end
  if is_full(part, at_once) then return codes.FLOW_FULL end
  if at_once == 0 and g and is_scheduled_full(g, bucket.group_later) then return codes.GROUP_SCHEDULED_FULL end
  if at_once == 0 and is_scheduled_full(part, bucket.flow_later) then return codes.FLOW_SCHEDULED_FULL end
  if g and not g.known and bucket.groups_there >= bucket.max_flows then return codes.TOO_MANY_GROUPS end
  if not part.known and bucket.there >= bucket.max_flows then return codes.TOO_MANY_FLOWS end
  if not part.known and bucket.flow_owners and sealed and flow_owners.too_many(bucket.flow_owners, sealed) then
    return codes.TOO_MANY_OF_CALLER
  end
end

-- Returns whether all incoming jobs of flows (part.coming) fit. They are in ARGV behind first_job, with width arguments each.
function placement.all_fit(bucket, parts, job_count, first_job, width)
  local there, groups_there = bucket.there, bucket.groups_there
  for _, g in ipairs(bucket.groups or {}) do
    g.coming = 0
    if not g.known then groups_there = groups_there + 1 end
  end
  for n = 1, #parts do
    local part = parts[n]
    if placement.refusal(bucket, part, #part.coming) then return false end
    if not part.known then there = there + 1 end
    if part.group then part.group.coming = part.group.coming + #part.coming end
  end
  for _, g in ipairs(bucket.groups or {}) do
    if is_full(g, g.coming) then return false end
  end
  if there > bucket.max_flows or (groups_there or 0) > bucket.max_flows then return false end
  if not bucket.flow_owners then return true end
  local fit, no_callers = flow_owners.all_fit(bucket.flow_owners, job_count, first_job, width)
  if no_callers then bucket.flow_owners = nil end
  return fit
end

-- Returns, for each job whose reservation is larger than a budget, the budget and the reservation (see estimate.over_budget). The jobs are
-- in ARGV behind first_job, with width arguments each; the nth of these is the number of the flow.
function placement.over_budget(bucket, parts, job_count, first_job, width, nth)
  local which, amounts = {}, {}
  if not estimate.has_budgets(bucket) then return which, amounts end
  for j = 1, job_count do
    local at = first_job + (j - 1) * width
    local reserves, n = reservation.from_sealed(ARGV[at + 2]), #parts > 1 and ARGV[at + nth] + 0 or 1
    if reserves ~= '' then which[j], amounts[j] = estimate.over_budget(bucket, parts[n], reserves) end
  end
  return which, amounts
end

-- Counts jobs admitted to a flow, if the bucket has flows. sealed is the first of them.
function placement.count(bucket, part, at_once, for_later, sealed)
  if not part.known then
    bucket.there = bucket.there + 1
    if bucket.flow_owners then flow_owners.note(bucket.flow_owners, part.name, sealed) end
  end
  part.known = true
  flow.count(part, at_once, for_later, 0)
  local g = part.group
  if not g then return end
  if not g.known then bucket.groups_there = bucket.groups_there + 1 end
  g.known, g.changed = true, true
end

-- Records a job that comes due later. The bucket, the flow and its group keep the earliest time of this script.
function placement.delay(bucket, part, id, due_at)
  local delayed = part.delayed or {}
  delayed[#delayed + 1], delayed[#delayed + 2] = string.format('%d', due_at), id
  part.delayed = delayed
  part.first_due, bucket.first_due = math.min(part.first_due or due_at, due_at), math.min(bucket.first_due or due_at, due_at)
  local g = part.group
  if g then g.first_due = math.min(g.first_due or due_at, due_at) end
end

-- Returns the length of the list of a priority, including the batch. The state of a flow shows which lists are empty.
local function length_of(part, priority)
  local lengths, state = part.lengths, part.state
  if not lengths then
    lengths = state and not string.find(state.filled, '[khl]') and { 0, 0, false, 0 } or {}
    part.lengths = lengths
  end
  if not lengths[priority] then
    local may_wait = not state or string.find(state.filled, flow.LETTERS[priority], 1, true)
    lengths[priority] = may_wait and redis.call('LLEN', KEYS[part.at + priority]) or 0
  end
  return lengths[priority]
end

-- Returns how many jobs of the less important lists, and of later, precede a job of this priority that comes now (see jobs_ahead.lua).
-- Jobs of the batch do not.
local function older(bucket, part, priority)
  local known, state, at, later = part.older or {}, part.state, part.at, part.at + flow.PLACES
  if known[priority] then return known[priority] end
  local n, some = 0
  if state then
    some = string.find(state.filled, LESS_IMPORTANT[priority])
  else
    some = redis.call('EXISTS', unpack(KEYS, at + priority + 1, later)) > 0
  end
  if some then
    bucket.aging = bucket.aging or tonumber(redis.call('HGET', bucket.conf, 'aging') or 0)
    n = jobs_ahead.due(KEYS[later], bucket.now)
    for class = priority + 1, 4 do
      if length_of(part, class) > 0 then
        n = n + jobs_ahead.in_list(KEYS[at + class], class, priority, bucket.now, bucket.aging, bucket.body)
      end
    end
  end
  part.older, known[priority] = known, n
  return n
end

-- Returns how many waiting jobs outside its own list precede a job that comes now and is not of the batch. Its own list
-- has jobs of the batch. Usually the result is 0.
function placement.elsewhere(bucket, part, priority)
  local state = part.state
  if state then
    if not string.find(state.filled, OTHERS[priority]) then return 0 end
  elseif redis.call('EXISTS', unpack(KEYS, part.at + 1, part.at + flow.PLACES)) == 1 then
    return 0
  end
  local n = older(bucket, part, priority)
  for i = 1, priority - 1 do n = n + length_of(part, i) end
  return n
end

-- Returns how many waiting jobs, including the batch, precede a job that comes now. sealed: the job as it comes.
function placement.ahead(bucket, part, priority, sealed)
  local n = length_of(part, priority)
  if codec.comes_first(sealed) then return n end
  n = n + older(bucket, part, priority)
  local lengths = part.lengths
  for i = 1, priority - 1 do n = n + (lengths[i] or length_of(part, i)) end
  return n
end

-- Returns whether a job queued now would wait for more than `most` microseconds, at the earliest: nil if not, else the code and the
-- further values of the reply of enqueue.lua. sealed: the job as it comes.
function placement.too_late(bucket, part, priority, most, sealed)
  local ahead, reserves = placement.ahead(bucket, part, priority, sealed), reservation.from_sealed(sealed)
  local earliest = estimate.earliest(bucket)
  local at = estimate.of_job(earliest, part, ahead, '', reserves)
  if at == 0 then return codes.WAIT_TOO_LONG, ahead, 0, 0 end
  local latest = bucket.now + tonumber(most)
  if at <= latest then return nil end
  local held = estimate.has_budgets(bucket) and estimate.holding_budget(earliest, part, ahead, reserves, latest)
  if held then return codes.WAITS_FOR_BUDGET, string.format('%d ', ahead) .. held, at, at - latest end
  return codes.WAIT_TOO_LONG, ahead, at, at - latest
end

return placement
