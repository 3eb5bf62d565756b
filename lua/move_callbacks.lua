-- move_callbacks.lua: hands out callbacks of a bucket to move on, and removes those that were moved. A callback that was handed out
-- without a report is handed out again after 5 s. A dispatcher that takes over from a crashed one enqueues a job of the same
-- id, so none is sent twice. A job of a bundle is counted when its callback is removed. May be sent twice: the second time other
-- callbacks are handed out.
--
-- KEYS[1]  …:callbacks  zset  name of a callback -> when to hand it out (see lib/callbacks.lua)
-- KEYS[2]  …:callback_texts  hash  name of a callback -> its text
-- KEYS[3]  …:callback_counts  hash  number of callbacks of each flow and group
-- KEYS[4]  …:bundles  hash  id -> see bundle.lua
-- KEYS[5]  …:bundle_ends  zset  id -> when it is forgotten
-- ARGV[1]  at_most: callbacks to hand out, 0 to 100
-- ARGV[2]  most_bytes: of their texts, 1 to 1048576; one is handed out however large it is
-- ARGV[3]  levels: 1 if the bucket has flows, 2 if they are in groups, else 0
-- ARGV[4]  notified: which bundles get a callback when they finish: "all", "own" those with a URL, "none"
-- ARGV[5...]  for each that was handed out: its name; "" if it was moved on, else the microseconds until it is handed out again; 0
--          puts it back to its place; where it was moved on, and its job is in a bundle, "state again bundle": the code of the state in
--          which the job ended, 1 if it was counted as dead before, else 0, and the bundle; else ""
-- Returns  for each callback: its name, its text
-- Stores   callbacks until they are moved on; bundles until seven days after their last change
-- Needs    Redis 7.0

--#include lib/bundle.lua
--#include lib/callbacks.lua
--#include lib/server_time.lua
--#include lib/text.lua

local key, texts, counts, at_most, most_bytes, levels = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local bundles_key, bundle_ends, notified = KEYS[4], KEYS[5], ARGV[4]
local FIRST, WIDTH = 5, 3
local AWAY = 5000000 -- microseconds until a callback is handed out again
local REPAIRED = 100 -- callbacks without a time that one run repairs

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', key, '')

local now = server_time()

local moved, counted = {}, {}
for i = FIRST, #ARGV, WIDTH do
  local name, delay, of_bundle = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if delay == '' then
    moved[#moved + 1] = name
    counted[name] = of_bundle ~= '' and of_bundle or nil
  else
    redis.call('ZADD', key, 'XX', delay == '0' and string.match(name, '^%d+') or text(now + tonumber(delay)), name)
  end
end
local were = callbacks.remove(key, texts, counts, levels, moved)

-- Jobs of bundles. A removed bundle no longer counts.
local open, order = {}, {}
for _, name in ipairs(moved) do
  local state, again, id = string.match(were[name] and counted[name] or '', '^(%d) ([01]) (.+)$')
  local b = id and (open[id] or bundle.parse(redis.call('HGET', bundles_key, id)))
  if b then
    if not open[id] then open[id], order[#order + 1] = b, id end
    local word = bundle.WORDS[state]
    b[word] = b[word] + 1
    if again == '1' then b.dead = b.dead - 1 end
  end
end
if #order > 0 then
  local noted = callbacks.open(key, texts, now, counts, levels)
  for _, id in ipairs(order) do bundle.write(bundles_key, bundle_ends, id, open[id], now, notified, noted) end
  callbacks.write(noted)
end
if at_most == 0 then return {} end

local reply, bytes = {}, 0
local names = redis.call('ZRANGEBYSCORE', key, '-inf', text(now), 'LIMIT', 0, at_most)
-- After a deletion by hand, a callback without a time would count for ever.
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
