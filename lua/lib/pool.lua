-- pool.lua: the stored state of a pool. A pool is a downstream that several buckets share. Its rate, its quotas and its bound of jobs in
-- flight apply to the buckets together, and each bucket also obeys its own settings. The keys of all buckets of a pool have the pool's name
-- as their hash tag, so Redis Cluster keeps them in one slot, and a script of one bucket may use the keys of the pool.
--
-- A script of a bucket in a pool gets the pool's seven keys as its last KEYS:
--   …:p:<pool>:conf      hash  rate_count, rate_per, burst, quotas, max_in_flight, revision
--   …:p:<pool>:pace      hash  slot, frac, rate, last, clock, free, unused: see slots.lua; and sums over its buckets:
--     in_flight   requests, computed from leases and batch members (see batch.lua)
--     weights     weights of the busy buckets
--     rates       the sum of the busy buckets' own rates, in departures per 1000 s
--     waiting     weights of the buckets that wait for the pool
--     virtual     the mean of their tags, by weight
--     furthest, furthest_until  the horizon of all claims, and until when it applies (see fair_queue.lua)
--     healed      when all buckets were last checked
--     down        see downstream.lua
--   …:p:<pool>:departed  list  times of departures, for the quotas
--   …:p:<pool>:buckets   hash  bucket -> "weight in_flight tag busy_until rate waits held denied seen credit":
--     weight      its share of the pool
--     in_flight   its requests in flight
--     tag         the virtual time at which its next departure starts (see fair_queue.lua)
--     busy_until  until when it is known to have something to send, 0 unknown: until then it counts in weights and rates
--     rate        its part of rates
--     waits       1 if it counts in waiting and virtual: the pool let it send less than it wanted
--     held        1 if it waits for a place in flight: it is woken when one is free
--     denied      since when it has left free places to others, 0 it has not
--     seen        when one of its own scripts wrote this. The leases of a bucket that was removed from the configuration
--                 are never returned: they count no longer than a lease can last
--     credit      thousandths of slots that it may leave to others (see slots.lua)
--   …:p:<pool>:busy      zset  bucket -> busy_until, of the busy ones
--   …:p:<pool>:held      zset  bucket -> tag, of the held ones
--   …:p:<pool>:gaps      zset  free slots before the last one (see slots.lua)
-- A script reads and writes its own bucket and the sums. Now and then the sweep checks all buckets, and corrects the
-- sums and the sorted sets, also after deletions by hand.

local pool = {
  KEYS = 7,
  UNIT = 1000000, -- of tags: a departure of a bucket of weight 1
  GRACE = 250000, -- microseconds that a bucket may be late and still count as busy
  MAX_HORIZON = 200000, -- see claim.lua
  KEPT = 3900000000, -- microseconds: longer than a lease, and than the time between two sweeps
  RENEW = 60000000,
  LONGEST = 31000000, -- microseconds that a mark may be ahead of now: dispatchers ask every 30 s at least
  HEAL = 1000000, -- microseconds between two checks of all buckets
  MOST_WOKEN = 100, -- buckets that a script wakes
  MOST_GAPS = 4000,
  RENEWED = 1000000000000, -- virtual time from which the lowest waiting tag is subtracted from all tags, to keep digits
}

local function text(n) return string.format('%.0f', n) end

-- Returns the keys of the pool among the keys of a script.
function pool.keys(keys)
  local n = #keys
  return { conf = keys[n - 6], pace = keys[n - 5], departed = keys[n - 4], buckets = keys[n - 3], busy = keys[n - 2],
    held = keys[n - 1], gaps = keys[n] }
end

-- Returns whether a bucket is known to have something to send.
function pool.has_work(m, now) return m.held > 0 or m.busy_until > now and m.busy_until <= now + pool.LONGEST end

-- Parses the state of a bucket; a new state without a text.
function pool.read(name, stored)
  local n, numbers = 0, {}
  for number in string.gmatch(stored or '', '%d+') do n, numbers[n + 1] = n + 1, tonumber(number) end
  local weight, in_flight, tag, busy_until, rate, waits, held, denied, seen, credit = unpack(numbers, 1, 10)
  return { name = name, weight = math.max(weight or 1, 1), in_flight = in_flight or 0, tag = tag or 0, busy_until = busy_until or 0,
    rate = rate or 0, waits = waits or 0, held = held or 0, denied = denied or 0, seen = seen or 0,
    credit = credit or 0 }
end

function pool.write(k, m)
  redis.call('HSET', k.buckets, m.name, string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f', m.weight, m.in_flight,
    m.tag, m.busy_until, m.rate, m.waits, m.held, m.denied, m.seen, m.credit))
end

-- Puts a bucket into the sorted sets to which it belongs, and removes it from the others. was_held: it is in the set of
-- held ones.
function pool.place(k, m, was_held)
  if m.busy_until > 0 then redis.call('ZADD', k.busy, text(m.busy_until), m.name) else redis.call('ZREM', k.busy, m.name) end
  if m.held > 0 then
    redis.call('ZADD', k.held, text(m.tag), m.name)
  elseif was_held then
    redis.call('ZREM', k.held, m.name)
  end
end

-- Parses the sums of the pace.
function pool.sums(in_flight, weights, rates, waiting, virtual)
  return { in_flight = tonumber(in_flight or 0), weights = tonumber(weights or 0), rates = tonumber(rates or 0),
    waiting = tonumber(waiting or 0), virtual = tonumber(virtual or 0) }
end

local function read_sums(k)
  return pool.sums(unpack(redis.call('HMGET', k.pace, 'in_flight', 'weights', 'rates', 'waiting', 'virtual'), 1, 5))
end

-- Writes the sums, and other fields of the pace.
function pool.write_sums(k, sums, ...)
  redis.call('HSET', k.pace, 'in_flight', text(sums.in_flight), 'weights', text(sums.weights), 'rates', text(sums.rates),
    'waiting', text(sums.waiting), 'virtual', text(sums.virtual), ...)
end

-- Adds a bucket to the sums.
function pool.count(sums, m)
  sums.in_flight = sums.in_flight + m.in_flight
  if m.busy_until > 0 then sums.weights, sums.rates = sums.weights + m.weight, sums.rates + m.rate end
  if m.waits > 0 then
    sums.waiting = sums.waiting + m.weight
    sums.virtual = sums.virtual + m.weight * (m.tag - sums.virtual) / sums.waiting
  end
end

-- Subtracts a bucket from the sums again.
function pool.uncount(sums, m)
  sums.in_flight = math.max(sums.in_flight - m.in_flight, 0)
  if m.busy_until > 0 then
    sums.weights, sums.rates = math.max(sums.weights - m.weight, 0), math.max(sums.rates - m.rate, 0)
  end
  if m.waits > 0 then
    sums.waiting = math.max(sums.waiting - m.weight, 0)
    if sums.waiting > 0 then
      sums.virtual = math.max(sums.virtual - m.weight * (m.tag - sums.virtual) / sums.waiting, 0)
    end
  end
end

-- Returns the requests in flight in all buckets; in_flight of them are in the bucket `name`.
function pool.in_flight(keys, name, in_flight)
  local k = pool.keys(keys)
  local own = pool.read(name, redis.call('HGET', k.buckets, name))
  return math.max(tonumber(redis.call('HGET', k.pace, 'in_flight') or 0) - own.in_flight, 0) + in_flight
end

-- Records the requests in flight of a bucket, and wakes as many held buckets as there are free places,
-- lowest tags first. name is '' for a bucket in no pool.
function pool.note(name, keys, in_flight, now, channel)
  if name == '' then return end
  local k = pool.keys(keys)
  local most = tonumber(redis.call('HGET', k.conf, 'max_in_flight') or 0)
  local own = pool.read(name, redis.call('HGET', k.buckets, name))
  local in_all = tonumber(redis.call('HGET', k.pace, 'in_flight') or 0)
  if own.in_flight ~= in_flight then
    in_all = math.max(in_all - own.in_flight, 0) + in_flight
    redis.call('HSET', k.pace, 'in_flight', text(in_all))
  end
  if own.in_flight ~= in_flight or math.abs(now - own.seen) > pool.RENEW then
    own.in_flight, own.seen = in_flight, now
    pool.write(k, own)
  end
  local places = math.min(most - in_all, pool.MOST_WOKEN)
  if places <= 0 then return end
  local woken = redis.call('ZRANGE', k.held, 0, places - 1)
  if #woken == 0 then return end
  local sums = read_sums(k)
  for _, bucket in ipairs(woken) do
    local m = pool.read(bucket, redis.call('HGET', k.buckets, bucket))
    pool.uncount(sums, m)
    -- Until its next claim it counts as busy.
    m.held, m.busy_until = 0, now + pool.MAX_HORIZON + pool.GRACE
    pool.count(sums, m)
    pool.write(k, m)
    pool.place(k, m, true)
    redis.pcall('PUBLISH', channel, bucket)
  end
  pool.write_sums(k, sums)
end

-- Checks all buckets, if no run has lately: corrects the sums and the sorted sets, and removes buckets not seen for
-- longer than a lease can last, and gaps beyond MOST_GAPS.
function pool.heal(name, keys, now)
  if name == '' then return end
  local k = pool.keys(keys)
  local healed, virtual = unpack(redis.call('HMGET', k.pace, 'healed', 'virtual'), 1, 2)
  if math.abs(now - tonumber(healed or 0)) < pool.HEAL then return end
  local all, members, lowest = redis.call('HGETALL', k.buckets), {}, 0
  if tonumber(virtual or 0) > pool.RENEWED then lowest = math.huge end
  for i = 1, #all, 2 do
    local m = pool.read(all[i], all[i + 1])
    if math.abs(now - m.seen) < pool.KEPT then
      members[#members + 1] = m
      if not pool.has_work(m, now) or m.held > 0 then m.busy_until = 0 end
      if not pool.has_work(m, now) then m.waits = 0 end
      if m.waits > 0 then lowest = math.min(lowest, m.tag) end
    else
      redis.call('HDEL', k.buckets, m.name)
    end
  end
  if lowest == math.huge then lowest = tonumber(virtual) end
  local sums = pool.sums(0, 0, 0, 0, math.max(tonumber(virtual or 0) - lowest, 0))
  redis.call('DEL', k.busy, k.held)
  for _, m in ipairs(members) do
    m.tag = math.max(m.tag - lowest, 0)
    pool.count(sums, m)
    pool.write(k, m)
    pool.place(k, m, false)
  end
  pool.write_sums(k, sums, 'healed', text(now))
  redis.call('ZREMRANGEBYRANK', k.gaps, 0, -pool.MOST_GAPS - 1)
end

return pool
