-- inspect_pool.lua: a pool in numbers, with the buckets that are in it. Writes nothing.
--
-- KEYS[1]  …:p:<pool>:conf     hash  settings of the pool
-- KEYS[2]  …:p:<pool>:pace     hash  the last slot of any of its buckets; down: see downstream.lua
-- KEYS[3]  …:p:<pool>:buckets  hash  bucket -> its state in the pool (see pool.lua)
-- KEYS[4]  …:p:<pool>:departed  list  times of departures, for the quotas
-- Returns  {now, configured (1 or 0), revision, rate_count, rate_per in microseconds, burst, max_in_flight (0 none), quotas
--          ("count microseconds;" for each), the text of its downstream ("" none), last slot (0 none), in flight in all its
--          buckets, what is left of its quotas ("" none, see allowance.lua),
--          number of its buckets; for each of these: name, weight, in flight, 1 if it has something to send now, else 0;
--          and for each override: field, value of the configuration, value in force, "time author"}
-- Stores   nothing
-- Needs    Redis 7.0

--#include lib/allowance.lua
--#include lib/overrides.lua
--#include lib/pacer.lua
--#include lib/pool.lua

local conf, pace, buckets, departed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local OVERRIDABLE = { 'rate_count', 'rate_per', 'burst', 'max_in_flight' }

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local settings = redis.call('HMGET', conf, 'revision', 'rate_count', 'rate_per', 'burst', 'max_in_flight', 'quotas')
local all, stored, in_flight = {}, redis.call('HGETALL', buckets), 0
for i = 1, #stored, 2 do
  local m = pool.read(stored[i], stored[i + 1])
  all[#all + 1] = m
  if math.abs(now - m.seen) < pool.KEPT then in_flight = in_flight + m.in_flight end
end

local reply = { now, settings[1] and 1 or 0 }
for i = 1, 5 do reply[#reply + 1] = tonumber(settings[i] or 0) end
reply[#reply + 1] = settings[6] or ''
local of_pace = redis.call('HMGET', pace, 'slot', 'down')
reply[#reply + 1] = of_pace[2] or ''
reply[#reply + 1] = tonumber(of_pace[1] or 0)
reply[#reply + 1] = in_flight
reply[#reply + 1] = allowance.text(departed, settings[6], now, 0, now + pacer.MAX_HORIZON)
reply[#reply + 1] = #all
for _, m in ipairs(all) do
  for _, value in ipairs({ m.name, m.weight, m.in_flight, pool.has_work(m, now) and 1 or 0 }) do reply[#reply + 1] = value end
end
overrides.add(reply, conf, OVERRIDABLE)
return reply
