-- trim_results.lua: drops results whose retention has ended, the oldest first. May be sent twice.
--
-- KEYS[1]  …:count   hash  result_bytes (see results.lua)
-- KEYS[2]  …:results hash  id -> what was answered
-- KEYS[3]  …:result_ends  zset  id -> when its result is dropped
-- KEYS[4]  …:result_flows  hash  id -> when its result was stored, and its flow
-- KEYS[5]  …:result_order  zset  results by flow and time
-- KEYS[6]  …:result_shares  zset  number and bytes of the results of each flow
-- ARGV[1]  at_most: results to drop in this call
-- Returns  the number of dropped results
-- Stores   nothing
-- Needs    Redis 7.0

--#include lib/results.lua
--#include lib/server_time.lua

local count, kept, ends, flows, order, shares = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local at_most = tonumber(ARGV[1])

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', ends, '')

local now = server_time()
return results.expire(results.open(0, 0, 0, now, { kept, ends, count, flows, order, shares }), at_most)
