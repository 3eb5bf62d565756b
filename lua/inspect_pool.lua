-- inspect_pool.lua: returns the counts and settings of a pool, and its buckets. Writes nothing.
--
-- KEYS[1]  …:p:<pool>:conf     hash  settings of the pool
-- KEYS[2]  …:p:<pool>:pace     hash  the last slot of any of its buckets; down: see downstream.lua
-- KEYS[3]  …:p:<pool>:buckets  hash  bucket -> its state in the pool (see pool.lua)
-- KEYS[4]  …:p:<pool>:departed  list  times of departures, for the quotas
-- ARGV[1...]  the settings that operators may change: their fields
-- Returns  names and values (see named_reply.lua): now, configured (1), revision, rate_count, rate_per (microseconds), burst,
--          max_in_flight, quotas ("count microseconds;" for each), budgets, quota_use and budget_use (what is used and when it is free, see
--          allowance.lua), downstream, last_slot, in_flight in all its buckets; buckets: for each name, weight, in flight, 1 if it has
--          something to send
--          now, else 0; overrides: for each field, configured value, effective value, "time author"
-- Stores   nothing
-- Needs    Redis 7.0

--#include lib/allowance.lua
--#include lib/charges.lua
--#include lib/named_reply.lua
--#include lib/overrides.lua
--#include lib/pacer.lua
--#include lib/pool.lua
--#include lib/server_time.lua

local conf, pace, buckets, departed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local changeable = { unpack(ARGV) }

local now = server_time()
local revision, rate_count, rate_per, burst, max_in_flight, quotas, budgets =
  unpack(redis.call('HMGET', conf, 'revision', 'rate_count', 'rate_per', 'burst', 'max_in_flight', 'quotas', 'budgets'))
local charged = charges.read_pool({ conf = conf, pace = pace }, now)
local slot, down = unpack(redis.call('HMGET', pace, 'slot', 'down'))
local all, stored, in_flight = {}, redis.call('HGETALL', buckets), 0
for i = 1, #stored, 2 do
  local m = pool.read(stored[i], stored[i + 1])
  if math.abs(now - m.seen) < pool.KEPT then in_flight = in_flight + m.in_flight end
  for _, value in ipairs({ m.name, m.weight, m.in_flight, pool.has_work(m, now) and 1 or 0 }) do all[#all + 1] = value end
end

local reply = {}
named_reply.add_all(reply, '', { now = now, configured = revision and 1, revision = tonumber(revision),
  rate_count = tonumber(rate_count), rate_per = tonumber(rate_per), burst = tonumber(burst),
  max_in_flight = tonumber(max_in_flight), quotas = quotas,
  budgets = budgets, budget_use = allowance.budgets(charged, now, charged.offset),
  quota_use = allowance.text(departed, quotas, now, 0, now + pacer.MAX_HORIZON), downstream = down,
  last_slot = tonumber(slot), in_flight = in_flight, buckets = all, overrides = overrides.list(conf, changeable) })
return reply
