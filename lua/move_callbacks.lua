-- move_callbacks.lua: hands out callbacks of a bucket that are to be moved on, and takes those out that were moved. What was handed out,
-- and not heard of since, is handed out again after 5 s: a dispatcher that goes on for one that died makes a job of the same
-- id, so that none is told twice. May be sent twice: the second time others are handed out.
--
-- KEYS[1]  …:callbacks  zset  name of a callback -> when it is to be handed out (see lib/callbacks.lua)
-- KEYS[2]  …:callback_texts  hash  name of a callback -> its text
-- KEYS[3]  …:callback_counts  hash  how many of these each flow and group has
-- ARGV[1]  at_most: callbacks to hand out, 0 to 100
-- ARGV[2]  most_bytes: of their texts, 1 to 1048576; one is handed out however large it is
-- ARGV[3]  levels: 1 if the bucket has flows, 2 if they are in groups, else 0
-- ARGV[4...]  for each that was handed out: its name, and "" if it was moved on, else the microseconds until it is handed out again; 0
--          puts it back to its place
-- Returns  for each callback: its name, its text
-- Stores   callbacks until they are moved on
-- Needs    Redis 7.0

--#include lib/callbacks.lua
--#include lib/server_time.lua
--#include lib/text.lua

local key, texts, counts, at_most, most_bytes, levels = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local FIRST = 4
local AWAY = 5000000 -- microseconds until one that was handed out is handed out again
local REPAIRED = 100 -- callbacks that no time names, which one run mends

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('ZREM', key, '')

local now = server_time()

local moved = {}
for i = FIRST, #ARGV, 2 do
  local name, delay = ARGV[i], ARGV[i + 1]
  if delay == '' then
    moved[#moved + 1] = name
  else
    redis.call('ZADD', key, 'XX', delay == '0' and string.match(name, '^%d+') or text(now + tonumber(delay)), name)
  end
end
callbacks.remove(key, texts, counts, levels, moved)
if at_most == 0 then return {} end

local reply, bytes = {}, 0
local names = redis.call('ZRANGEBYSCORE', key, '-inf', text(now), 'LIMIT', 0, at_most)
-- Keys that were deleted by hand: a callback that no time names would count for ever.
if #names == 0 and redis.call('ZCARD', key) < redis.call('HLEN', texts) then
  for _, name in ipairs(redis.call('HRANDFIELD', texts, REPAIRED)) do
    redis.call('ZADD', key, 'NX', string.match(name, '^%d+') or '0', name)
  end
end
for _, name in ipairs(names) do
  bytes = bytes + redis.call('HSTRLEN', texts, name)
  if #reply > 0 and bytes > most_bytes then break end
  local stored = redis.call('HGET', texts, name)
  if stored then
    redis.call('ZADD', key, text(now + AWAY), name)
    reply[#reply + 1], reply[#reply + 2] = name, stored
  else
    redis.call('ZREM', key, name)
  end
end
return reply
