-- redrive.lua: puts dead letters back at the end of their list, as new jobs
-- that keep their id. It never passes the bucket's bound. May be sent twice.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:conf    hash  what the bucket obeys
-- KEYS[4]  …:count   hash  last sequence number, jobs that came as scheduled
-- KEYS[5]  …:q:<priority>:<flow>  list  ids that wait
-- KEYS[6]  …:dead    zset  id -> time of death
-- ARGV[1]  channel to wake dispatchers on
-- ARGV[2]  bucket: what to publish there
-- ARGV[3...]  ids
-- Returns  {1} the bucket is not configured; else {0, and for each id: 1 back in the list,
--          2 the bucket is full, 3 waits already, 0 not a dead letter}
-- Stores   nothing new
-- Needs    Redis 7.0

local body, meta, conf, count, queue, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local channel, bucket = ARGV[1], ARGV[2]
local FIRST_ARG = 2
local META = '^(%d) (%d+) (%d+) (%d+) %d+ (%S+) (.*)$'

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('ZREM', dead, '')

local capacity = tonumber(redis.call('HGET', conf, 'capacity'))
if not capacity then return { 1 } end
local seq, scheduled = unpack(redis.call('HMGET', count, 'seq', 'scheduled'))
seq, scheduled = tonumber(seq or 0), tonumber(scheduled or 0)
local unfinished = redis.call('HLEN', body) - redis.call('ZCARD', dead) - scheduled
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000000 + tonumber(time[2]))

local reply, moved = { 0 }, 0
for i = 1, #ARGV - FIRST_ARG do
  local id = ARGV[FIRST_ARG + i]
  local job, stored = redis.call('HGET', body, id), redis.call('HGET', meta, id)
  local state, epoch, attempts, lost, claim, last
  if job and stored then
    state, epoch, attempts, lost, claim, last = string.match(stored, META)
  end
  if state == '1' then
    reply[i + 1] = 3
  elseif state ~= '5' then
    reply[i + 1] = 0
  elseif unfinished >= capacity then
    reply[i + 1] = 2
  else
    reply[i + 1] = 1
    moved, seq, unfinished = moved + 1, seq + 1, unfinished + 1
    local fingerprint, kind, index, rest = string.match(job, '^%-?%d+ %d+ (...........)(.)(.%d+)(.*)$')
    redis.call('ZREM', dead, id)
    redis.call('HSET', body, id, string.format('%.0f', seq - tonumber(string.sub(index, 2))) .. ' ' .. now .. ' '
      .. fingerprint .. string.lower(kind) .. index .. rest)
    -- A fresh budget, and delivery numbers that go on.
    redis.call('HSET', meta, id, string.format('1 %s 0 %.0f 0 %s ', epoch, attempts + lost, claim) .. last)
    redis.call('RPUSH', queue, id)
  end
end
if moved > 0 then
  redis.call('HSET', count, 'seq', string.format('%.0f', seq))
  redis.call('PUBLISH', channel, bucket)
end
return reply
