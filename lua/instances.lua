-- instances.lua: registers a process and counts the registered ones. May be sent twice.
--
-- KEYS[1]  tundish:instances  zset  id of a process → when it last registered, microseconds
-- ARGV[1]  id: of this process
-- ARGV[2]  silence: microseconds after which a silent process no longer counts
-- Returns  {number of processes, this one included}
-- Stores   the time; expires when all processes are silent
-- Needs    Redis 7.0

--#include lib/server_time.lua

local instances = KEYS[1]
local id, silence = ARGV[1], tonumber(ARGV[2])

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', instances, '')

local now = server_time()
redis.call('ZADD', instances, string.format('%d', now), id)
redis.call('ZREMRANGEBYSCORE', instances, '-inf', string.format('(%d', now - silence))
-- A time in the future means that the clock stepped back.
redis.call('ZREMRANGEBYSCORE', instances, string.format('(%d', now), '+inf')
redis.call('PEXPIRE', instances, string.format('%d', math.ceil(silence / 1000)))
return { redis.call('ZCARD', instances) }
