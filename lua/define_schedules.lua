-- define_schedules.lua: writes which schedules a bucket has, as its configuration says. A configuration with a lower revision than the
-- stored one of the bucket changes nothing, nor does one that knows an older place of the bucket. A schedule whose time changes is
-- reckoned anew; what else changes holds from its next fire on. May be sent twice.
--
-- KEYS[1]  …:settings  hash  the revision in force, and the lowest generation that is obeyed here (see relocate.lua)
-- KEYS[2]  …:schedules  hash  see schedule.lua
-- KEYS[3]  …:schedule_due  zset  name -> when a dispatcher has something to do
-- ARGV[1]  revision: of the configuration
-- ARGV[2]  generation: with what the index says (see assign.lua)
-- ARGV[3]  channel: to wake dispatchers on
-- ARGV[4]  message: what to publish there
-- ARGV[5]  action: keep: all names follow, and other schedules are removed; put: names and definitions follow, at most 100
-- ARGV[6...]  name, ... or name, definition, ...; in a definition the line of the time comes first
-- Returns  {2 the bucket has left this place, 1 a higher revision is in force, else 0; how many schedules came, changed or went}
-- Stores   schedules, until the configuration names them no more; at most 1000 a bucket, as Go sees to
-- Needs    Redis 7.0

--#include lib/schedule.lua

local settings, key, due_key = KEYS[1], KEYS[2], KEYS[3]
local revision, generation, channel, message, action = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local FIRST = 6

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('ZREM', due_key, '')

local place = redis.call('HMGET', settings, 'schema', 'generation', 'revision')
if not place[1] or tonumber(place[2] or 0) > generation then return { 2, 0 } end
if tonumber(place[3] or 0) > revision then return { 1, 0 } end

local changed = 0
if action == 'keep' then
  local named = {}
  for i = FIRST, #ARGV do named[ARGV[i]] = true end
  for _, name in ipairs(redis.call('HKEYS', key)) do
    if not string.find(name, ':', 1, true) and not named[name] then
      schedule.remove(key, due_key, name)
      changed = changed + 1
    end
  end
else
  for i = FIRST, #ARGV, 2 do
    local name, text = ARGV[i], ARGV[i + 1]
    local before = redis.call('HGET', key, name)
    local state = before and schedule.read(key, name)
    if before ~= text or not state then
      if not state or string.match(before, '^[^\n]*') ~= string.match(text, '^[^\n]*') then
        state = state or { v = 0 }
        state.due, state.blocked = '0', nil
      end
      state.v = state.v + 1
      redis.call('HSET', key, name, text)
      schedule.write(key, due_key, name, state)
      changed = changed + 1
    elseif not redis.call('ZSCORE', due_key, name) then -- after a change of the pool
      schedule.write(key, due_key, name, state)
      changed = changed + 1
    end
  end
end
if changed > 0 then redis.call('PUBLISH', channel, message) end
return { 0, changed }
