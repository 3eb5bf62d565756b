-- control_drain.lua: an operator starts a drain of a bucket, or stops it. While it runs, the bucket sends whatever its timetable says (see
-- timetable.lua). It is stored in Redis, so it needs no process to run, and ends by itself. One drain runs at a time. May be sent
-- twice: a drain of the same id is the same drain.
--
-- KEYS[1]  …:settings  hash  settings of the bucket
-- KEYS[2]  …:pace    hash  drain: see timetable.lua
-- ARGV[1]  channel: to wake dispatchers on
-- ARGV[2]  bucket: the message to publish
-- ARGV[3]  action: start or stop
-- ARGV[4]  by: the author
-- ARGV[5]  id: of the drain, no spaces; "" to stop
-- ARGV[6]  rate_count: of its rate, if slower than the effective rate; else 0
-- ARGV[7]  rate_per: of the same, microseconds
-- ARGV[8]  most: maximum number of jobs to send, 0 any number
-- ARGV[9]  until_empty: 1 it ends when the bucket is empty
-- Returns  {1} the bucket is not configured; else {0, now, outcome, the text of the drain, "" none}; outcome: 0 it was started, or
--          stopped; 1 another drain runs, or none does
-- Stores   the drain, until the next one
-- Needs    Redis 7.0

--#include lib/server_time.lua
--#include lib/timetable.lua

local settings, pace = KEYS[1], KEYS[2]
local channel, bucket, action, by, id = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local rate_count, rate_per, most, until_empty = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9] == '1'

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', settings, '')

if redis.call('HEXISTS', settings, 'rate_count') == 0 then return { 1 } end
local now = server_time()
local before = redis.call('HGET', pace, 'drain')
local drain = timetable.read_drain(before)
local runs = drain and drain.state == timetable.RUNNING

if action == 'stop' then
  if not runs then return { 0, now, 1, before or '' } end
  drain.state, drain.ended = timetable.STOPPED, now
else
  if drain and drain.id == id then return { 0, now, 0, before } end
  if runs then return { 0, now, 1, before } end
  drain = { state = timetable.RUNNING, id = id, since = now, count = rate_count, per = rate_per, most = most, gone = 0,
    until_empty = until_empty, ended = 0, by = by }
end
local text = timetable.write_drain(drain)
redis.call('HSET', pace, 'drain', text)
redis.pcall('PUBLISH', channel, bucket)
return { 0, now, 0, text }
