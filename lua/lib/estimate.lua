-- estimate.lua: estimates when jobs depart. One calculation serves receipts, max_wait and Retry-After (enqueue.lua), the state of
-- a job and why it waits (inspect_job.lua), and a bucket (inspect_bucket.lua).
--
-- It considers the rate, burst, quotas and budgets of the bucket, of its pool, and of a job's group and flow; holds; adaptive
-- rates; the timetable and an even rate until a finish; the turns of other flows that have something to send now; and batches, as full
-- as recent ones, or else as full as allowed.
-- Of the other buckets of a pool it counts those that have something to send now. For the whole estimate, each takes its share by weight,
-- or by its rate if that is less.
-- It ignores what cannot be known: when requests in flight end, if an in-flight bound is reached; buckets of the pool that start to
-- send later; and jobs that arrive, or come due, later and go first (see jobs_ahead.lua). So the estimate is the earliest time. An even
-- rate until a finish is computed from the present jobs. It rises with later arrivals, so that estimate is the latest time;
-- estimate.earliest returns the earliest.
--
-- A scope is a bucket, a pool, a group or a flow. It has these fields. Times are of the server's clock:
--   from      no departure is earlier: the end of its hold, or now
--   rate_at   when its rate allows the next departure
--   next      the same without any burst left, but not before `from`
--   interval  between two departures; nil without a rate
--   back      how much earlier than `next` departures may be: all but one of the burst
--   quotas    see quota.lua; nil without any
--   budgets   see budget.lua; nil without any. Each job is assumed to reserve as much as recent ones, except in estimate.of_job
--   offset    of the clock of these quotas and budgets
--
-- A bucket also has now, rate_count, rate_per and burst (of its settings), paused, unfinished (its jobs, without the estimated
-- job), times (see timetable.lua), batch (see batch.rules), together (jobs per request), leased (if there is a
-- timetable), pool, weight (its text in that pool) and shown (rate_at is wanted). estimate.open adds: count and per of the
-- rate to use (nil: the settings' rate), least (the adaptive interval, nil none), simple (only a rate applies), and what
-- estimate.earliest needs. A bucket with flows has has_flows, rivals (number of flows, or groups, with something to send now, including
-- the job's), flow_windows and group_windows (see quota.windows; nil without quotas), flow_rules and group_rules (see budget.rules;
-- nil without budgets), budget_burst, charges (the key of the charges), and some_own_quotas (whether one has own quotas).
-- A pool has weights and rates (see pool.lua); for each departure of the bucket it has `shared` departures.
-- A flow, or a group, has state, obeys, ready (see flow.ready; by the server's clock) and, if there are quotas, the key `departed`.
-- A flow has its group. A group has rivals. If the flow or group was not among the rivals before the job came, nth is the number of
-- rivals before it in each round of turns.

--#include lib/budget.lua
--#include lib/downstream.lua
--#include lib/pacer.lua
--#include lib/quota.lua
--#include lib/reservation.lua
--#include lib/timetable.lua

local estimate = {}

local function later(a, b) return a > b and a or b end

-- Returns how many requests the bucket has to send, including the estimated job's.
function estimate.to_leave(b)
  if b.is_fastest then return math.huge end
  return math.ceil((b.unfinished - b.leased + 1) / (b.together or 1))
end

-- Adds the departure times that the rate allows to a bucket or a pool. pace is its key; slot, rate and down are fields of that; own_rate
-- is the rate of its settings, as a text.
local function pace_of(s, pace, slot, rate, own_rate, down)
  local now, offset, count, per, from, times = s.now, s.offset, s.rate_count, s.rate_per, s.now, s.times
  if times then
    local last = tonumber(redis.call('HGET', pace, 'last') or slot or 0) - offset
    if s.batch then s.together = timetable.together(times, s.batch) end
    count, per = timetable.pace(times, s, now, last, estimate.to_leave(s))
  end
  local said = down and downstream.read(down)
  if said then
    from = later(said.till - offset, now)
    if said.rate_count > 0 then
      s.least = said.rate_per / said.rate_count
      if s.least * count > per then count, per = said.rate_count, said.rate_per end
    end
  end
  local interval = per / count
  local back, next_at = (s.burst - 1) * interval, now
  if times then back = 0 end
  if not slot then
    if not times then next_at = now + interval + back end
  else
    next_at = slot - offset + interval
    local was_count, was_per
    if rate ~= own_rate or times or said then was_count, was_per = string.match(rate or '', '^(%d+)/(%d+)$') end
    if was_count and was_count * per ~= count * was_per then -- see pacer.open
      local behind = later(now, tonumber(redis.call('HGET', pace, 'last') or slot) - offset)
      next_at = behind + later(slot - offset + was_per / was_count - behind, 0) * interval * was_count / was_per
    end
  end
  if s.shown then s.rate_at = next_at - back end
  if count ~= s.rate_count or per ~= s.rate_per then s.count, s.per = count, per end
  s.interval, s.back, s.from, s.next = interval, back, from, next_at > from and next_at or from
end

local function quotas_of(key, text)
  if (text or '') == '' then return nil end
  return quota.open(key, quota.windows(text), 1)
end

-- Adds the budgets of a bucket, its flows and its groups. conf is the key of the settings, charges the key of the charges.
function estimate.budgets(b, conf, charges)
  local own, of_flow, of_group, some_have_own, burst =
    unpack(redis.call('HMGET', conf, 'budgets', 'flow_budgets', 'group_budgets', 'own_budgets', 'budget_burst'))
  local function rules_of(text) return ((text or '') ~= '' or some_have_own) and budget.rules(text or '', burst) or nil end
  b.charges, b.flow_rules, b.group_rules, b.budget_burst = charges, rules_of(of_flow), rules_of(of_group), burst
  b.conf = conf
  if (own or '') == '' then return end
  local text, first = unpack(redis.call('HMGET', charges, 'b', 'first'))
  b.budgets, b.waits_first = budget.open(budget.rules(own, burst), text, b.now + b.offset), reservation.first(first, b.now)
end

-- Returns the pool of a bucket as a scope, by its keys (see pool.keys); nil if it is not configured. said is its downstream's text.
function estimate.pool(keys, now)
  local rate_count, rate_per, burst, quotas, budgets, budget_burst =
    unpack(redis.call('HMGET', keys.conf, 'rate_count', 'rate_per', 'burst', 'quotas', 'budgets', 'budget_burst'))
  if not rate_count then return nil end
  local slot, rate, down, weights, rates = unpack(redis.call('HMGET', keys.pace, 'slot', 'rate', 'down', 'weights', 'rates'))
  local p = { now = now, offset = 0, rate_count = tonumber(rate_count), rate_per = tonumber(rate_per), burst = tonumber(burst), said = down,
    weights = weights, rates = rates, shared = 1, shown = true }
  pace_of(p, keys.pace, slot, rate, rate_count .. '/' .. rate_per, down)
  p.quotas = quotas_of(keys.departed, quotas)
  if (budgets or '') ~= '' then
    local stored, offset = unpack(redis.call('HMGET', keys.pace, 'charges', 'charged_offset'))
    p.budget_offset = tonumber(offset or 0)
    p.budgets = budget.open(budget.rules(budgets, budget_burst), stored, now + p.budget_offset)
  end
  return p
end

-- Adds the share of the other buckets to a pool. The sums of the pool include this bucket if it had something to send before.
local function share(b, p)
  local weight, of_all, had = math.max(tonumber(b.weight or 1), 1), pacer.RATES / p.interval, b.unfinished > 0
  local weights, rates = p.weights - (had and weight or 0), p.rates - (had and math.min(pacer.RATES / b.interval, of_all) or 0)
  if weights > 0 then p.shared = of_all / math.max(of_all * weight / (weights + weight), of_all - math.max(rates, 0)) end
end

-- Lowers the rate of the bucket to its share of the pool, if that is less.
local function bound_by_pool(b, p)
  if p.interval * p.shared > b.interval then b.count, b.per = p.count or p.rate_count, (p.per or p.rate_per) * p.shared end
end

-- Prepares a bucket for estimates. See pace_of; quotas is the text of its quotas, departed the key of its departures.
function estimate.open(b, pace, slot, rate, own_rate, down, quotas, departed)
  pace_of(b, pace, slot, rate, own_rate, down)
  if quotas and quotas ~= '' then b.quotas = quotas_of(departed, quotas) end
  local p = b.pool
  b.simple = not (p or b.times or b.quotas or b.budgets)
  if p then
    if p.weights and p.weights ~= '0' then share(b, p) end
    bound_by_pool(b, p)
  end
  if b.times then b.opened = { pace, slot, rate, own_rate, down } end
end

-- Returns the bucket for estimates of the earliest departure: before a finish it uses the allowed rate, not the even one.
function estimate.earliest(b)
  if not b.opened then return b end
  local e = b.fastest
  if not e then
    e = {}
    for field, value in pairs(b) do e[field] = value end
    e.is_fastest, e.start, e.count, e.per = true, nil, nil, nil
    pace_of(e, unpack(b.opened, 1, 5))
    if e.pool then bound_by_pool(e, e.pool) end
    b.fastest = e
  end
  e.unfinished, e.job = b.unfinished, b.job
  return e
end

-- Returns how many requests a number of jobs makes.
function estimate.requests(b, jobs)
  return b.batch and math.floor(jobs / (b.together or b.batch.size)) or jobs
end

-- Returns when the rate of a scope allows a departure with n before it, if the first of them goes at `start`.
local function by_rate(s, n, start)
  if not s.interval then return start end
  local at = later(s.next, start) + n * s.interval - s.back
  return at > start and at or start
end

-- Returns the same under the quotas of a scope. `at` is the time that everything else allows.
local function by_quotas(s, n, start, at)
  if not s.quotas then return at end
  local each, offset = n > 0 and (at - start) / n or 0, s.offset
  return later(at, quota.leaves(s.quotas, n, start + offset, each, s.now + offset + pacer.MAX_HORIZON) - offset)
end

-- Returns the same under its quotas and its budgets. b: the bucket of the job, nil for any bucket of a pool.
local function by_use(s, n, start, at, b)
  if s.budgets then
    local shift, job, rules = s.budget_offset or s.offset, b and b.job, s.budgets.rules
    local first = b and s.waits_first
    if first and job and first.id == job.id then first = nil end
    at = later(at, budget.leaves(s.budgets, n, start + shift, job and reservation.costs(rules, job.amounts, b.default_reservation),
      first and reservation.costs(rules, first.amounts, 1)) - shift)
  end
  return by_quotas(s, n, start, at)
end

-- Returns when the next request of the bucket may depart.
local function start_of(b)
  if not b.start then
    local p, at = b.pool, by_rate(b, 0, b.from)
    if p then at = by_use(p, 0, at, later(at, by_rate(p, 0, p.from))) end
    at = by_use(b, 0, at, at)
    b.start = b.times and timetable.opens(b.times, at) or at
  end
  return b.start
end

-- Returns when the request with n others before it departs from the bucket; 0 if unknown.
function estimate.of_bucket(b, n)
  if b.paused then return 0 end
  if b.simple then
    local at = b.next + n * b.interval - b.back
    return at > b.from and at or b.from
  end
  local start, p, times = start_of(b), b.pool, b.times
  if start == 0 then return 0 end
  local at
  if times then
    at = timetable.leaves(times, b, start, n, later(b.least or 0, p and p.interval * p.shared or 0), estimate.to_leave(b))
    if at == 0 then return 0 end
  else
    at = by_rate(b, n, start)
  end
  if p then
    local in_all = math.floor(n * p.shared)
    at = by_use(p, in_all, start, later(at, by_rate(p, in_all, start)), b)
  end
  at = by_use(b, n, start, at, b)
  return times and timetable.opens(times, at) or at
end

-- Returns how many flows, or groups, of a turn queue have something to send now. clock is the engine's. Turns up to a second ahead count:
-- the flow may be reserved by a claim, just served, or waiting for its rate for less than a second.
function estimate.rivals(turn_queue, clock)
  return redis.call('ZCOUNT', turn_queue, '-inf', string.format('%d', clock + pacer.RESERVED))
end

-- Returns the budget that allows a job of a flow latest, after `latest`: "scope unit amount window", how much of it is free now, how much
-- the job reserves, and 1 if the budget holds the job by itself, 0 if the jobs ahead use it up first. Returns nil if none holds it that
-- long. Call it after estimate.of_job for the same job, with the same ahead and text.
function estimate.holding_budget(b, f, ahead, text, latest)
  local g, p, amounts, words = f.group, b.pool, reservation.amounts(text), nil
  local scopes = { 'bucket', b, 'flow', f, 'group', g or {}, 'pool', p or {} }
  for _, is_alone in ipairs({ 1, 0 }) do
    for i = 1, #scopes, 2 do
      local s = scopes[i + 1]
      local shift = s.budget_offset or s.offset
      for _, one in ipairs(s.budgets or {}) do
        local rule, start = one.rule, b.now + shift
        local cost = reservation.cost(rule, amounts, b.default_reservation)
        local at = (is_alone == 1 and budget.ready({ one }, { cost }, start) or budget.leaves({ one }, ahead, start, { cost })) - shift
        if at > latest then
          latest = at
          words = string.format('%s %s %.0f %.0f %.0f %.0f %d', scopes[i], rule.unit, rule.amount, rule.window,
            math.max(rule.amount - one.total, 0), cost, is_alone)
        end
      end
    end
    if words then return words end
  end
end

-- Returns how many turns pass before the turn of a job of a flow, or a group, with `ahead` jobs before it: the maximum, if the order of
-- the rivals is unknown.
local function turns_until(f, rivals, ahead)
  local turns = f.nth and ahead * rivals + f.nth or (ahead + 1) * rivals - 1
  return turns > ahead and turns or ahead
end

-- Returns the budget rules of a flow, or of a group, which has rivals.
local function rules_for(b, f)
  local of_all = b.flow_rules
  if f.rivals then of_all = b.group_rules end
  local own = of_all and f.obeys.budgets
  return own and budget.rules(own, b.budget_burst) or of_all or {}
end

-- Returns whether any budget applies to jobs of the bucket.
function estimate.has_budgets(b) return (b.budgets or b.flow_rules or b.group_rules or b.pool and b.pool.budgets) ~= nil end

-- Returns the budget that is smaller than the reservation of a job, "scope unit amount window", and the reserved amount; nil if none is.
-- text: see reservation.from_job.
function estimate.over_budget(b, f, text)
  local g, p, amounts = f.group, b.pool, reservation.amounts(text)
  local scopes = { 'bucket', b.budgets and b.budgets.rules or {}, 'flow', b.has_flows and rules_for(b, f) or {},
    'group', g and rules_for(b, g) or {}, 'pool', p and p.budgets and p.budgets.rules or {} }
  for i = 1, #scopes, 2 do
    local n, amount = reservation.impossible(scopes[i + 1], amounts)
    local rule = n and scopes[i + 1][n]
    if rule then return string.format('%s %s %.0f %.0f', scopes[i], rule.unit, rule.amount, rule.window), amount end
  end
end

-- Returns the quotas of a flow, or of a group, which has rivals; nil without any.
local function windows_for(b, f)
  if f.rivals then return quota.own(f.obeys.quotas, b.group_windows) end
  return quota.own(f.obeys.quotas, b.flow_windows)
end

-- Adds the fields of a scope to a flow or a group.
local function scope_of(b, f)
  local s, till = f.obeys, f.state.down and f.state.down.till - b.offset or 0
  f.now, f.offset, f.from, f.next, f.back, f.rate_at = b.now, b.offset, b.now, b.now, 0, 0
  if s.rate_count > 0 then
    f.interval = s.rate_per / s.rate_count
    f.back = (s.burst - 1) * f.interval
    f.next = later(f.ready + f.back, b.now)
    if f.ready > till then f.rate_at = f.ready end
  end
  if till > b.now then
    f.from = till
    if f.ready <= till then f.next = till end -- not by its rate
  end
  local windows = f.departed and windows_for(b, f)
  if windows then f.quotas = quota.open(f.departed, windows, 1) end
  local rules, letter = rules_for(b, f), f.rivals and 'g' or 'f'
  if #rules > 0 then f.budgets = budget.open(rules, redis.call('HGET', b.charges, letter .. f.name), b.now + b.offset) end
  f.is_scope = true
end

-- Returns when a flow, or a group, allows a departure with n before it, if none is earlier than `start`; and when it allows the next one.
-- spread is the time that the n take, because others have turns in between.
local function by_scope(b, f, n, start, spread)
  if not f.is_scope then scope_of(b, f) end
  start = later(start, by_rate(f, 0, f.from))
  start = by_use(f, 0, start, start)
  local at = later(by_rate(f, n, start), start + spread)
  return by_use(f, n, start, at, b), start
end

-- Returns when the rate and when the quotas of a scope itself allow the next departure; each 0 if at once.
function estimate.own(b, s)
  if not (s.is_scope or s.next) then scope_of(b, s) end
  local now = b.now
  local free = by_quotas(s, 0, now, now)
  return s.rate_at > now and math.ceil(s.rate_at) or 0, free > now and math.ceil(free) or 0
end

-- Returns whether jobs of a flow may depart unevenly: some at once, as a quota allows, and the next ones much later.
function estimate.leaps(b)
  local p = b.pool
  if b.quotas or b.budgets or p and (p.quotas or p.budgets) then return true end
  return (b.flow_windows or b.group_windows or b.flow_rules or b.group_rules or b.some_own_quotas) ~= nil
end

-- Returns whether the flow, its group or the bucket is paused.
function estimate.held(b, f)
  return b.paused or b.has_flows and f.obeys.paused > 0 or f.group and f.group.obeys.paused > 0
end

-- Returns when a job with `ahead` jobs before it in its flow departs; 0 if it is paused or unknown. Flows take turns
-- one after the other.
function estimate.eta(b, f, ahead)
  if estimate.held(b, f) then return 0 end
  local g, n, unfinished = f.group, ahead, b.unfinished
  local of_group = g and g.state.unfinished
  if b.batch then
    n, unfinished, of_group = estimate.requests(b, n), estimate.requests(b, unfinished), g and estimate.requests(b, of_group)
  end
  if not b.has_flows then return estimate.of_bucket(b, n) end
  local in_group = n
  if g then
    in_group = turns_until(f, g.rivals, n)
    if in_group > of_group then in_group = later(of_group, n) end
  end
  local turns = turns_until(g or f, b.rivals, in_group)
  if turns > unfinished then turns = later(unfinished, in_group) end -- for delayed jobs only the number of due ones is known
  local at = estimate.of_bucket(b, turns)
  if at == 0 then return 0 end
  -- A flow without a rate, a downstream state, a quota and a budget departs at its turn.
  local flow_bounds = f.obeys.rate_count > 0 or f.state.down or windows_for(b, f) or b.flow_rules
  local group_bounds = g and (g.obeys.rate_count > 0 or g.state.down or windows_for(b, g) or b.group_rules)
  if not (flow_bounds or group_bounds) then return at end
  local start, spread = start_of(b), 0
  if n > 0 and turns > 0 then spread = (at - start) * n / (n + 1) end
  if group_bounds then
    local group_at, group_start = by_scope(b, g, in_group, start, in_group >= g.rivals and spread or 0)
    at, start = later(at, group_at), group_start
  end
  if flow_bounds then at = later(at, (by_scope(b, f, n, start, spread))) end
  return b.times and timetable.opens(b.times, at) or at
end

-- Returns the same for a job known by its id and its reservation, see reservation.from_job. b has conf, the key of its settings.
function estimate.of_job(b, f, ahead, id, reserves)
  if not estimate.has_budgets(b) then return estimate.eta(b, f, ahead) end
  if not b.default_reservation then -- also if only the pool has budgets
    b.default_reservation = math.max(tonumber(redis.call('HGET', b.conf, 'default_reservation') or 1), 1)
  end
  b.job = { id = id, amounts = reservation.amounts(reserves) }
  local at = estimate.eta(b, f, ahead)
  b.job = nil
  return at
end

-- Returns the same for the first of several evenly spaced jobs. In a bucket with only a rate the result may be before b.from: then the rest
-- of the burst lets the first jobs depart at once, at b.from.
function estimate.first(b, f, ahead)
  if b.has_flows or not b.simple or b.paused then return estimate.eta(b, f, ahead) end
  return b.next + estimate.requests(b, ahead) * b.interval - b.back
end

-- Returns the spacing of the jobs of one flow after the first, as count and per, if there are no quotas.
function estimate.step(b, f)
  local size, count, per = b.batch and (b.together or b.batch.size) or 1, b.count or b.rate_count, b.per or b.rate_per
  if not b.has_flows then return size * count, per end
  local g = f.group
  local in_group = g and math.max(g.rivals, 1) or 1
  per = per * math.max(b.rivals, 1) * in_group
  local of_group, of_flow = g and g.obeys, f.obeys
  if g and of_group.rate_count > 0 and of_group.rate_per * in_group * count > per * of_group.rate_count then
    count, per = of_group.rate_count, of_group.rate_per * in_group
  end
  if of_flow.rate_count > 0 and of_flow.rate_per * count > per * of_flow.rate_count then
    count, per = of_flow.rate_count, of_flow.rate_per
  end
  return size * count, per
end

-- Returns when a group falls below its bound, after `ahead` of its jobs have departed; 0 if none departs.
function estimate.of_group(b, g, ahead)
  if b.paused or g.obeys.paused > 0 then return 0 end
  local n = estimate.requests(b, ahead)
  local at = estimate.of_bucket(b, math.max(n * b.rivals, 0))
  if at == 0 then return 0 end
  return later(at, (by_scope(b, g, n, start_of(b), 0)))
end

return estimate
