-- fair_queue.lua: shares the slots and the places in flight of a pool among its buckets: start-time fair queueing (Goyal,
-- Vin and Cheng 1996).
--
-- It guarantees:
--   Buckets that wait for the pool get departures by their weights.
--   A bucket gets all slots that the others do not use. No slot passes unused while a bucket has a job that may take it.
--   A bucket that was idle gets no credit for it, and a bucket that had the pool alone has no debt.
--   The time of a claim grows with the logarithm of the number of buckets.
--
-- Each departure moves the tag of its bucket on by UNIT / weight: the tag is the virtual time at which the next departure
-- starts. A bucket waits if the pool let it send less than its own bounds would, or if its own rate is more than its
-- share. The virtual time of the pool is the mean of the tags of the waiting buckets, by weight. All of them would reach
-- the same tag if they shared the free slots within the horizon: a claim takes slots up to that level. A bucket that begins to
-- wait starts a departure before the virtual time. Buckets that do not wait have as many slots as they want, and nothing is held back
-- for them.
--
-- Slots that no bucket has claimed go to any bucket, however far it is ahead: once the first 25 % of the horizon has a
-- free slot, all free slots in its first half. So no slot is lost if other buckets come late, or not at all.
--
-- Places in flight are shared in the same way if they are fewer than the slots of the horizon. A bucket that has left
-- free places to others for 25 % of the horizon takes them. If no place is free, a bucket is held, and woken when
-- its tag is the lowest of the held ones (see pool.lua).
--
-- All buckets look as far ahead as the waiting bucket with the longest horizon in the last second; otherwise that one would always be
-- first. If others wait, the horizon covers 32 slots of the bucket's share, if pool.MAX_HORIZON allows: many busy buckets need no more
-- claims than few. While some buckets do not wait, the waiting ones look only 75 % as far, and the others come that much
-- earlier: so a bucket that is slow by its own rate finds its slots free.

--#include lib/downstream.lua
--#include lib/pacer.lua
--#include lib/pool.lua
--#include lib/quota.lua
--#include lib/slots.lua

local fair_queue = {
  CLAIMED = 32, -- slots of its share that a bucket looks ahead
  FURTHEST_FOR = 1000000, -- microseconds for which the longest horizon applies to all
  FORGOTTEN = 8, -- overdue busy buckets that a claim removes
}

-- Removes busy buckets that have not claimed for long from the busy ones.
local function forget(p)
  local sums, k = p.sums, p.keys
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', k.busy, '-inf', string.format('%d', p.now), 'LIMIT', 0, fair_queue.FORGOTTEN)) do
    if name ~= p.own.name then
      local m = pool.read(name, redis.call('HGET', k.buckets, name))
      pool.uncount(sums, m)
      m.busy_until, m.waits = 0, 0
      pool.count(sums, m)
      p.forgotten[#p.forgotten + 1] = m
    end
  end
end

-- Returns how far the bucket looks ahead; horizon: its claim's.
local function look_ahead(p, horizon, furthest, furthest_until)
  local sums, now, weight = p.sums, p.now, p.own.weight
  if sums.waiting > 0 then
    local enough = fair_queue.CLAIMED * p.interval * (sums.waiting + weight) / weight
    horizon = math.max(horizon, math.floor(math.min(enough, pool.MAX_HORIZON)))
  end
  if furthest_until <= now or furthest_until > now + fair_queue.FURTHEST_FOR or sums.weights == 0 then furthest = 0 end
  if p.own.waits > 0 and horizon >= furthest then furthest, furthest_until = horizon, now + fair_queue.FURTHEST_FOR end
  horizon = math.max(horizon, furthest)
  p.furthest, p.furthest_until, p.horizon, p.whole = furthest, furthest_until, horizon, horizon
  p.quarter, p.half = p.from + (now + horizon - p.from) / 4, p.from + (now + horizon - p.from) / 2
  p.in_horizon, p.zone = horizon / p.interval, p.quarter
  if p.own.waits > 0 and sums.weights > sums.waiting then p.horizon = math.floor(horizon * 3 / 4) end
end

-- Limits the tag of a bucket that claims: it keeps no credit and no debt from earlier times. A waiting bucket may be behind by two
-- horizons, or by a departure of the least weight and one of its own if that is more, as in a slow pool; and ahead by two horizons and
-- two departures of the least weight.
local function renew_tag(p)
  local own, virtual, waiting = p.own, p.sums.virtual, p.sums.waiting
  local departures = own.waits > 0 and math.max(2 * p.in_horizon, own.weight + 1) or 1
  own.tag = math.max(own.tag, virtual - departures * pool.UNIT / own.weight)
  if waiting > 0 then
    own.tag = math.min(own.tag, virtual + 2 * (p.in_horizon / (waiting + own.weight) + 1) * pool.UNIT)
  end
end

-- Opens the pool for one of its buckets; nil if it is not configured. Its down is the downstream's state. interval: of the bucket's own
-- rate; from: no slot is before it; in_flight: of the bucket; lease: microseconds that an outcome may take; stepped: microseconds by which
-- a dispatcher saw the clock step forwards.
function fair_queue.open(name, keys, weight, interval, now, from, horizon, in_flight, lease, stepped)
  local k = pool.keys(keys)
  local rate_count, rate_per, burst, max_in_flight, quotas, budgets =
    unpack(redis.call('HMGET', k.conf, 'rate_count', 'rate_per', 'burst', 'max_in_flight', 'quotas', 'budgets'))
  if not rate_count then return nil end
  local bounds = { rate_count = tonumber(rate_count), rate_per = tonumber(rate_per), burst = tonumber(burst) }
  local slot, frac, rate, last, clock, free, unused, of_all_in_flight, weights, rates, waiting, virtual, furthest, furthest_until, said =
    unpack(redis.call('HMGET', k.pace, 'slot', 'frac', 'rate', 'last', 'clock', 'free', 'unused', 'in_flight', 'weights', 'rates',
      'waiting', 'virtual', 'furthest', 'furthest_until', 'down'))
  local down = said and downstream.read(said)
  if down then
    down.lease = lease
    bounds = downstream.adapted(down, bounds, pacer.prepare)
  end
  local own, sums = pool.read(name, redis.call('HGET', k.buckets, name)), pool.sums(of_all_in_flight, weights, rates, waiting, virtual)
  local p = { now = now, from = from, latest = now + pool.MAX_HORIZON, keys = k, own = own, sums = sums, down = down,
    interval = bounds.rate_per / bounds.rate_count,
    most = tonumber(max_in_flight or 0), own_interval = interval, own_horizon = horizon, taken = 0, forgotten = {},
    quotas = quota.open(k.departed, quota.windows(quotas), 64), budgets = budgets and budgets ~= '' and budgets or nil }
  p.slots = slots.open(k, now, bounds, own.credit / 1000, slot, frac, rate, last, clock, free, unused)
  if stepped > 0 then slots.stepped(p.slots, stepped) end

  pool.uncount(sums, own) -- from here on they are sums over the others
  forget(p)
  own.weight, own.in_flight, own.seen = weight, in_flight, now
  p.in_flight = sums.in_flight + in_flight
  look_ahead(p, horizon, tonumber(furthest or 0), tonumber(furthest_until or 0))
  renew_tag(p)

  -- The slots that the others may want: all but the bucket's share, by its weight or by its rate.
  local of_all = pacer.RATES / p.interval
  own.rate = math.floor(math.min(pacer.RATES / interval, of_all))
  p.share = math.max(of_all * weight / (sums.weights + weight), of_all - sums.rates)
  p.slots.demand = math.min(sums.rates, of_all - math.min(own.rate, of_all * weight / (sums.weights + weight))) / pacer.RATES
  return p
end

-- Returns how many of the wanted jobs the bucket may take now.
function fair_queue.allows(p, want)
  local own, sums = p.own, p.sums
  local free = p.most > 0 and p.most - p.in_flight or math.huge
  local denied = own.denied
  p.wanted, p.held, own.denied = want, free <= 0, 0
  p.allowed = math.max(math.min(want, free), 0)
  if p.allowed == 0 or sums.waiting == 0 then return p.allowed end

  local scarce = free < p.in_horizon
  if scarce and denied > 0 and denied <= p.now - (p.quarter - p.now) then return p.allowed end
  local shared = math.min(free, slots.count_free(p.slots, p.now + p.horizon))
  p.level = (sums.virtual * sums.waiting + own.tag * own.weight + shared * pool.UNIT) / (sums.waiting + own.weight)
  local mine = math.max(math.ceil((p.level - own.tag) * own.weight / pool.UNIT), 0)
  if scarce then
    p.zone = 0
    p.denied = mine == 0
    if p.denied then own.denied = denied > 0 and math.min(denied, p.now) or p.now end
  elseif slots.find(p.slots, p.from) <= p.quarter then
    mine = math.max(mine, math.ceil(slots.count_free(p.slots, p.half)))
  end
  p.allowed = math.min(p.allowed, mine)
  return p.allowed
end

-- Returns the first time from `at` on at which the pool lets the bucket depart. The arguments of successive calls do not decrease.
function fair_queue.ready(p, at)
  p.slots.opens = math.max(quota.ready(p.quotas, p.latest), p.down and p.down.till or 0)
  p.asked = math.max(at, p.from, p.slots.opens)
  return slots.find(p.slots, p.asked)
end

-- Returns whether a slot at that time is left to others.
function fair_queue.skips(p, at)
  if p.zone > 0 and at <= p.quarter then p.zone = p.half end
  return p.level and at > p.zone and p.own.tag >= p.level
end

-- Returns whether the pool delays a departure so far that the bucket does not reach its own rate.
local function puts_off(p, at) return at > p.asked + p.own_interval / 4 end

-- Returns whether the bucket's own bounds exceed its share: then it waits, even if no other bucket is in its way just now.
local function is_fast(p, ready) return p.own.rate > p.share and ready <= p.now + 2 * p.whole end

-- Records a departure at the time that fair_queue.ready returned last.
function fair_queue.departs(p, at)
  local own = p.own
  p.put_off = p.put_off or puts_off(p, at)
  slots.take(p.slots)
  if p.down then downstream.depart(p.down, at) end
  if p.quotas then -- the list is in order: a departure counts as late as the newest one handed out
    p.newest = math.max(at, p.newest or quota.newest(p.quotas, p.latest))
    quota.add(p.quotas, p.newest)
  end
  own.in_flight, own.tag, p.taken = own.in_flight + 1, own.tag + pool.UNIT / own.weight, p.taken + 1
end

-- Returns when a bucket with more to send by its own bounds asks again; -1 when it is woken. The caller
-- subtracts half of its own horizon.
function fair_queue.next(p, at)
  if p.held then return -1 end
  local slot = fair_queue.ready(p, at)
  local early, quarter = p.half - p.now, p.quarter - p.now
  if p.sums.waiting > 0 and not p.put_off and not puts_off(p, slot) then early = p.whole * 3 / 4 end
  p.back_at = math.max(slot - early, math.min(slot - quarter, p.now + quarter))
  if p.denied then p.back_at = math.max(p.back_at, p.now + quarter) end
  return math.floor(p.back_at + p.own_horizon / 2)
end

-- Stores the state of the pool. more: whether the bucket has more to send now; ready: when its own bounds allow it.
function fair_queue.close(p, more, ready)
  local own, sums, k = p.own, p.sums, p.keys
  local was_held = own.held > 0
  own.held, own.waits, own.busy_until, own.credit = 0, 0, 0, p.slots.credit * 1000
  if more and p.held then
    own.held, own.waits = 1, 1
  elseif more then
    own.busy_until = math.floor(math.min(p.back_at or p.now, p.now + 30000000) + p.horizon + pool.GRACE)
    if ready <= p.now + p.horizon and puts_off(p, fair_queue.ready(p, ready)) then p.put_off = true end
    if p.taken < (p.wanted or 1) and (p.put_off or p.allowed and p.taken >= p.allowed or is_fast(p, ready)) then own.waits = 1 end
  end
  if own.waits == 0 and sums.waiting == 0 then sums.virtual = math.max(sums.virtual, own.tag) end
  pool.count(sums, own)
  for _, m in ipairs(p.forgotten) do
    pool.write(k, m)
    pool.place(k, m, false)
  end
  pool.write(k, own)
  pool.place(k, own, was_held)
  pool.write_sums(k, sums, 'furthest', string.format('%d', p.furthest), 'furthest_until', string.format('%d', p.furthest_until),
    slots.write(p.slots))
  if p.down and p.taken > 0 then redis.call('HSET', k.pace, 'down', downstream.write(p.down)) end
  quota.write(p.quotas)
end

return fair_queue
