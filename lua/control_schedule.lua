-- control_schedule.lua: an operator makes or changes a schedule, removes one, pauses it, resumes it, or fires it now. It does not make,
-- change or remove a schedule of the configuration. If the configuration has a schedule with the name of a removed one, that
-- takes its place. A resumed schedule continues with its next fire: fires missed during the pause are lost. A requested fire
-- waits for a dispatcher, and also happens during a pause. May be sent twice: a repeated change has no effect, and a
-- second fire is not added while one waits.
--
-- KEYS[1]  …:settings  hash  missing where the bucket is not
-- KEYS[2]  …:schedules  hash  see schedule.lua
-- KEYS[3]  …:schedule_due  zset  name -> when a dispatcher has something to do
-- ARGV[1]  channel: to wake dispatchers on
-- ARGV[2]  message: the message to publish
-- ARGV[3]  name
-- ARGV[4]  action: set, remove, pause, resume or fire
-- ARGV[5]  by: the author
-- ARGV[6]  text: of a pause its reason; of set the definition, at most 96 KiB
-- ARGV[7]  most: maximum number of schedules of the bucket that set makes
-- Returns  {1} the bucket is not configured; {0, 4 there are too many, 3 it is one of the configuration, 2 there is no such schedule, 1
--          changed, 0 unchanged; when the waiting fire was requested, microseconds, 0 none}
-- Stores   the fields of schedule.lua; a schedule that set has made, until it is removed
-- Needs    Redis 7.0

--#include lib/schedule.lua
--#include lib/server_time.lua

local settings, key, due_key = KEYS[1], KEYS[2], KEYS[3]
local channel, message, name, action, by, text, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', due_key, '')

if redis.call('EXISTS', settings) == 0 then return { 1 } end
local state = schedule.read(key, name)
if not state and action ~= 'set' then return { 0, 2, 0 } end
local now = server_time()
local now_text = string.format('%d', now)
local changed = false

if action == 'set' or action == 'remove' then
  if state and redis.call('HEXISTS', key, name .. ':made') == 0 then return { 0, 3, 0 } end
  if action == 'remove' then
    local configured = redis.call('HGET', key, name .. ':configured')
    schedule.remove(key, due_key, name)
    if configured then schedule.define(key, due_key, name, configured, now) end
    state, changed = {}, true
  else
    if not state and redis.call('ZCARD', due_key) >= most then return { 0, 4, 0 } end
    changed = schedule.define(key, due_key, name, text, now)
    if changed then redis.call('HSET', key, name .. ':made', now_text .. ' ' .. by) end
    state = schedule.read(key, name)
  end
else
  if action == 'pause' and not state.paused then
    state.paused, state.paused_by, state.paused_reason, changed = now_text, by, text, true
  elseif action == 'resume' and state.paused then
    state.paused, state.paused_by, state.paused_reason, changed = nil, nil, nil, true
    state.due, state.since, state.blocked = '0', now_text, nil
  elseif action == 'fire' and not state.manual then
    state.manual, state.manual_by, changed = now_text, by, true
  end
  if changed then schedule.write(key, due_key, name, state) end
end
if changed then redis.pcall('PUBLISH', channel, message) end
return { 0, changed and 1 or 0, tonumber(state.manual or 0) }
