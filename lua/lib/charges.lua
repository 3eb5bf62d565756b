-- charges.lua: charges departures of a bucket, and their outcomes, to the budgets of the bucket, of a flow and its group, and of the
-- pool (see budget.lua).
--
-- The hash …:charges has the texts of budgets: b of the bucket, f<flow> and g<group> if charged within the longest window;
-- and first, the job that waits first for the bucket's budgets: "time id reserves". Other jobs leave it room until it departs or has not
-- asked for a while (see reservation.first): so a large job does not starve among small ones. For each text that counts
-- longer now, a write checks LOOKED_AT random texts and drops the expired ones; without writes the whole key expires. A pool has the same
-- in its pace: charges, first (of "bucket/id"), and charged_at and charged_offset: the server's time of the last claim, and the offset of
-- their clock, which follows steps of the server's clock.
--
-- For each job with a reservation the claim returns a text that settle.lua gets back: "at pool_at reserved", the times of its charges by
-- the clocks of the engine and of the pool, 0 without a pool, and "unit:amount,...".

--#include lib/budget.lua
--#include lib/claim_reply.lua
--#include lib/codes.lua
--#include lib/drr.lua
--#include lib/fair_queue.lua
--#include lib/flow.lua
--#include lib/reservation.lua

local charges = {
  KEPT = 86400000, -- milliseconds beyond the window: keys expire by the server's clock, which may step forwards
  ASKS = 1000000, -- microseconds after which the job that waits first asks again at the latest
  LOOKED_AT = 2,
  MOST_READ = 65536, -- bytes of budgets of flows and groups that a claim reads: 3 ms, if every slice is charged
  AT_ONCE = 4, -- bodies that a claim reads at first
}

local NONE = {}

-- Returns what a job reserves of a unit that it does not name, by the bucket's setting default_reservation.
local function default_of(setting) return math.max(tonumber(setting or 1), 1) end

-- Returns the rules of a bucket, of its flows and of its groups, whether some flows or groups have their own, and what a job reserves of a
-- unit that it does not name. The arguments are the bucket's settings budgets, flow_budgets, group_budgets, own_budgets, budget_burst and
-- default_reservation.
local function rules_by(own, of_flow, of_group, some_have_own, burst, default)
  return { own = budget.rules(own, burst), flow = budget.rules(of_flow, burst), group = budget.rules(of_group, burst), burst = burst,
    some_have_own = some_have_own, default = default_of(default) }
end

-- Returns the same rules, by the key of the settings.
local function rules_of(conf)
  return rules_by(unpack(redis.call('HMGET', conf, 'budgets', 'flow_budgets', 'group_budgets', 'own_budgets', 'budget_burst',
    'default_reservation'), 1, 6))
end

local function no_rules(rules) return #rules.own + #rules.flow + #rules.group == 0 and not rules.some_have_own end

-- Returns the rules of a flow, or of a group: its own (see flow.settings), else the defaults.
local function rules_for(level, of_all, burst)
  local own = level.settings and level.settings.budgets
  return own and budget.rules(own, burst) or of_all
end

-- Reads the texts of the bucket's budgets and of the job that waits first. Sets the field text of flows and groups to theirs.
local function read(key, flows, groups)
  if #flows + #groups == 0 then return unpack(redis.call('HMGET', key, 'b', 'first')) end
  local fields, levels = { 'b', 'first' }, {}
  for _, f in ipairs(flows) do fields[#fields + 1], levels[#levels + 1] = 'f' .. f.name, f end
  for _, g in ipairs(groups) do fields[#fields + 1], levels[#levels + 1] = 'g' .. g.name, g end
  local texts = redis.call('HMGET', key, unpack(fields))
  for n, level in ipairs(levels) do level.text = texts[n + 2] end
  return unpack(texts, 1, 2)
end

-- Opens the budgets of a pool, by its keys; nil without any. stepped: microseconds by which a dispatcher saw the server's clock step
-- forwards; a step that two dispatchers report counts once. Only a claim can detect a step. So if settles is set, slices expire
-- only up to the time of the last claim, and that time stays.
local function of_pool(keys, now, stepped, settles)
  local text, burst = unpack(redis.call('HMGET', keys.conf, 'budgets', 'budget_burst'))
  if (text or '') == '' then return nil end
  local rules = budget.rules(text, burst)
  if #rules == 0 then return nil end
  local stored, first, at, offset = unpack(redis.call('HMGET', keys.pace, 'charges', 'first', 'charged_at', 'charged_offset'), 1, 4)
  at, offset = tonumber(at or now), tonumber(offset or 0)
  local is_back, time = now < at, settles and math.min(at, now) or now
  offset = is_back and offset + at - now or offset - math.min(stepped, now - at)
  return { keys = keys, offset = offset, at = time, all = budget.open(rules, stored, time + offset), first = reservation.first(first, now),
    stepped = stepped > 0 or is_back }
end

-- Returns the same rules, from settings that a claim has read; nil if neither the bucket nor its pool has budgets.
function charges.rules(shared, own, of_flows, of_groups, some_have_own, burst, default)
  local any = (own or '') ~= '' or (of_flows or '') ~= '' or (of_groups or '') ~= '' or some_have_own or shared and shared.budgets
  return any and rules_by(own, of_flows, of_groups, some_have_own, burst, default) or nil
end

-- Clears the open reservations of a level without requests in flight: they were lost with leases.
local function none_open(all)
  for i = 1, #(all or NONE) do all[i].open = 0 end
end

-- Opens the charges of a claim. rules: see charges.rules; named and groups: its flows, see drr.lua; in_flight: its requests. The budgets
-- of flows and groups are read at their turn.
function charges.open(key, rules, now, clock, named, groups, shared, stepped, in_flight)
  local pooled = shared and shared.budgets and of_pool(shared.keys, now, stepped) or nil
  local text, first = read(key, NONE, NONE)
  local own = budget.open(rules.own, text, clock)
  if in_flight == 0 then none_open(own) end
  if pooled and shared.in_flight == 0 then none_open(pooled.all) end
  return { key = key, rules = rules, now = now, offset = clock - now, own = own,
    first = reservation.first(first, now), pool = pooled, member = shared and shared.own.name .. '/', named = named, groups = groups,
    bytes = 0 }
end

-- Reads the budgets of a flow, or of a group.
local function read_level(c, level, letter, of_all)
  local rules = rules_for(level, of_all, c.rules.burst)
  if level.budgets or #rules == 0 then return end
  local text = redis.call('HGET', c.key, letter .. level.name)
  level.budgets = budget.open(rules, text, c.now + c.offset)
  if text then c.bytes = c.bytes + #text end
  if level.state.in_flight == 0 then none_open(level.budgets) end
end

-- Reads the budgets of a flow and of its group.
local function read_levels(c, f)
  if not f.name then return end
  read_level(c, f, 'f', c.rules.flow)
  if f.group then read_level(c, f.group, 'g', c.rules.group) end
end

local function costs_of(all, amounts, default) return all and reservation.costs(all.rules, amounts, default) end

local function impossible(all, amounts) return all and reservation.impossible(all.rules, amounts) end

-- Selects the next job, by its body; the functions below use it. Returns whether it reserves more than the whole amount of a budget.
function charges.is_impossible(c, f, job)
  local text, g, p = reservation.from_job(job), f.group, c.pool
  local amounts = reservation.amounts(text)
  c.text, c.amounts = text, amounts
  read_levels(c, f)
  return impossible(c.own, amounts) or impossible(f.budgets, amounts) or g and impossible(g.budgets, amounts)
    or p and impossible(p.all, amounts)
end

-- Returns when the job may go by the budgets of its flow or its group, no earlier than `at`. No other job of that level overtakes it.
local function ready_in(c, level, at)
  if not level.budgets then return at end
  level.costs = costs_of(level.budgets, c.amounts, c.rules.default)
  local ready = budget.ready(level.budgets, level.costs, at)
  if ready > at then budget.hold(level.budgets, at) end
  return ready
end

-- Returns the same for flow and group together, and the one that it waits for; nil none.
local function in_turn(c, f, at)
  if not f.name then return at, nil end
  local ready = ready_in(c, f, at)
  if ready > at then return ready, f end
  ready = f.group and ready_in(c, f.group, at) or at
  return ready, ready > at and f.group or nil
end

-- Returns when the job may go by the budgets of the bucket and of the pool.
local function ready_of(c, id, at)
  local p = c.pool
  c.costs, c.waits_for_bucket, c.waits_for_pool = costs_of(c.own, c.amounts, c.rules.default), false, false
  local ready = budget.ready(c.own, c.costs, at, c.first and c.first.id ~= id and costs_of(c.own, c.first.amounts, 1))
  if ready > at then
    c.waits_for_bucket = true
    budget.hold(c.own, at)
  end
  if not p then return ready end
  local shift = p.offset - c.offset
  local pool_at = ready + shift
  p.costs = costs_of(p.all, c.amounts, c.rules.default)
  local by_pool = budget.ready(p.all, p.costs, pool_at, p.first and p.first.id ~= c.member .. id and costs_of(p.all, p.first.amounts, 1))
  if by_pool > pool_at then
    c.waits_for_pool = true
    budget.hold(p.all, pool_at)
  end
  return by_pool - shift
end

-- Formats the reservation for settle.lua, including units that the job does not name. f: its flow.
local function with_all_units(c, text, amounts, f)
  local rules, default, g = c.rules, c.rules.default, f.group
  text = reservation.with(text, amounts, rules.own, default)
  text = reservation.with(text, amounts, f.budgets and f.budgets.rules or rules.flow, default)
  text = reservation.with(text, amounts, g and g.budgets and g.budgets.rules or rules.group, default)
  return c.pool and reservation.with(text, amounts, c.pool.all.rules, default) or text
end

-- Records that the job waits first for the bucket or the pool, unless another one does.
local function wait(c, f, id)
  local p, text = c.pool, with_all_units(c, c.text, c.amounts, f)
  if c.waits_for_bucket and (not c.first or c.first.id == id) then
    c.first, c.asks = { id = id, text = text, amounts = c.amounts }, true
  end
  if c.waits_for_pool and (not p.first or p.first.id == c.member .. id) then
    p.first, p.asks = { id = c.member .. id, text = text, amounts = c.amounts }, true
  end
end

-- Returns when the job of charges.is_impossible may go, from `at` to latest; else nil. If it waits for its flow or its group,
-- the row (see drr.lua) goes on with others. If it waits for the bucket or the pool, that is recorded, and the time to ask again is
-- the second result. The same applies once the run has read MOST_READ bytes.
function charges.gate(c, shared, row, f, id, at, latest)
  if c.bytes > charges.MOST_READ then return nil, at end
  local ready, level = in_turn(c, f, at)
  if level then
    drr.waits(level, ready)
    drr.next(row, f, false)
    return nil, nil
  end
  ready = ready_of(c, id, at)
  if ready > at and ready <= latest and shared then ready = fair_queue.ready(shared, ready - c.offset) + c.offset end
  if ready <= latest then return ready, nil end
  wait(c, f, id)
  return nil, math.min(ready, c.now + c.offset + charges.ASKS)
end

-- Charges the departure of that job at a time, and adds it to the reply; out: see claim_reply.lua.
function charges.depart(c, out, f, id, at)
  local p, pool_at = c.pool, 0
  budget.charge(f.budgets, f.costs, at)
  if f.group then budget.charge(f.group.budgets, f.group.costs, at) end
  budget.charge(c.own, c.costs, at)
  if c.first and c.first.id == id then c.first, c.departed = nil, true end
  if p then
    pool_at = budget.not_before(p.all, at - c.offset + p.offset)
    budget.charge(p.all, p.costs, pool_at)
    if p.first and p.first.id == c.member .. id then p.first, p.departed = nil, true end
  end
  claim_reply.add_charges(out, out.count, string.format('%d %d', at, pool_at), with_all_units(c, c.text, c.amounts, f))
end

-- Repeats the charges of a repeated reply. In a pool the charge may be in a later slice than reported, because
-- it went to the newest one.
function charges.repeat_charges(out, conf, now, pool_keys)
  local rules = rules_of(conf)
  local p = pool_keys and of_pool(pool_keys, now, 0)
  if no_rules(rules) and not p then return end
  local c = { rules = rules, pool = p }
  local width = out.has_flows and 5 or 3
  for n = 1, out.count do
    local at = out.head + (n - 1) * width
    local slot, job = out.answer[at + 2], out.answer[at + 3]
    local times = string.format('%d %d', slot + out.offset, p and slot + p.offset or 0)
    local text = reservation.from_job(job)
    claim_reply.add_charges(out, n, times, with_all_units(c, text, reservation.amounts(text), NONE))
  end
end

-- Returns the budgets of a bucket, of one flow and of its group: { all, costs } as own, flow and group. all is nil without budgets;
-- costs are a job's costs for each budget. of_flow and of_group: see flow.load; nil if there are none. job: its body. Without one, costs
-- of the bucket's budgets are the costs of the job that waits first for them, if any; the others are as of recent jobs. Also returns what a
-- job reserves of a unit that it does not name. offset: of the engine's clock. Writes nothing.
function charges.read_levels(conf, key, now, offset, of_flow, of_group, job)
  local rules = rules_of(conf)
  local default = rules.default
  if no_rules(rules) then return { own = NONE, flow = NONE, group = NONE }, default end
  local function level(of) return of and { name = of.name, settings = of.settings } end
  local clock, f, g = now + offset, level(of_flow), level(of_group)
  local text, first = read(key, { f }, { g })
  local own = budget.open(rules.own, text, clock)
  if f then f.budgets = budget.open(rules_for(f, rules.flow, rules.burst), f.text, clock) end
  if g then g.budgets = budget.open(rules_for(g, rules.group, rules.burst), g.text, clock) end
  local amounts = job and reservation.amounts(reservation.from_job(job))
  first = not amounts and reservation.first(first, now)
  local function with_costs(all, of)
    return { all = all, costs = all and (of and costs_of(all, of, default) or budget.mean_costs(all)) }
  end
  return { own = with_costs(own, amounts or first and first.amounts), flow = with_costs(f and f.budgets, amounts),
    group = with_costs(g and g.budgets, amounts) }, default
end

-- Returns the same for a pool, with the offset of its clock. default: the second result of charges.read_levels for the job's bucket.
function charges.read_pool(keys, now, job, default)
  local p = of_pool(keys, now, 0)
  if not p then return { offset = 0 } end
  local amounts = job and reservation.amounts(reservation.from_job(job)) or p.first and p.first.amounts
  local costs = amounts and costs_of(p.all, amounts, default) or budget.mean_costs(p.all)
  return { all = p.all, costs = costs, offset = p.offset }
end

-- Drops some texts that no longer count.
local function clean(key, clock, looked_at)
  local some = redis.call('HRANDFIELD', key, looked_at, 'WITHVALUES')
  for i = 1, #some, 2 do
    if some[i] ~= 'first' and budget.has_ended(some[i + 1], clock) then redis.call('HDEL', key, some[i]) end
  end
end

-- Writes the changed budgets of the bucket, flows and groups. Returns the number of texts that count longer now, and for how long.
local function write(key, own, flows, groups)
  local texts, gone, longer, lasts = {}, {}, 0, 0
  local function note(field, all)
    if not all or not all.changed then return end
    local text = budget.text(all)
    if text == '' then gone[#gone + 1] = field else texts[#texts + 1], texts[#texts + 2] = field, text end
    if all.lasts_longer then longer, lasts = longer + 1, math.max(lasts, budget.lasts(all.rules)) end
  end
  note('b', own)
  for _, f in ipairs(flows) do note('f' .. (f.name or ''), f.budgets) end
  for _, g in ipairs(groups) do note('g' .. g.name, g.budgets) end
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
  if #texts > 0 then redis.call('HSET', key, unpack(texts)) end
  return longer, lasts
end

local function write_pool(p, now)
  if p.all.changed or p.stepped then
    redis.call('HSET', p.keys.pace, 'charges', budget.text(p.all), 'charged_at', string.format('%d', p.at), 'charged_offset',
      string.format('%d', p.offset))
  end
  if p.asks then redis.call('HSET', p.keys.pace, 'first', string.format('%d ', now) .. p.first.id .. ' ' .. p.first.text) end
  if p.departed then redis.call('HDEL', p.keys.pace, 'first') end
end

-- Writes the charges of a claim.
function charges.write(c)
  local rules, longer, lasts = c.rules, write(c.key, c.own, c.named, c.groups)
  if longer > 0 then
    lasts = math.max(lasts, budget.lasts(rules.own), budget.lasts(rules.flow), budget.lasts(rules.group))
    -- Budgets of another flow or group may last longer than these.
    redis.call('PEXPIRE', c.key, math.max(lasts + charges.KEPT, rules.some_have_own and redis.call('PTTL', c.key) or 0))
    clean(c.key, c.now + c.offset, longer * charges.LOOKED_AT)
  end
  if c.departed then redis.call('HDEL', c.key, 'first') end
  if c.asks and c.first then
    redis.call('HSET', c.key, 'first', string.format('%d ', c.now) .. c.first.id .. ' ' .. c.first.text)
    local kept = math.max(budget.lasts(c.rules.own), reservation.FIRST_FOR / 1000)
    if redis.call('PTTL', c.key) < 0 then redis.call('PEXPIRE', c.key, kept) end
  end
  if c.pool then write_pool(c.pool, c.now) end
end

-- Corrects the charges of departures, and returns whether the job of the bucket that waits first may have room now. Wakes the bucket of
-- the pool's first job if the pool has room. outcomes: for each { text, part, requests, used }: the text of settle.lua and the part of the
-- flow, which gets `refunded` if its flow or group has room; an outcome that settles earlier requests of a response has them
-- and their usage (see responses.lua). Budgets of the bucket, flows and groups keep the rule of their charges: the next claim applies a
-- changed rule. The pool's budgets follow the present rule.
-- Flows are in ARGV behind first_flow, if levels has any.
-- conf: the key of the bucket's settings; offset and of_claim: of its clock, and its time at the last claim.
function charges.settle(key, conf, offset, of_claim, outcomes, levels, first_flow, pool_keys, now, channel)
  local of_flows, of_groups, some_have_own, default
  if levels ~= codes.NO_FLOWS then
    of_flows, of_groups, some_have_own = unpack(redis.call('HMGET', conf, 'flow_budgets', 'group_budgets', 'own_budgets'))
  end
  local clock = now + tonumber(offset or 0)
  clock = math.min(clock, tonumber(of_claim or clock)) -- only a claim can detect a step of the server's clock forwards
  local flows, groups, of, by_name = {}, {}, {}, {}
  local function level_of(name)
    if of[name] or levels == codes.GROUPS and not string.find(name, '^%d+:') then return end -- a flow of other settings
    local f, group = { name = name }, levels == codes.GROUPS and flow.group_of(name)
    flows[#flows + 1], of[name] = f, f
    if group and not by_name[group] then
      by_name[group] = { name = group }
      groups[#groups + 1] = by_name[group]
    end
    f.group = group and by_name[group]
  end
  for _, outcome in ipairs(outcomes) do
    if levels ~= codes.NO_FLOWS then
      level_of(ARGV[first_flow + outcome.part.n])
      for _, q in ipairs(outcome.requests or NONE) do level_of(q.flow) end
    end
  end
  local text, first = read(key, ((of_flows or '') ~= '' or some_have_own) and flows or NONE,
    ((of_groups or '') ~= '' or some_have_own) and groups or NONE)
  local own = budget.open_stored(text, clock)
  for _, f in ipairs(flows) do f.budgets = budget.open_stored(f.text, clock) end
  for _, g in ipairs(groups) do g.budgets = budget.open_stored(g.text, clock) end
  local p = pool_keys and of_pool(pool_keys, now, 0, true)
  local freed, pool_freed = false, false

  -- Returns whether a level has room that it did not have. rest: usage of a unit that is not in used, nil as reserved.
  local function correct(all, reserved, used, rest, at)
    if not all then return false end
    local is_free = false
    for i = 1, #all do
      local rule = all[i].rule
      if not (reserved[rule.unit] or default) then default = default_of(redis.call('HGET', conf, 'default_reservation')) end
      local was = reservation.cost(rule, reserved, default)
      local is = used[rule.unit] or rest or was
      budget.settle(all, i, was, is, at)
      is_free = is_free or is < was
    end
    return is_free
  end

  -- A flow that is not among the parts uses the room at its next turn.
  local function settle_earlier(outcome, at, pool_at)
    local part, first_of = outcome.part, of[outcome.requests[1].flow] or NONE
    local is_free = budget.settle_earlier(first_of.budgets, outcome, 'at', at)
    if first_of.group then is_free = budget.settle_earlier(first_of.group.budgets, outcome, 'at', at) or is_free end
    if is_free and first_of.name == ARGV[first_flow + part.n] then part.refunded = true end
    freed = budget.settle_earlier(own, outcome, 'at', at) or freed
    if p and pool_at > 0 then pool_freed = budget.settle_earlier(p.all, outcome, 'pool_at', pool_at) or pool_freed end
  end

  for _, outcome in ipairs(outcomes) do
    local at, pool_at, reserved, used_text = string.match(outcome.text, '^(%d+) (%d+) (%S*) (%S+)$')
    local part, f = outcome.part, of[ARGV[first_flow + outcome.part.n]] or NONE
    if at then
      local all, g, used, rest = reservation.amounts(reserved), f.group, reservation.used(used_text)
      at = at + 0
      part.refunded = correct(f.budgets, all, used, rest, at) or part.refunded
      if g then part.refunded = correct(g.budgets, all, used, rest, at) or part.refunded end
      freed = correct(own, all, used, rest, at) or freed
      if p and pool_at ~= '0' then pool_freed = correct(p.all, all, used, rest, pool_at + 0) or pool_freed end
      if outcome.requests then settle_earlier(outcome, at, pool_at + 0) end
    end
  end
  write(key, own, flows, groups)
  if not p then return freed and reservation.first(first, now) ~= nil end
  write_pool(p, now)
  if pool_freed and p.first then redis.pcall('PUBLISH', channel, string.match(p.first.id, '^([^/]+)/')) end
  return freed and reservation.first(first, now) ~= nil
end

return charges
