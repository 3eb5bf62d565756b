-- advance_schedule.lua: moves a schedule on without a job: to its first fire, over fires that are given up, or, while the job of a fire
-- is not admitted, to the next attempt. enqueue.lua handles a fire with a job. May be sent twice: the second call finds that
-- another fire is due.
--
-- KEYS[1]  …:schedules  hash  see schedule.lua
-- KEYS[2]  …:schedule_due  zset  name -> when a dispatcher has something to do
-- ARGV[1]  fire: see schedule.lua
-- ARGV[2]  blocked: why its job was not admitted, at most 200 bytes; "" it is over
-- ARGV[3]  pause: microseconds until the next attempt
-- Returns  1; 0 if another dispatcher was faster, or the schedule is paused or was changed
-- Stores   the fields of schedule.lua
-- Needs    Redis 7.0

--#include lib/schedule.lua
--#include lib/server_time.lua

local key, due_key = KEYS[1], KEYS[2]
local text, blocked, pause = ARGV[1], ARGV[2], tonumber(ARGV[3])

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', due_key, '')

local now = server_time()
local fire = schedule.open(key, due_key, text, now)
if not fire then return 0 end
if blocked ~= '' then
  fire.state.blocked = blocked
  schedule.write(key, due_key, fire.name, fire.state, string.format('%d', now + pause))
else
  schedule.finish(fire)
end
return 1
