-- control.lua: changes of a bucket or a pool by an operator. It pauses or resumes the bucket, overrides
-- settings of all configurations, removes overrides, or only notifies hooks that an operator changed something. With the rate or the
-- burst, max_in_flight may rise (see in_flight.lua). A release ends a hold and an open breaker, and resets the adaptive rate. Hooks are
-- notified if that was the breaker of a bucket: a pool has no hooks. All processes obey from the next script on, and after every
-- restart. May be sent twice.
--
-- KEYS[1]  …:settings  hash  settings of the bucket; …:p:<pool>:conf for a pool
-- KEYS[2]  …:pace    hash  down: see downstream.lua; …:p:<pool>:pace for a pool
-- KEYS[3]  …:count   hash  of a bucket only: events that were lost
-- KEYS[4]  …:outbox  zset  of a bucket only: events -> when to move them on (see outbox.lua)
-- KEYS[5]  …:outbox_texts  hash  of a bucket only: their texts
-- ARGV[1]  channel: to wake dispatchers on
-- ARGV[2]  bucket: the message to publish
-- ARGV[3]  action: pause, resume, release, set, reset or notify
-- ARGV[4]  by: the author
-- ARGV[5...]  pause: the reason; set: field, value, ...; reset: field, ...; notify: the operation
-- Returns  {1} the bucket is not configured; else {0, now, paused since (before; 0 it was not), and for
--          each field its value before and its value now, and then for each field 1 if its value changed, or an override of it began or
--          ended, else 0; after a release the previous text of the downstream, "" none, and how far
--          the clock of its times is ahead of the server's}
-- Stores   paused (when), paused_by, paused_reason; resumed: when the last pause ended; for a field with an override: its value,
--          "own:" and the field with the configured value, "set:" and the field with "time author"; changes: see changes.lua. No
--          expiry: they are effective until they are removed
-- Needs    Redis 7.0

--#include lib/changes.lua
--#include lib/downstream.lua
--#include lib/in_flight.lua
--#include lib/outbox.lua
--#include lib/server_time.lua

local conf, pace, count, outbox_key, outbox_texts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local channel, bucket, action, by = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local FIRST = 5

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', conf, '')

local rate_count, was_paused, events = unpack(redis.call('HMGET', conf, 'rate_count', 'paused', 'events'))
if not rate_count then return { 1 } end
local now = server_time()
local stamp = string.format('%d', now)
local reply = { 0, now, tonumber(was_paused or 0) }

if action == 'pause' then
  local box = outbox.open(not was_paused and events, outbox_key, outbox_texts, count, now)
  outbox.note(box, 'bucket.paused', nil, 1, { by = by, reason = ARGV[FIRST] })
  outbox.write(box)
  -- A repeated pause keeps the time of the first.
  redis.call('HSET', conf, 'paused', was_paused or stamp, 'paused_by', by, 'paused_reason', ARGV[FIRST])
elseif action == 'notify' then
  local box = outbox.open(events, outbox_key, outbox_texts, count, now)
  outbox.note(box, 'operator.changed', nil, 1, { by = by, reason = ARGV[FIRST] })
  outbox.write(box)
elseif action == 'resume' then
  redis.call('HDEL', conf, 'paused', 'paused_by', 'paused_reason')
  if was_paused then redis.call('HSET', conf, 'resumed', stamp) end
elseif action == 'release' then
  local down_text, offset = unpack(redis.call('HMGET', pace, 'down', 'offset'))
  local down = outbox_key and downstream.read(down_text or nil)
  if down and down.breaker ~= downstream.CLOSED then
    local box = outbox.open(events, outbox_key, outbox_texts, count, now)
    outbox.note(box, 'flow.recovered', nil, 1, { reason = 'released', by = by })
    outbox.write(box)
  end
  reply[#reply + 1], reply[#reply + 2] = down_text or '', tonumber(offset or 0)
  redis.call('HDEL', pace, 'down')
else
  local step = action == 'set' and 2 or 1
  local names, values, differs = {}, {}, {}
  for i = FIRST, #ARGV, step do
    local field = ARGV[i]
    local before, own = unpack(redis.call('HMGET', conf, field, 'own:' .. field))
    before = before or ''
    local value = before
    if action == 'set' then
      value = ARGV[i + 1]
      redis.call('HSET', conf, field, value, 'own:' .. field, own or before, 'set:' .. field, stamp .. ' ' .. by)
    elseif own then
      value = own
      redis.call('HSET', conf, field, own)
      redis.call('HDEL', conf, 'own:' .. field, 'set:' .. field)
    end
    reply[#reply + 1], reply[#reply + 2] = before, value
    -- An override that begins or ends is recorded even if the value stays.
    names[#names + 1], values[field], differs[field] = field, { before, value }, before ~= value or (action == 'set') == not own
  end
  local was, is = in_flight.follow(conf)
  if is then
    local given = values.max_in_flight
    if not given then names[#names + 1] = 'max_in_flight' end
    values.max_in_flight, differs.max_in_flight = { given and given[1] or was, is }, true
  end
  changes.note(conf, now, by, action, names, values, differs)
  for i = FIRST, #ARGV, step do reply[#reply + 1] = differs[ARGV[i]] and 1 or 0 end
end
if action ~= 'pause' then redis.pcall('PUBLISH', channel, bucket) end
return reply
