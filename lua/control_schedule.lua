-- control_schedule.lua: an operator pauses a schedule, resumes it, or has it fire now. A schedule that is resumed goes on with its next
-- fire: what it would have fired meanwhile is not made up for. A fire that was asked for waits for a dispatcher, and goes ahead
-- of a pause. May be sent twice: a second fire is not asked for while one waits.
--
-- KEYS[1]  …:schedules  hash  see schedule.lua
-- KEYS[2]  …:schedule_due  zset  name -> when a dispatcher has something to do
-- ARGV[1]  channel: to wake dispatchers on
-- ARGV[2]  message: what to publish there
-- ARGV[3]  name
-- ARGV[4]  action: pause, resume or fire
-- ARGV[5]  by: who asks
-- ARGV[6]  reason: of a pause
-- Returns  {} there is no such schedule; {1 changed, 0 it was so; when the fire that waits was asked for, microseconds, 0 none does}
-- Stores   what schedule.lua says
-- Needs    Redis 7.0

--#include lib/schedule.lua

local key, due_key = KEYS[1], KEYS[2]
local channel, message, name, action, by, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('ZREM', due_key, '')

local state = schedule.read(key, name)
if not state then return {} end
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000000 + tonumber(time[2]))
local changed = 0
if action == 'pause' and not state.paused then
  state.paused, state.paused_by, state.paused_reason, changed = now, by, reason, 1
elseif action == 'resume' and state.paused then
  state.paused, state.paused_by, state.paused_reason, changed = nil, nil, nil, 1
  state.due, state.blocked = '0', nil
elseif action == 'fire' and not state.manual then
  state.manual, state.manual_by, changed = now, by, 1
end
if changed == 1 then
  schedule.write(key, due_key, name, state)
  redis.call('PUBLISH', channel, message)
end
return { changed, tonumber(state.manual or 0) }
