-- due_schedules.lua: returns the schedules of a bucket that need a dispatcher now, the most urgent first. Writes nothing.
--
-- KEYS[1]  …:schedules  hash  see schedule.lua
-- KEYS[2]  …:schedule_due  zset  name -> when a dispatcher has something to do
-- ARGV[1]  at_most: schedules to name, 1 to 16
-- Returns  {now; when there is something to do with the first of the others, 0 never, not after now: at once; for each: name, state,
--          definition}; a definition has at most 96 KiB
-- Stores   nothing
-- Needs    Redis 7.0

--#include lib/schedule.lua
--#include lib/server_time.lua

local key, due_key = KEYS[1], KEYS[2]
local at_most = tonumber(ARGV[1])

local now = server_time()
local reply, NEXT = { now, 0 }, 2
local found = redis.call('ZRANGE', due_key, 0, at_most, 'WITHSCORES')
for i = 1, #found, 2 do
  local at = tonumber(found[i + 1])
  if at > now or i > 2 * at_most then
    if at < schedule.NEVER then reply[NEXT] = at end
    break
  end
  local name = found[i]
  local state, definition = unpack(redis.call('HMGET', key, name .. ':state', name))
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = name, state or '', definition or ''
end
return reply
