-- probe.lua: checks whether Redis runs a script of this program and stores its writes. It begins with a write that Redis refuses
-- when it is out of memory. May be sent twice.
--
-- KEYS[1]  tundish:{fleet}:probe  string  empty
-- Returns  1
-- Stores   the key, for a minute
-- Needs    Redis 7.0

local probe = KEYS[1]
local KEPT = 60000 -- milliseconds

redis.call('SET', probe, '', 'PX', KEPT)
return 1
