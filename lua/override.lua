-- override.lua: writes or removes the override of a limit. It takes precedence over all
-- configurations until it is removed. May be sent twice. If two changes of the same limit come at the
-- same moment, the second is repeated on the result of the first.
--
-- KEYS[1]  …:settings  hash  settings of a bucket, or conf of a separate limit
-- ARGV[1]  limit: its name
-- ARGV[2]  change: as text (Patch of package admission), "" to remove it
-- ARGV[3]  limits_rev: of the limits that the change was made of; "" for any
-- Returns  {0} the limits have changed: make the change again on the new ones;
--          {limits_rev}: the number that processes compare; it rises with every call that changes something
-- Stores   the field "pin:" and the limit's name; no expiry: it is effective until it is removed
-- Needs    Redis 7.0

--#include lib/server_time.lua

local conf = KEYS[1]
local limit, text, known_rev = ARGV[1], ARGV[2], ARGV[3]

local field = 'pin:' .. limit

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', conf, '')

local stored, current, left_for = unpack(redis.call('HMGET', conf, field, 'limits_rev', 'left_for'))
if left_for then return { 0 } end -- the bucket has moved to other keys, see relocate.lua
if (stored or '') == text then return { tonumber(current or 0) } end
if known_rev ~= '' and known_rev ~= (current or '') then return { 0 } end
if text == '' then
  redis.call('HDEL', conf, field)
else
  redis.call('HSET', conf, field, text)
end
-- A time, so that the number is new even if the settings were lost.
local rev = math.max(tonumber(current or 0) + 1, server_time())
redis.call('HSET', conf, 'limits_rev', string.format('%d', rev))
return { rev }
