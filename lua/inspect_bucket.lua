-- inspect_bucket.lua: a bucket in numbers. Writes nothing.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:conf    hash  what the bucket obeys
-- KEYS[3]  …:pace    hash  last slot
-- KEYS[4]  …:count   hash  jobs that came as scheduled, ids forgotten early
-- KEYS[5]  …:q:<priority>:<flow>  list  ids that wait
-- KEYS[6]  …:later:<flow>  zset  id -> due time, microseconds
-- KEYS[7]  …:leases  zset  id -> deadline, microseconds
-- KEYS[8]  …:dead    zset  id -> time of death
-- KEYS[9]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[10] …:purged:<flow>  list  what a purge took from the list and has not removed yet
-- KEYS[11] …:purged_later:<flow>  zset  the same of later
-- Returns  {now, configured (1 or 0), revision, rate_count, rate_per in microseconds, burst, capacity,
--          scheduled_capacity, max_in_flight, unfinished, in the list, in later, came as scheduled,
--          in flight, dead, remembered ids, forgotten ids, time of enqueue of the head (0 none),
--          last slot (0 none), paused since (0 it is not), entries that a purge has yet to remove,
--          jobs that purges have removed, who paused it, why; and for each field that is pinned: field, value of the configuration,
--          value in force, "time who"}
-- Stores   nothing
-- Needs    Redis 7.0

local body, conf, pace, count, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local later, leases, dead, seen, purged, purged_later = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local PINNABLE = { 'rate_count', 'rate_per', 'burst', 'capacity', 'scheduled_capacity', 'max_in_flight', 'shed_low',
  'shed_normal', 'shed_high' }

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local settings = redis.call('HMGET', conf, 'revision', 'rate_count', 'rate_per', 'burst', 'capacity',
  'scheduled_capacity', 'max_in_flight')
local counters = redis.call('HMGET', count, 'scheduled', 'forgotten', 'purged')
local scheduled = tonumber(counters[1] or 0)
local dead_count = redis.call('ZCARD', dead)

local oldest = 0
local head = redis.call('LINDEX', queue, 0)
local head_body = head and redis.call('HGET', body, head)
if head_body then oldest = tonumber(string.match(head_body, '^%-?%d+ (%d+) ')) end

local reply = { now, settings[1] and 1 or 0 }
for i = 1, 7 do reply[#reply + 1] = tonumber(settings[i] or 0) end
reply[#reply + 1] = redis.call('HLEN', body) - dead_count - scheduled
reply[#reply + 1] = redis.call('LLEN', queue)
reply[#reply + 1] = redis.call('ZCARD', later)
reply[#reply + 1] = scheduled
reply[#reply + 1] = redis.call('ZCARD', leases)
reply[#reply + 1] = dead_count
reply[#reply + 1] = redis.call('HLEN', seen)
reply[#reply + 1] = tonumber(counters[2] or 0)
reply[#reply + 1] = oldest
reply[#reply + 1] = tonumber(redis.call('HGET', pace, 'slot') or 0)

local pause = redis.call('HMGET', conf, 'paused', 'paused_by', 'paused_reason')
reply[#reply + 1] = tonumber(pause[1] or 0)
reply[#reply + 1] = redis.call('LLEN', purged) + redis.call('ZCARD', purged_later)
reply[#reply + 1] = tonumber(counters[3] or 0)
reply[#reply + 1] = pause[2] or ''
reply[#reply + 1] = pause[3] or ''
for _, field in ipairs(PINNABLE) do
  local pin = redis.call('HMGET', conf, 'own:' .. field, field, 'set:' .. field)
  if pin[1] then
    reply[#reply + 1] = field
    for i = 1, 3 do reply[#reply + 1] = pin[i] or '' end
  end
end
return reply
