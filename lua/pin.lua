-- pin.lua: writes or removes what an operator changed of a limit. It stays over
-- what configurations say until it is removed. May be sent twice.
--
-- KEYS[1]  …:conf  hash  what a bucket, or a limit that is asked on its own, obeys
-- ARGV[1]  the limit's name
-- ARGV[2]  the change as text (Patch of package admission), "" to remove it
-- Returns  {limits_rev}: the number that processes compare; it rises with every call that changes something
-- Stores   the field "pin:" and the limit's name; no expiry: it is obeyed until it is removed
-- Needs    Redis 7.0

local conf = KEYS[1]
local limit, text = ARGV[1], ARGV[2]

local field = 'pin:' .. limit

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('HDEL', conf, '')

local stored = redis.call('HGET', conf, field) or ''
if stored == text then return { tonumber(redis.call('HGET', conf, 'limits_rev') or 0) } end
if text == '' then
  redis.call('HDEL', conf, field)
else
  redis.call('HSET', conf, field, text)
end
-- A time, so that the number is a new one also when the conf was lost.
local time = redis.call('TIME')
local rev = math.max(tonumber(redis.call('HGET', conf, 'limits_rev') or 0) + 1, time[1] * 1000000 + time[2])
redis.call('HSET', conf, 'limits_rev', string.format('%.0f', rev))
return { rev }
