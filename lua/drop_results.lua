-- drop_results.lua: drops stored results by their ids. In a bucket without retention it drops none: existing results are for
-- processes that wait for them. May be sent twice.
--
-- KEYS[1]  …:settings  hash  result_retention
-- KEYS[2]  …:count   hash  result_bytes (see results.lua)
-- KEYS[3]  …:results hash  id -> what was answered
-- KEYS[4]  …:result_ends  zset  id -> when its result is dropped
-- KEYS[5]  …:result_flows  hash  id -> when its result was stored, and its flow
-- KEYS[6]  …:result_order  zset  results by flow and time
-- KEYS[7]  …:result_shares  zset  number and bytes of the results of each flow
-- ARGV[1...]  the ids, 1 to 200
-- Returns  the number of dropped results
-- Stores   nothing
-- Needs    Redis 7.0

--#include lib/results.lua
--#include lib/server_time.lua

local conf, count, kept, ends, flows, order, shares = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', ends, '')

local retention = tonumber(redis.call('HGET', conf, 'result_retention') or 0)
if retention == 0 then return 0 end
local there = {}
for i = 1, #ARGV do
  if redis.call('HEXISTS', kept, ARGV[i]) == 1 then there[#there + 1] = ARGV[i] end
end
return results.drop(results.open(retention, 0, 0, server_time(), { kept, ends, count, flows, order, shares }), there)
