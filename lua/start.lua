-- start.lua: a process other than the dispatcher starts a job that was handed over to it, and takes over the lease. It succeeds
-- once per epoch: the lease then has the claim of the start, so no other start succeeds, and the heartbeat and the outcome of the
-- dispatcher no longer count. May be sent twice.
--
-- KEYS[1]  …:meta    hash  id -> see codec.lua
-- KEYS[2]  …:leases  zset  id -> deadline, microseconds
-- KEYS[3]  …:flow_settings  hash  flow -> its own settings
-- ARGV[1]  id: of the job
-- ARGV[2]  epoch: of the lease
-- ARGV[3]  claim: of the dispatcher, by which the lease is known
-- ARGV[4]  started: the claim of this start; it begins with a +, and no other start has it
-- ARGV[5]  lease: microseconds from now
-- ARGV[6]  latest: when a job is too late to be started, microseconds; 0: never
-- ARGV[7]  flow: of the job; '' in a bucket without flows
-- Returns  {now, 1 started; 0 not: the lease is lost, the job was started before, or it is too late; for a job that can be too late the
--          flow's own settings for deliveries, '' none}
-- Stores   the claim of the start and the new deadline
-- Needs    Redis 7.0

--#include lib/codec.lua
--#include lib/server_time.lua

local meta, leases, flow_settings = KEYS[1], KEYS[2], KEYS[3]
local id, epoch, claim, started, lease, latest, flow = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', leases, '')

local now = server_time()
local stored = redis.call('HGET', meta, id) or ''
local state, now_epoch, attempts, lost, crashes, owner, last = string.match(stored, codec.META)
if state ~= codec.IN_FLIGHT or now_epoch ~= epoch or (owner ~= claim and owner ~= started) then return { now, 0, '' } end
if latest > 0 and now > latest and owner ~= started then return { now, 0, '' } end

redis.call('HSET', meta, id,
  codec.meta(state, tonumber(epoch), tonumber(attempts), tonumber(lost), tonumber(crashes), started, last))
redis.call('ZADD', leases, string.format('%d', now + lease), id)
local own = latest > 0 and redis.call('HGET', flow_settings, flow)
return { now, 1, own and string.match(own, '\n(.*)$') or '' }
