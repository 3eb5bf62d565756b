-- trim_dead.lua: drops dead letters, the oldest first, a chunk at a time. It drops dead letters whose retention has
-- ended. With when_dead_full = "drop_oldest" it also drops the excess above the bounds of the bucket.
-- May be sent twice.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:settings    hash  settings of the bucket
-- KEYS[4]  …:count   hash  dead_bytes, dead_walk: see dlq.lua; dead_dropped_old, dead_dropped_full: how many were dropped; dead_warned: 1
--          while there are more than dead_warn
-- KEYS[5]  …:dead    zset  id -> time of death
-- KEYS[6]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[7]  …:seen_window  list  settled ids, oldest first (see dedupe.lua)
-- KEYS[8]  …:seen_minute  list  the same for ids that the client made
-- KEYS[9]  …:attempts  hash  id -> its first attempt and the last ones (see outcomes.lua)
-- KEYS[10] …:outbox  zset  events -> when to move them on (see outbox.lua)
-- KEYS[11] …:outbox_texts  hash  their texts
-- ARGV[1]  at_most: dead letters to drop in this call, 1 to 500
-- ARGV[2]  most_bytes: of bodies to read in this call; one is read however large
-- Returns  {dropped as their retention has ended, dropped as there were too many, 1 if more are to be dropped, dead
--          letters left, their bytes, their maximum number, their maximum bytes (0 no bound), 1 if it drops rather than
--          refuses}; all 0 for a bucket that is not configured
-- Stores   an event when their number rises above dead_warn; the ids, as dropped, until their dedupe window ends
-- Needs    Redis 7.0

--#include lib/codec.lua
--#include lib/dedupe.lua
--#include lib/dlq.lua
--#include lib/outbox.lua
--#include lib/server_time.lua

local body, meta, conf, count, dead, seen, seen_window, seen_minute, tried, outbox_key, outbox_texts =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local at_most, most_bytes = tonumber(ARGV[1]), tonumber(ARGV[2])

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', dead, '')

local capacity, dead_capacity, dead_max_bytes, dead_retention, dead_drop, dedupe_window, dedupe_max, dead_warn, events =
  unpack(redis.call('HMGET', conf, 'capacity', 'dead_capacity', 'dead_max_bytes', 'dead_retention', 'dead_drop', 'dedupe_window',
    'dedupe_max', 'dead_warn', 'events'))
if not capacity then return { 0, 0, 0, 0, 0, 0, 0, 0 } end
local now = server_time()
local most, bytes_bound = dlq.bounds(tonumber(capacity), dead_capacity, dead_max_bytes)
local retention, drops = tonumber(dead_retention or 0), dead_drop == '1'
local memory = dedupe.open(tonumber(dedupe_window), tonumber(dedupe_max), now, seen, seen_window, seen_minute, count)

local there = redis.call('ZCARD', dead)
local function held() return tonumber(redis.call('HGET', count, 'dead_bytes') or 0) end
local bytes = held()
local some = redis.call('ZRANGE', dead, 0, at_most - 1, 'WITHSCORES')
local old, full, read, more, i = 0, 0, 0, 0, 1
while some[i] do
  local id, ended = some[i], retention > 0 and tonumber(some[i + 1]) + retention <= now
  if not ended and not (drops and (there > most or bytes > bytes_bound)) then break end
  local length = redis.call('HSTRLEN', body, id)
  if i > 1 and read + length > most_bytes then
    more = 1
    break
  end
  read = read + length
  local mark = codec.mark(redis.call('HGET', body, id) or '')
  dlq.remove(dead, body, meta, tried, count, id, mark)
  redis.call('HDEL', body, id)
  redis.call('HDEL', meta, id)
  redis.call('HDEL', tried, id)
  if mark then dedupe.add(memory, id, mark, codec.DROPPED) end
  if ended then old = old + 1 else full = full + 1 end
  there, bytes, i = there - 1, held(), i + 2
end
if i > 2 * at_most then more = 1 end
if old > 0 then redis.call('HINCRBY', count, 'dead_dropped_old', old) end
if full > 0 then redis.call('HINCRBY', count, 'dead_dropped_full', full) end
if old + full > 0 then dedupe.write(memory) end
local warn = tonumber(dead_warn or 0)
local is_above, was_above = warn > 0 and there > warn, redis.call('HEXISTS', count, 'dead_warned') == 1
if is_above and not was_above then
  redis.call('HSET', count, 'dead_warned', '1')
  local box = outbox.open(events, outbox_key, outbox_texts, count, now)
  outbox.note(box, 'bucket.dead_letters', nil, 1, { reason = string.format('%d of %d', there, warn) })
  outbox.write(box)
elseif was_above and not is_above then
  redis.call('HDEL', count, 'dead_warned')
end
return { old, full, more, there, bytes, most < math.huge and most or 0, bytes_bound < math.huge and bytes_bound or 0, drops and 1 or 0 }
