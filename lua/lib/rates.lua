-- rates.lua: the effective rate of a scope: the slowest of its own, its bucket's at a time, by calendar, drain or override, and its pool's.

--#include lib/timetable.lua

local rates = {}

-- Returns the rates above a scope, read at first use: for a bucket the keys of its settings and its pace, nil for a pool;
-- pool_conf is the key of the pool's settings, nil without one.
function rates.above(conf, pace, pool_conf) return { conf = conf, pace = pace, pool_conf = pool_conf } end

local function slower(one, other)
  if other.rate_count <= 0 or one.rate_count > 0 and one.rate_count * other.rate_per <= other.rate_count * one.rate_per then return one end
  return other
end

local function read(key)
  local rate_count, rate_per, text = unpack(redis.call('HMGET', key, 'rate_count', 'rate_per', 'timetable')) -- a pool has no timetable
  return { rate_count = tonumber(rate_count or 0), rate_per = tonumber(rate_per or 0) }, text
end

-- Returns the effective rate at a time of the server's clock. configured: the scope's own rate; nil or without a count: none.
function rates.at(above, configured, at)
  if not above.all then
    above.all = true
    if above.conf then
      local text
      above.bucket, text = read(above.conf)
      above.times = timetable.open(above.conf, text, nil, redis.call('HGET', above.pace, 'drain'))
    end
    if above.pool_conf then above.pool = read(above.pool_conf) end
  end
  local rate = configured or { rate_count = 0, rate_per = 0 }
  if above.bucket then rate = slower(rate, above.times and timetable.rate_at(above.times, above.bucket, at) or above.bucket) end
  if above.pool then rate = slower(rate, above.pool) end
  return rate
end

return rates
