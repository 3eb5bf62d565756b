-- estimate.lua: when jobs are expected to leave. One calculation answers for a receipt, for max_wait and for Retry-After (enqueue.lua), for
-- a job and why it waits (inspect_job.lua), and for a bucket (inspect_bucket.lua).
--
-- It counts the rate, the burst, the quotas and the budgets of the bucket, of its pool, and of a job's group and flow; holds; adaptive
-- rates; the timetable and an even rate until a finish; the turns of the other flows that have something to send now; and batches, as full
-- as those that left lately, or else as full as they may be.
-- Of the other buckets of a pool it counts those that have something to send now: each takes its share by weight, or by its rate if that
-- is less, for as long as the estimate looks ahead.
-- It leaves out what cannot be known: when requests in flight end, where a bound of these is reached; buckets of the pool that begin to
-- send later; jobs that come, or come due, later and go first (see precedence.lua). There a time is the earliest one. An even rate until a
-- finish is that of the jobs there are now: it rises with those that come later, so a time is the latest one there, and
-- estimate.earliest has the earliest.
--
-- A scope is a bucket, a pool, a group or a flow. As a scope it has these fields. Times are of the server's clock:
--   from      no departure is earlier: the end of its hold, or now
--   rate_at   when its rate lets one go next
--   next      the same if nothing of the burst were left, but not before `from`
--   interval  between two departures; nil without a rate
--   back      how much earlier they may go: all but one of the burst
--   quotas    see quota.lua; nil without any
--   budgets   see budget.lua; nil without any. A job reserves as much as the last ones did, but for that of estimate.of_job
--   offset    of the clock of these quotas, and of the budgets
--
-- A bucket also has now, rate_count, rate_per and burst (of its settings), paused, unfinished (its jobs, without the one that is asked
-- of), times (see timetable.lua), batch (see batch.rules), together (how many jobs leave as one request), leased (where there is a
-- timetable), pool, weight (its text in that pool), shown (rate_at is asked for), and what estimate.open adds: count and per of the rate
-- that counts (nil: that of the settings), least (the adaptive interval, nil none), simple (nothing but a rate counts), and what
-- estimate.earliest needs. One with flows has has_flows, rivals (how many flows, or groups, have something to send now, with that of the
-- job), flow_windows and group_windows (see quota.windows; nil without quotas), flow_rules and group_rules (see budget.rules;
-- nil without budgets), budget_burst, charges, the key of what is charged, and some_own_quotas, whether one of them has quotas of its own.
-- A pool has weights and rates (see pool.lua), and for each departure of the bucket it has `shared` departures.
-- A flow, or a group, has state, obeys, ready (see flow.ready; by the server's clock) and, where there are quotas, departed: their key.
-- A flow has its group. A group has rivals. Where a flow, or a group, was not among the rivals before the job came, nth is how many go
-- before it in each round of turns.

--#include lib/budget.lua
--#include lib/downstream.lua
--#include lib/pacer.lua
--#include lib/quota.lua
--#include lib/reservation.lua
--#include lib/timetable.lua

local estimate = {}

local function later(a, b) return a > b and a or b end

-- How many requests are to leave a bucket, with that of the job that is asked of.
function estimate.to_leave(b)
  if b.is_fastest then return math.huge end
  return math.ceil((b.unfinished - b.leased + 1) / (b.together or 1))
end

-- Adds to a bucket, or to a pool, how its rate lets departures go. slot, rate and down are fields of its pace, which is the key; own_rate
-- is the text of the rate that its settings say.
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

-- Adds the budgets of a bucket, of its flows and of its groups: conf is the key of its settings, charges that of what is charged.
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

-- The pool of a bucket as a scope, by the pool's keys (see pool.keys); nil if it is not configured. said is the text of its downstream.
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

-- Adds to a pool what its other buckets take. The bucket that is asked of is in the sums of the pool if it had something to send before.
local function share(b, p)
  local weight, of_all, had = math.max(tonumber(b.weight or 1), 1), pacer.RATES / p.interval, b.unfinished > 0
  local weights, rates = p.weights - (had and weight or 0), p.rates - (had and math.min(pacer.RATES / b.interval, of_all) or 0)
  if weights > 0 then p.shared = of_all / math.max(of_all * weight / (weights + weight), of_all - math.max(rates, 0)) end
end

-- The rate of the bucket is that of its share of the pool, where that is less.
local function bound_by_pool(b, p)
  if p.interval * p.shared > b.interval then b.count, b.per = p.count or p.rate_count, (p.per or p.rate_per) * p.shared end
end

-- Makes a bucket ready to be asked. See pace_of; quotas and departed, its key, are of its quotas.
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

-- The bucket that answers when jobs leave at the earliest: with a finish no rate is an even one there.
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

-- How many requests so many jobs of a bucket are.
function estimate.requests(b, jobs)
  return b.batch and math.floor(jobs / (b.together or b.batch.size)) or jobs
end

-- When a scope lets a departure go that has n others before it, if the first of them goes at `start`.
local function by_rate(s, n, start)
  if not s.interval then return start end
  local at = later(s.next, start) + n * s.interval - s.back
  return at > start and at or start
end

-- The same by the quotas of a scope: `at` is when it goes by all else.
local function by_quotas(s, n, start, at)
  if not s.quotas then return at end
  local each, offset = n > 0 and (at - start) / n or 0, s.offset
  return later(at, quota.leaves(s.quotas, n, start + offset, each, s.now + offset + pacer.MAX_HORIZON) - offset)
end

-- The same by its quotas and its budgets. b: the bucket whose job it is, nil of any one.
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

-- When the next request may leave the bucket.
local function start_of(b)
  if not b.start then
    local p, at = b.pool, by_rate(b, 0, b.from)
    if p then at = by_use(p, 0, at, later(at, by_rate(p, 0, p.from))) end
    at = by_use(b, 0, at, at)
    b.start = b.times and timetable.opens(b.times, at) or at
  end
  return b.start
end

-- When the request leaves the bucket that has so many before it; 0 if that is not known.
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

-- How many flows, or groups, of a turn queue have something to send now. clock is the engine's. Their turns may lie ahead: of a flow that a
-- claim looks at, or has just let go, or that waits out its rate for less than a second.
function estimate.rivals(turn_queue, clock)
  return redis.call('ZCOUNT', turn_queue, '-inf', string.format('%d', clock + pacer.RESERVED))
end

-- The budget that lets a job of a flow go last, and after a time: "scope unit amount window", how much of it is free now, what the job
-- reserves of it, and 1 if the budget holds the job by itself, 0 if the jobs ahead use it up first; nil where none holds it that long. It
-- follows estimate.of_job, of the same job: ahead and text as there.
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

-- How many turns pass until a job of a flow, or a group, with a number of jobs ahead of it has its own: at most, where it is not known who
-- goes first.
local function turns_until(f, rivals, ahead)
  local turns = f.nth and ahead * rivals + f.nth or (ahead + 1) * rivals - 1
  return turns > ahead and turns or ahead
end

-- The rules of the budgets of a flow, or of a group, which has rivals.
local function rules_for(b, f)
  local of_all = b.flow_rules
  if f.rivals then of_all = b.group_rules end
  local own = of_all and f.obeys.budgets
  return own and budget.rules(own, b.budget_burst) or of_all or {}
end

-- Whether something has budgets that jobs of a bucket count against.
function estimate.has_budgets(b) return (b.budgets or b.flow_rules or b.group_rules or b.pool and b.pool.budgets) ~= nil end

-- Which budget a job of a flow reserves more of than there is: "scope unit amount window", and what it reserves; nil if each has as much.
-- text: see reservation.of.
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

-- The quotas of a flow, or of a group, which has rivals; nil without any.
local function windows_for(b, f)
  if f.rivals then return quota.own(f.obeys.quotas, b.group_windows) end
  return quota.own(f.obeys.quotas, b.flow_windows)
end

-- Adds to a flow, or a group, what it is as a scope.
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

-- When a flow, or a group, lets a departure go with n before it, if nothing goes before `start`; and when it lets the next one go.
-- spread is how long the n take, as others have their turns in between.
local function by_scope(b, f, n, start, spread)
  if not f.is_scope then scope_of(b, f) end
  start = later(start, by_rate(f, 0, f.from))
  start = by_use(f, 0, start, start)
  local at = later(by_rate(f, n, start), start + spread)
  return by_use(f, n, start, at, b), start
end

-- What keeps a scope by itself: when its rate and when its quotas let the next departure go; each 0 if at once.
function estimate.own(b, s)
  if not (s.is_scope or s.next) then scope_of(b, s) end
  local now = b.now
  local free = by_quotas(s, 0, now, now)
  return s.rate_at > now and math.ceil(s.rate_at) or 0, free > now and math.ceil(free) or 0
end

-- Whether jobs of a flow may leave unevenly: as many at once as a quota allows, and the next ones much later.
function estimate.leaps(b)
  local p = b.pool
  if b.quotas or b.budgets or p and (p.quotas or p.budgets) then return true end
  return (b.flow_windows or b.group_windows or b.flow_rules or b.group_rules or b.some_own_quotas) ~= nil
end

-- Whether nothing of a flow leaves.
function estimate.held(b, f)
  return b.paused or b.has_flows and f.obeys.paused > 0 or f.group and f.group.obeys.paused > 0
end

-- When a job leaves that has a number of jobs ahead of it in its flow; 0 if nothing leaves, or it is not known. Flows whose turn it is go
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
  if turns > unfinished then turns = later(unfinished, in_group) end -- of those that came with a delay it is only known how many are due
  local at = estimate.of_bucket(b, turns)
  if at == 0 then return 0 end
  -- What bounds neither the rate, nor the downstream, nor a quota leaves when it is its turn.
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

-- The same of a job that is known by its id and what it reserves, see reservation.of. b has conf, the key of its settings.
function estimate.of_job(b, f, ahead, id, reserves)
  if not estimate.has_budgets(b) then return estimate.eta(b, f, ahead) end
  if not b.default_reservation then -- also where the pool alone has budgets
    b.default_reservation = math.max(tonumber(redis.call('HGET', b.conf, 'default_reservation') or 1), 1)
  end
  b.job = { id = id, amounts = reservation.amounts(reserves) }
  local at = estimate.eta(b, f, ahead)
  b.job = nil
  return at
end

-- The same of the first of jobs that leave evenly. In a bucket with nothing but a rate it leaves no sooner than b.from: there what is
-- left of the burst lets the first ones go at once.
function estimate.first(b, f, ahead)
  if b.has_flows or not b.simple or b.paused then return estimate.eta(b, f, ahead) end
  return b.next + estimate.requests(b, ahead) * b.interval - b.back
end

-- How far apart the jobs of one flow leave then, as count and per, where there are no quotas.
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

-- When a group is below its bound, if so many of its jobs leave before; 0 if none leaves.
function estimate.of_group(b, g, ahead)
  if b.paused or g.obeys.paused > 0 then return 0 end
  local n = estimate.requests(b, ahead)
  local at = estimate.of_bucket(b, math.max(n * b.rivals, 0))
  if at == 0 then return 0 end
  return later(at, (by_scope(b, g, n, start_of(b), 0)))
end

return estimate
