-- retry_now.lua: makes the waiting retries of a flow due, because an operator has repaired their receiver. It reads
-- some of the jobs that are due later, in their order. Jobs enqueued with a delay and never sent keep their time. A job that becomes
-- due keeps its attempts, its place among the others and all bounds: the rate, the quotas, a hold and the turns. Sent twice, it finds
-- nothing left to do.
--
-- KEYS[1]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[2]  …:settings    hash  settings of the bucket
-- KEYS[3]  …:pace    hash  offset: of the engine's clock
-- KEYS[4]  …:flows   hash  flow -> its state (see flow.lua)
-- KEYS[5]  …:flow_settings  hash  flow -> its own settings
-- KEYS[6]  …:due:    zset  flow -> its turn, by the engine's clock; where flows are in groups …:due_groups, group -> its turn
-- KEYS[7...]  the five places of the flow: …:q:<priority>:<flow>, four lists, the most important first, then …:later:<flow>, a zset; where
--          flows are in groups then what group.load wants
-- ARGV[1]  channel: to wake dispatchers on
-- ARGV[2]  bucket: the message to publish
-- ARGV[3]  levels: 1 if the bucket has flows, 2 if they are in groups, 0 if it has only the flow ""
-- ARGV[4]  flow: its name
-- ARGV[5]  from: jobs that are due at this time or later, microseconds; 0 all
-- ARGV[6]  skip: of the jobs that are due at exactly that time, how many were read
-- ARGV[7]  most: jobs to read, 500 at most
-- Returns  {1} the bucket is not configured, or has no flows although levels says so, or the reverse; else {0, number of jobs made due, and
--          from and skip of the next run; -1 and 0 if all were read}
-- Stores   nothing new
-- Needs    Redis 7.0

--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/flow.lua
--#include lib/group.lua
--#include lib/server_time.lua

local meta, conf, pace, flows, flow_settings, due_flows = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local channel, bucket, levels, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local from, skip, most = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local FIRST_PLACE = 6
local SOON = 1000 -- microseconds: jobs due within them stay where they are
local later = KEYS[FIRST_PLACE + flow.PLACES]

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', conf, '')

local rate_count, stored_levels = unpack(redis.call('HMGET', conf, 'rate_count', 'flows'))
if not rate_count or (stored_levels or codes.NO_FLOWS) ~= levels then return { 1 } end
local now = server_time()
if from <= now + SOON then from, skip = now + SOON, 0 end
local found = redis.call('ZRANGEBYSCORE', later, string.format('%d', from), '+inf', 'WITHSCORES', 'LIMIT', skip, most)
local ids, times = {}, {}
for i = 1, #found, 2 do ids[#ids + 1], times[#times + 1] = found[i], tonumber(found[i + 1]) end
if #ids == 0 then return { 0, 0, -1, 0 } end
local moved, next_from, next_skip = {}, times[#times], 0
for i, stored in ipairs(redis.call('HMGET', meta, unpack(ids))) do
  if stored and string.sub(stored, 1, 1) == codec.RETRYING then
    moved[#moved + 1], moved[#moved + 2] = string.format('%d', now + i), ids[i]
  elseif times[i] == next_from then
    next_skip = next_skip + 1
  end
end
if next_from == from then next_skip = next_skip + skip end
if #ids < most then next_from, next_skip = -1, 0 end
if #moved == 0 then return { 0, 0, next_from, next_skip } end

redis.call('ZADD', later, 'XX', unpack(moved))
if levels == codes.NO_FLOWS then
  redis.pcall('PUBLISH', channel, bucket)
else
  local turn_queue = flow.turn_queue(due_flows, pace)
  local loaded = flow.load(conf, flows, flow_settings, { name })
  local groups = levels == codes.GROUPS and group.load(conf, KEYS, FIRST_PLACE + flow.PLACES, loaded)
  flow.recall(turn_queue, loaded[1], KEYS, FIRST_PLACE, now, now)
  group.close(groups, now, turn_queue)
  if turn_queue.sooner then redis.pcall('PUBLISH', channel, bucket) end
end
return { 0, #moved / 2, next_from, next_skip }
