-- move_events.lua: hands out the events of a bucket to move on, and removes moved ones from the outbox. A handed-out event
-- stays the same until it is removed: a dispatcher that takes over from a crashed one enqueues a job of the same id, so
-- none is sent twice. May be sent twice.
--
-- KEYS[1]  …:outbox  zset  name of an event -> when to move it on (see lib/outbox.lua)
-- KEYS[2]  …:outbox_texts  hash  name of an event -> number of events, and the detail of the last one
-- ARGV[1]  at_most: events to hand out, 1 to 100
-- ARGV[2...]  for each event that was moved on: its name, since
-- Returns  for each event: its name, its number, since (time of the first one, microseconds), detail (JSON)
-- Stores   events until they are moved on, and a minute longer, while others of the same name wait; at most 1000 per bucket
-- Needs    Redis 7.0

--#include lib/outbox.lua
--#include lib/server_time.lua

local key, texts, at_most = KEYS[1], KEYS[2], tonumber(ARGV[1])
local FIRST = 2

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', key, '')

local now = server_time()
for i = FIRST, #ARGV, 2 do outbox.is_moved(key, texts, ARGV[i], tonumber(ARGV[i + 1]), now) end
return outbox.take(key, texts, at_most, now)
