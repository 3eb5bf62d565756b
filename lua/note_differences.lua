-- note_differences.lua: records where the configuration of a process differs from the effective settings, for operators. The
-- process repeats it every few seconds while they differ. May be sent twice.
--
-- KEYS[1]  …:differing  hash  process -> "time differences": where its configuration differs from the effective settings; expires
-- ARGV[1]  process: names it
-- ARGV[2]  differences: as text; '' there are none any more
-- Returns  1 recorded; 0 not, as 50 others are
-- Stores   a field for each such process, 50 at most; the next call removes one that was not repeated within 45 seconds.
--          The key expires after a minute
-- Needs    Redis 7.0

--#include lib/server_time.lua

local differing = KEYS[1]
local process, differences = ARGV[1], ARGV[2]
local KEPT, MOST = 45000000, 50

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', differing, process)

local now = server_time()
local noted, count = redis.call('HGETALL', differing), 0
for i = 1, #noted, 2 do
  local at = tonumber(string.match(noted[i + 1], '^%d+') or 0)
  if math.abs(now - at) > KEPT then redis.call('HDEL', differing, noted[i]) else count = count + 1 end
end
if differences == '' or count >= MOST then return 0 end
redis.call('HSET', differing, process, string.format('%d', now) .. ' ' .. differences)
redis.call('PEXPIRE', differing, 60000)
return 1
