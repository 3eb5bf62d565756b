-- move_write.lua: writes what move_read.lua has read of a key, if the move that it is for is still under way
-- there: who comes late changes nothing. May be sent twice. Its first write is one that Redis refuses when
-- it is out of memory, so that nothing is half done then.
--
-- KEYS[1]  …:move    hash  the mark of a tag to which the bucket comes (see move.lua)
-- KEYS[2]  the key, of any type
-- ARGV[1]  move: its id
-- ARGV[2]  type: hash, zset, list or string
-- ARGV[3]  offset: of a list, how many elements are before these
-- ARGV[4]  milliseconds until the key expires, negative if never
-- ARGV[5...]  the elements, as they were read, 500 strings at most
-- Returns  {0} written, now or before; {1} that move is not under way here; {2} of a list, what is before these is not
--          there
-- Stores   the key
-- Needs    Redis 7.0

local mark, key = KEYS[1], KEYS[2]
local move, kind, offset, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local FIRST = 5

local stored = redis.call('HMGET', mark, 'state', 'move')
if stored[1] ~= 'coming' or stored[2] ~= move then return { 1 } end
if kind == 'hash' then
  redis.call('HSET', key, unpack(ARGV, FIRST))
elseif kind == 'zset' then
  redis.call('ZADD', key, unpack(ARGV, FIRST))
elseif kind == 'string' then
  redis.call('SET', key, ARGV[FIRST])
else
  local there = redis.call('LLEN', key)
  if there < offset then return { 2 } end
  if there - offset <= #ARGV - FIRST then redis.call('RPUSH', key, unpack(ARGV, FIRST + there - offset)) end
end
if ttl > 0 then redis.call('PEXPIRE', key, string.format('%.0f', ttl)) end
return { 0 }
