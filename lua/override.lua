-- override.lua: writes or removes what an operator changed of a limit. It stays over
-- what configurations say until it is removed. May be sent twice. Of two changes that
-- were made of the same limit at the same moment, the second is made again of what the first left.
--
-- KEYS[1]  …:settings  hash  what a bucket, or a limit that is asked on its own, obeys
-- ARGV[1]  limit: its name
-- ARGV[2]  change: as text (Patch of package admission), "" to remove it
-- ARGV[3]  limits_rev: that the change was made of; "" for any
-- Returns  {0} the limits are others now: make it again of those;
--          {limits_rev}: the number that processes compare; it rises with every call that changes something
-- Stores   the field "pin:" and the limit's name; no expiry: it is obeyed until it is removed
-- Needs    Redis 7.0

local conf = KEYS[1]
local limit, text, known_rev = ARGV[1], ARGV[2], ARGV[3]

local field = 'pin:' .. limit

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('HDEL', conf, '')

local found = redis.call('HMGET', conf, field, 'limits_rev', 'left_for')
local stored, current = found[1] or '', found[2]
if found[3] then return { 0 } end -- the bucket has left these keys, see relocate.lua
if stored == text then return { tonumber(current or 0) } end
if known_rev ~= '' and known_rev ~= (current or '') then return { 0 } end
if text == '' then
  redis.call('HDEL', conf, field)
else
  redis.call('HSET', conf, field, text)
end
-- A time, so that the number is a new one also when the conf was lost.
local time = redis.call('TIME')
local rev = math.max(tonumber(current or 0) + 1, time[1] * 1000000 + time[2])
redis.call('HSET', conf, 'limits_rev', string.format('%.0f', rev))
return { rev }
