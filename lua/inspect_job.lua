-- inspect_job.lua: where a job is, what is known of it, and what holds it back.
-- Writes nothing.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:conf    hash  what the bucket obeys
-- KEYS[4]  …:pace    hash  last slot
-- KEYS[5]  …:q:<priority>:<flow>  list  ids that wait
-- KEYS[6]  …:later:<flow>  zset  id -> due time, microseconds
-- KEYS[7]  …:leases  zset  id -> deadline, microseconds
-- KEYS[8]  …:dead    zset  id -> time of death
-- KEYS[9]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[10] …:count   hash  purge_mark: sequence number up to which the last purge went
-- KEYS[11] …:purged:<flow>  list  what a purge took from the list and has not removed yet
-- KEYS[12] …:purged_later:<flow>  zset  the same of later
-- ARGV[1]  id
-- Returns  {} unknown; else {state's code, position (jobs ahead, -1 not in the list), instant (due,
--          deadline, time of death, or eta; 0 none is known, as while the bucket is paused), meta ("" none),
--          body ("" settled)}, and of a job that is not settled: now, paused since (0 it is not), who paused
--          it, why, in flight, max_in_flight, next slot of the bucket; instants in microseconds
-- Stores   nothing
-- Needs    Redis 7.0

local body, meta, conf, pace, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local later, leases, dead, seen, count = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local purged, purged_later = KEYS[11], KEYS[12]
local id = ARGV[1]
local QUEUED, SCHEDULED, IN_FLIGHT, RETRYING, DEAD, CANCELLED = 1, 2, 3, 4, 5, 7

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function sequence(stored)
  local base, index = string.match(stored, '^(%-?%d+) %d+ .............(%d+)')
  return tonumber(base or 0) + tonumber(index or 0)
end

local job = redis.call('HGET', body, id)
if not job then
  local settled = redis.call('HGET', seen, id)
  if not settled then return {} end
  local state, expires = string.match(settled, '^...........(%d)(%d+)$')
  if tonumber(expires) <= now then return {} end
  return { tonumber(state), -1, 0, '', '' }
end

local stored = redis.call('HGET', meta, id)
local due = redis.call('ZSCORE', later, id)
local state = QUEUED
if stored then
  state = tonumber(string.sub(stored, 1, 1))
elseif due then
  state = SCHEDULED
end
-- One that a purge has taken and not removed yet is as good as gone.
if not due and (state == QUEUED or state == SCHEDULED or state == RETRYING)
  and redis.call('EXISTS', purged, purged_later) > 0
  and sequence(job) <= tonumber(redis.call('HGET', count, 'purge_mark') or 0) then
  return { CANCELLED, -1, 0, '', '' }
end

local settings = redis.call('HMGET', conf, 'rate_count', 'rate_per', 'max_in_flight', 'paused', 'paused_by', 'paused_reason')
local paused = tonumber(settings[4] or 0)
local interval = 0
if settings[1] then interval = tonumber(settings[2]) / tonumber(settings[1]) end
local next_slot = math.max(tonumber(redis.call('HGET', pace, 'slot') or now) + interval, now)

local position, instant = -1, 0
if state == QUEUED then
  position = 0
  local head = redis.call('LINDEX', queue, 0)
  local head_body = head and redis.call('HGET', body, head)
  if head_body then
    position = sequence(job) - sequence(head_body)
    if position < 0 then position = 0 end
  end
  local waiting = redis.call('LLEN', queue)
  if position >= waiting and waiting > 0 then position = waiting - 1 end
  if settings[1] and paused == 0 then instant = math.floor(next_slot + position * interval) end
elseif state == SCHEDULED or state == RETRYING then
  instant = tonumber(due or now)
elseif state == IN_FLIGHT then
  instant = tonumber(redis.call('ZSCORE', leases, id) or now)
elseif state == DEAD then
  instant = tonumber(redis.call('ZSCORE', dead, id) or now)
end
return { state, position, instant, stored or '', job, now, paused, settings[5] or '', settings[6] or '',
  redis.call('ZCARD', leases), tonumber(settings[3] or 0), math.floor(next_slot) }
