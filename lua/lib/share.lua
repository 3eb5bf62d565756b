-- share.lua: which slots of a pool one of its buckets may take; its text goes in front
-- of the scripts that hand them out, behind those of pool.lua, quota.lua and sender.lua.
--
-- Buckets that have something to send share the slots by weight, as in start-time fair
-- queueing (Goyal, Vin and Cheng 1996): each departure moves the virtual time of its bucket on by
-- UNIT / weight, and the next slot is that of the bucket whose time is the lowest. One that
-- was idle begins at the time of those that are busy: it has no credit for it.
--
-- Slots are handed out in a row, so that the last one is all that has to be known. A claim
-- leaves room within the horizon for as many as belong to others that are known to be
-- busy; they find it when they come, half a horizon before it passes. If nobody has come when a
-- quarter is left, whoever does takes them, up to half of the horizon: no slot is
-- lost while anybody has work. Who took too many waits until the others have theirs.
-- Places in flight are shared in the same way: who has left free ones to others for a
-- quarter of the horizon takes them. Nobody goes past the slot of a bucket that has only a few in a
-- horizon by its own rate: it would have to wait for the end of it each time.
--
-- All claims look ahead as far as that of the bucket with the longest horizon: else that
-- one would always be there first.

--#include lib/pool.lua
--#include lib/quota.lua
--#include lib/sender.lua

local share = {
  UNIT = 1000000,
  MAX_AHEAD = 2000, -- slots that are looked at; the next claim sees what is beyond
  RENEWED = 1000000000000, -- virtual time that is subtracted from all once it is reached, to keep digits
}

-- The pool as one of its buckets finds it; nil if it is not configured. from: no slot lies before it; in_flight: that
-- of the bucket.
function share.open(name, keys, weight, now, from, horizon, in_flight)
  local conf, pace, departed, buckets = keys[#keys - 3], keys[#keys - 2], keys[#keys - 1], keys[#keys]
  local s = redis.call('HMGET', conf, 'rate_count', 'rate_per', 'burst', 'max_in_flight', 'quotas')
  if not s[1] then return nil end
  local rate_count, rate_per, burst = tonumber(s[1]), tonumber(s[2]), tonumber(s[3])
  local p = { now = now, from = from, pace = pace, buckets = buckets, rate = sender.pace(rate_count, rate_per, burst),
    rate_count = rate_count, interval = rate_per / rate_count, most = tonumber(s[4] or 0), own_horizon = horizon,
    horizon = horizon, busy = {} }
  p.whole = math.floor(rate_per / rate_count)
  p.part = rate_per - p.whole * rate_count
  p.back = (burst - 1) * p.whole + math.floor((burst - 1) * p.part / rate_count)
  p.run = { now = now, latest = now + pool.MAX_HORIZON }
  p.quotas = quota.open(departed, quota.windows(s[5]), 64)

  -- A pace that is missing begins empty, as that of a bucket.
  local kept = redis.call('HMGET', pace, 'slot', 'frac', 'rate')
  p.slot, p.frac = tonumber(kept[1]), tonumber(kept[2] or 0)
  if not p.slot then
    p.slot, p.frac, p.changed = now + p.back, 0, true
  else
    p.slot, p.frac, p.changed = sender.cut(p.run, p.slot, p.frac, kept[3], p.rate, p.back)
  end
  if p.frac >= rate_count then p.frac = 0 end

  p.others, p.own, p.in_flight = pool.load(buckets, name, in_flight, now)
  local own, weights, least, most = p.own, weight, nil, 0
  for _, m in ipairs(p.others) do
    local began = m.virtual - math.floor(share.UNIT / m.weight) -- when its last departure did
    most = math.max(most, began)
    if pool.is_busy(m, now) then
      p.busy[#p.busy + 1], weights, p.horizon = m, weights + m.weight, math.max(p.horizon, m.horizon)
    end
    if pool.has_work(m, now) then least = math.min(least or began, began) end
  end
  -- What others were ahead by when all went idle is forgotten. Who is busy and falls behind, as by a slow rate of its
  -- own, is owed no more than a horizon.
  if not pool.has_work(own, now) then
    own.virtual = math.max(own.virtual, least or most)
  elseif least then
    local owed = (p.horizon / p.interval + 1) * share.UNIT / weights + share.UNIT / weight
    own.virtual = math.max(own.virtual, least - math.ceil(owed))
  end
  own.weight, own.in_flight, own.horizon, own.seen = weight, in_flight, horizon, now
  return p
end

-- The clock has stepped forwards by so many microseconds: no burst grew in that time, which has not passed.
function share.stepped(p, micros)
  if p.slot < p.now + p.back then p.slot, p.frac, p.changed = math.min(p.slot + micros, p.now + p.back), 0, true end
end

-- When the pool lets its next slot be, or the one that comes so many slots after it.
function share.ready(p, ahead)
  local slot, frac = p.slot, p.frac
  if slot + p.whole < p.from then slot, frac = p.from - p.whole, 0 end
  local at = slot + (1 + ahead) * p.whole + math.floor((frac + (1 + ahead) * p.part) / p.rate_count) - p.back
  return math.max(at, p.from, quota.ready(p.quotas, p.run.latest, ahead))
end

-- How many slots until the end of the horizon are the bucket's, if it wants so many and the others
-- take theirs. free: places in flight; with_places: whether others take theirs of these too.
local function fair(p, want, free, with_places)
  local own, latest, mine = p.own.virtual, p.now + p.horizon, 0
  local virtual, ready = {}, {}
  for n, m in ipairs(p.busy) do virtual[n], ready[n] = m.virtual, m.ready end
  for n = 0, share.MAX_AHEAD do
    local at = share.ready(p, n)
    if mine >= want or at > latest then break end
    if with_places and n >= free then
      p.by_places = true
      break
    end
    local first, lowest = nil, own
    for i in ipairs(p.busy) do
      if virtual[i] < lowest and ready[i] <= at then first, lowest = i, virtual[i] end
    end
    if first then
      if p.busy[first].interval * 4 >= p.horizon then break end
      virtual[first] = lowest + math.floor(share.UNIT / p.busy[first].weight)
      ready[first] = math.max(ready[first], at) + p.busy[first].interval
    else
      own, mine = own + math.floor(share.UNIT / p.own.weight), mine + 1
    end
  end
  return mine
end

-- How many slots the bucket may take now, at most as many as it wants.
function share.allows(p, want)
  local free = p.most > 0 and p.most - p.in_flight or want
  p.held = free <= 0
  want = math.max(math.min(want, free), 0)
  if want == 0 or #p.busy == 0 then
    p.own.denied = 0
    return want
  end
  local patience = p.horizon / 4
  local denied = p.own.denied
  local mine = fair(p, want, free, not (denied > 0 and denied <= p.now - patience))
  -- Nobody has come for these.
  if share.ready(p, 0) <= p.now + patience and not p.by_places then
    while mine < want and share.ready(p, mine) <= p.now + 2 * patience do mine = mine + 1 end
  end
  p.denied = mine == 0 and p.by_places
  p.own.denied = p.denied and (denied > 0 and math.min(denied, p.now) or p.now) or 0
  return mine
end

-- Whether a slot at that time, which the bucket's own bounds put off, would cost others those before it. They come
-- later, and it with them.
function share.skips(p, at)
  return #p.busy > 0 and at > p.now + p.horizon / 4 and at > share.ready(p, 0) + p.whole + 1
end

-- A job departs at that time.
function share.departs(p, at)
  local slot, frac = p.slot + p.whole, p.frac + p.part
  if frac >= p.rate_count then slot, frac = slot + 1, frac - p.rate_count end
  if slot < at then p.slot, p.frac = at, 0 else p.slot, p.frac = slot, frac end
  p.changed = true
  quota.add(p.quotas, at)
  p.own.in_flight, p.own.virtual = p.own.in_flight + 1, p.own.virtual + math.floor(share.UNIT / p.own.weight)
end

-- When to ask again of a bucket that has more to send, the next at that time; -1 when it is woken. The caller
-- takes half of its own horizon off, as ever.
function share.next(p, at)
  if p.held then return -1 end
  local half, quarter = p.horizon / 2, p.horizon / 4
  local back = math.max(at - half, math.min(at - quarter, p.now + quarter))
  if p.denied then back = math.max(back, p.now + quarter) end
  p.back_at = back
  return math.floor(back + p.own_horizon / 2)
end

-- Stores what became of the pool. more: whether the bucket has more to send now; ready and interval: when its own
-- bounds let it, and how long the next one takes.
function share.close(p, more, ready, interval)
  local own = p.own
  own.held = more and p.held and 1 or 0
  own.busy_until, own.ready, own.interval = 0, 0, 0
  if more then
    own.ready, own.interval = math.floor(ready), math.floor(interval)
    if not p.held then
      own.busy_until = math.floor(math.min(p.back_at or p.now, p.now + 30000000) + p.horizon + pool.GRACE)
    end
  end
  if own.virtual > share.RENEWED then
    local base = own.virtual
    for _, m in ipairs(p.busy) do base = math.min(base, m.virtual) end
    for _, m in ipairs(p.others) do
      m.virtual = math.max(m.virtual - base, 0)
      pool.write(p.buckets, m)
    end
    own.virtual = own.virtual - base
  end
  pool.write(p.buckets, own)
  quota.write(p.quotas)
  if p.changed then
    redis.call('HSET', p.pace, 'slot', string.format('%.0f', p.slot), 'frac', string.format('%.0f', p.frac), 'rate', p.rate)
  end
end

return share
