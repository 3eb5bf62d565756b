-- extend.lua: the heartbeat: moves the deadlines of leases that are still held.
-- May be sent twice.
--
-- KEYS[1]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[2]  …:leases  zset  id -> deadline, microseconds
-- ARGV[1]  lease: microseconds from now
-- ARGV[2...]  for each lease: id, epoch, claim
-- Returns  for each lease 1 extended or 0 lost
-- Stores   the new deadlines
-- Needs    Redis 7.0

local meta, leases = KEYS[1], KEYS[2]
local lease = tonumber(ARGV[1])
local FIRST_ARG, WIDTH = 1, 3
local CHUNK = 500
local lease_count = (#ARGV - FIRST_ARG) / WIDTH

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('ZREM', leases, '')

local time = redis.call('TIME')
local deadline = string.format('%.0f', tonumber(time[1]) * 1000000 + tonumber(time[2]) + lease)
local ids = {}
for i = 1, lease_count do ids[i] = ARGV[FIRST_ARG + (i - 1) * WIDTH + 1] end
local stored = redis.call('HMGET', meta, unpack(ids))

local reply, deadlines = {}, {}
for i = 1, lease_count do
  local at = FIRST_ARG + (i - 1) * WIDTH
  local held = false
  if stored[i] then
    local state, epoch, claim = string.match(stored[i], '^(%d) (%d+) %d+ %d+ %d+ (%S+) ')
    held = state == '3' and epoch == ARGV[at + 2] and claim == ARGV[at + 3]
  end
  reply[i] = held and 1 or 0
  if held then
    deadlines[#deadlines + 1] = deadline
    deadlines[#deadlines + 1] = ids[i]
  end
end
for i = 1, #deadlines, CHUNK do
  redis.call('ZADD', leases, unpack(deadlines, i, math.min(i + CHUNK - 1, #deadlines)))
end
return reply
