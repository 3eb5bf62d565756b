-- define_schedules.lua: writes the schedules of a bucket's configuration. It only restores missing entries of schedule_due if the stored
-- revision is higher, if an authoritative process has replaced the settings since (see configure.lua), or if the caller has an older
-- place of the bucket.
-- A schedule that was made through the
-- API stays: one of the same name in the configuration waits until it is removed. May be sent twice.
--
-- KEYS[1]  …:settings  hash  the effective revision, the start of its writer, and the lowest valid generation (see relocate.lua)
-- KEYS[2]  …:schedules  hash  see schedule.lua
-- KEYS[3]  …:schedule_due  zset  name -> when a dispatcher has something to do
-- ARGV[1]  revision: of the configuration
-- ARGV[2]  generation: of the bucket in the index (see assign.lua)
-- ARGV[3]  channel: to wake dispatchers on
-- ARGV[4]  message: the message to publish
-- ARGV[5]  started: of the write of the settings, see configure.lua
-- ARGV[6]  keep: number of names that follow, all of the configuration: its other schedules are removed; "" all stay
-- ARGV[7...]  the names, with keep; then name, definition, ... of at most 100; in a definition the line of the time comes first
-- Returns  {3 there is more to do: call again, 2 the bucket has moved away, 1 other settings are effective, else 0; the number
--          of schedules added, changed or removed; the names of those that wait for the removal of one of the API}
-- Stores   schedules, until they are removed from the configuration; at most 1000 per bucket, which Go ensures
-- Needs    Redis 7.0

--#include lib/schedule.lua
--#include lib/server_time.lua

local settings, key, due_key = KEYS[1], KEYS[2], KEYS[3]
local revision, generation, channel, message = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local started, keep = tonumber(ARGV[5]), ARGV[6]
local FIRST, AT_ONCE = 7, 100

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', due_key, '')

local now = server_time()
local stored_schema, stored_generation, revision_text, started_text =
  unpack(redis.call('HMGET', settings, 'schema', 'generation', 'revision', 'started'))
if not stored_schema or tonumber(stored_generation or 0) > generation then return { 2, 0 } end

local names, made, waits, changed = {}, {}, {}, 0
for _, field in ipairs(redis.call('HKEYS', key)) do
  local name, kind = string.match(field, '^([^:]*):?(.*)$')
  if kind == '' then names[#names + 1] = name end
  if kind == 'made' then made[name] = true end
  if kind == 'configured' then waits[name] = true end
end
-- After a change of the pool nothing is due: that key is rebuilt.
local lacking = #names - redis.call('ZCARD', due_key)
for _, name in ipairs(lacking > 0 and names or {}) do
  local state = not redis.call('ZSCORE', due_key, name) and schedule.read(key, name)
  if state then
    schedule.write(key, due_key, name, state)
    changed = changed + 1
    if changed == AT_ONCE and lacking > AT_ONCE then return { 3, changed } end
  end
end

local stored_revision = tonumber(revision_text or 0)
local stale = stored_revision > revision or stored_revision == revision and tonumber(started_text or 0) > started
local reply, CHANGED, first = { stale and 1 or 0, 0 }, 2, FIRST
if keep ~= '' and not stale then
  first = FIRST + tonumber(keep)
  local named = {}
  for i = FIRST, first - 1 do named[ARGV[i]] = true end
  for _, name in ipairs(names) do
    if not named[name] and made[name] then
      if waits[name] then redis.call('HDEL', key, name .. ':configured') end
    elseif not named[name] then
      schedule.remove(key, due_key, name)
      changed = changed + 1
    end
  end
end
if not stale then
  for i = first, #ARGV, 2 do
    local name, text = ARGV[i], ARGV[i + 1]
    if made[name] then
      redis.call('HSET', key, name .. ':configured', text)
      reply[#reply + 1] = name
    elseif schedule.define(key, due_key, name, text, now) then
      changed = changed + 1
    end
  end
end
if changed > 0 then redis.pcall('PUBLISH', channel, message) end
reply[CHANGED] = changed
return reply
