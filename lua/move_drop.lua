-- move_drop.lua: removes keys of a tag where a bucket does not live, each at once; Redis frees
-- their memory on the side. Who comes late, when the mark says otherwise, removes nothing. May be sent twice.
--
-- KEYS[1]  …:move    hash  the mark (see move.lua)
-- KEYS[2...]  keys of the bucket, 500 at most
-- ARGV[1]  move: its id
-- ARGV[2]  state that the mark has to have: gone, clearing or refused
-- Returns  {0, keys removed}; {1} the mark says otherwise
-- Stores   nothing
-- Needs    Redis 7.0

local mark = KEYS[1]
local move, state = ARGV[1], ARGV[2]
local FIRST = 2

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('HDEL', mark, '')

local stored = redis.call('HMGET', mark, 'state', 'move')
if stored[1] ~= state or stored[2] ~= move then return { 1 } end
if #KEYS < FIRST then return { 0, 0 } end
return { 0, redis.call('UNLINK', unpack(KEYS, FIRST)) }
