-- heartbeat.lua: the heartbeat of a process: reports that it lives, and its counters since the last heartbeat. The reply names the buckets
-- that somebody watches: then the process sends one each second. May be sent twice: a repeated number updates only the time and the
-- description.
--
-- KEYS[1]  tundish:{fleet}:heartbeats  zset  process -> time of its last heartbeat, microseconds
-- KEYS[2]  tundish:{fleet}:processes  hash  process -> "since says": when it started, microseconds, and its description, JSON
-- KEYS[3]  tundish:{fleet}:watched  hash  bucket, or "*" for all -> until when it is watched
-- KEYS[4]  tundish:{fleet}:counts:<process>  hash  bucket -> "at counters": time and counters; "" -> number of the last heartbeat
-- KEYS[5]  tundish:{fleet}:history:<number>  hash  part -> lines "short arrived refused departed failed", one for each bucket of the part
-- ARGV[1]  process: its id
-- ARGV[2]  number: of the heartbeat, 1 for the first of the process
-- ARGV[3]  age: of the process, microseconds
-- ARGV[4]  says: the description of the process, JSON
-- ARGV[5]  period: the number of the five minutes to which the history belongs
-- ARGV[6...]  for each changed bucket, 250 at most: its name; its counters ("" the process no longer has it); "part short": the field of
--          the history and the bucket's short name there ("" none); how many more arrived, were refused, departed and failed since the
--          previous heartbeat
-- Returns  {now, period, 1 if the counters of the process were unknown, else 0, then the name of each watched bucket, "*" for all}.
--          If the period is not the caller's, nothing changes: the caller repeats the call with the returned one
-- Stores   the process, until it is silent for a minute: verdicts count its deliveries until then; its counters for an hour
--          after its last heartbeat, so that a heartbeat repeated after an outage is recognized; the history for a day
-- Needs    Redis 7.0

--#include lib/server_time.lua
--#include lib/text.lua

local heartbeats, processes, watched, counts, history = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, number, age, says, period = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local FIRST, WIDTH = 6, 7
local SILENCE = 60000000 -- microseconds after which a silent process is removed: see Forgotten in package fleet
local PERIOD = 300000000
local KEPT, DAY = 3600000, 86700000 -- milliseconds: counters; the history: a day and a period
local MOST = 1000 -- processes

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', heartbeats, '')

local now = server_time()
local last = tonumber(redis.call('HGET', counts, ''))
local current = math.floor(now / PERIOD)
local reply = { now, current, last and 0 or 1 }
for _, bucket in ipairs(redis.call('HKEYS', watched)) do
  if tonumber(redis.call('HGET', watched, bucket)) > now then
    reply[#reply + 1] = bucket
  else
    redis.call('HDEL', watched, bucket)
  end
end
if current ~= period then return reply end

-- Processes that are silent, also after the clock stepped back.
local silent = redis.call('ZRANGEBYSCORE', heartbeats, '-inf', text(now - SILENCE), 'LIMIT', 0, 100)
for _, one in ipairs(redis.call('ZRANGEBYSCORE', heartbeats, text(now + SILENCE), '+inf', 'LIMIT', 0, 100)) do silent[#silent + 1] = one end
if #silent > 0 then
  redis.call('ZREM', heartbeats, unpack(silent))
  redis.call('HDEL', processes, unpack(silent))
end

if redis.call('ZSCORE', heartbeats, id) or redis.call('ZCARD', heartbeats) < MOST then
  redis.call('ZADD', heartbeats, text(now), id)
  redis.call('HSET', processes, id, text(now - age) .. ' ' .. says)
end
if last and last >= number then return reply end
redis.call('HSET', counts, '', text(number))
for i = FIRST, #ARGV, WIDTH do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', counts, ARGV[i])
  else
    redis.call('HSET', counts, ARGV[i], text(now) .. ' ' .. ARGV[i + 1])
  end
end
redis.call('PEXPIRE', counts, KEPT)

local parts, order = {}, {}
for i = FIRST, #ARGV, WIDTH do
  local part, short = string.match(ARGV[i + 2], '^(%S+) (%S+)$')
  if part then
    if not parts[part] then
      local lines = {}
      for name, line in string.gmatch(redis.call('HGET', history, part) or '', '(%S+) ([^\n]+)') do lines[name] = line end
      parts[part], order[#order + 1] = lines, part
    end
    local a, r, d, f = string.match(parts[part][short] or '0 0 0 0', '(%d+) (%d+) (%d+) (%d+)')
    parts[part][short] = string.format('%d %d %d %d', a + ARGV[i + 3], r + ARGV[i + 4], d + ARGV[i + 5], f + ARGV[i + 6])
  end
end
for _, part in ipairs(order) do
  local lines = {}
  for name, line in pairs(parts[part]) do lines[#lines + 1] = name .. ' ' .. line end
  redis.call('HSET', history, part, table.concat(lines, '\n'))
end
if #order > 0 then redis.call('PEXPIRE', history, DAY) end
return reply
