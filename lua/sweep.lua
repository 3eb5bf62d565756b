-- sweep.lua: takes back what was lost: leases that ran out go to the head of
-- their list in the order in which they were admitted, a job that crashed its worker too often becomes a dead letter
-- "poison", and a chunk of all claimed jobs is compared with the places they
-- should be in and repaired. May be sent twice.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:pace    hash  lease: the longest lease of any dispatcher, microseconds
-- KEYS[4]  …:count   hash  jobs that came as scheduled
-- KEYS[5]  …:q:<priority>:<flow>  list  ids that wait
-- KEYS[6]  …:later:<flow>  zset  id -> due time, microseconds
-- KEYS[7]  …:leases  zset  id -> deadline, microseconds
-- KEYS[8]  …:dead    zset  id -> time of death
-- KEYS[9]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[10] …:seen_until  zset  settled id -> end of its dedupe window
-- KEYS[11] …:claims  hash  dispatcher -> its last claim and when
-- KEYS[12] …:purged:<flow>  list  what a purge took from the list and has not removed yet
-- KEYS[13] …:purged_later:<flow>  zset  the same of later
-- ARGV[1]  channel to wake dispatchers on
-- ARGV[2]  bucket: what to publish there
-- ARGV[3]  leases to take back at most; 0 to take none (the clock stepped)
-- ARGV[4]  1 if a lost lease counts as a crash, 0 after an outage of Redis
-- ARGV[5]  consecutive crashes that make a job poison
-- ARGV[6]  last response of a poison job (JSON)
-- ARGV[7]  cursor of the comparison, "" to compare nothing
-- ARGV[8]  longest wait of a retry, microseconds: one further ahead is cut to it (or to a second: claim
--          sets jobs aside for less)
-- ARGV[9]  latest time that it can be, microseconds: if it is later, the clock stepped forwards
--          and no lease is taken back; 0 unknown
-- Returns  {now, taken back, poison, repaired, next cursor (a string), jobs without a place
--          (an estimate by counts, 0 is what it should be), what a purge has left lying, 0 while it is at work}
-- Stores   nothing new
-- Needs    Redis 7.0

local body, meta, pace, count, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local later, leases, dead, seen, seen_until, claims = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local purged, purged_later = KEYS[12], KEYS[13]
local channel, bucket = ARGV[1], ARGV[2]
local at_most, counts_as_crash, poison_at = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local poison_last, cursor, longest_retry, bound = ARGV[6], ARGV[7], math.max(tonumber(ARGV[8]), 1000000), tonumber(ARGV[9])
local MAX_HORIZON = 200000
local CLAIM_KEPT = 60000000
local PURGE_PAUSE = 10000000 -- one that makes no progress for so long has lost its process
local CHUNK = 500
local META = '^(%d) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$'

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('ZREM', leases, '')

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local function text(n) return string.format('%.0f', n) end

-- Leases beyond their length mean that the clock stepped back.
local longest = tonumber(redis.call('HGET', pace, 'lease') or 0)
if longest > 0 then
  local too_far = text(now + longest + MAX_HORIZON)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', leases, '(' .. too_far, '+inf', 'LIMIT', 0, CHUNK)) do
    redis.call('ZADD', leases, text(now + longest), id)
  end
end

local taken_back, poison, repaired = 0, 0, 0
local expired = {}
if at_most > 0 and (bound == 0 or now <= bound) then
  expired = redis.call('ZRANGEBYSCORE', leases, '-inf', text(now), 'LIMIT', 0, at_most)
end
local lost_jobs = {}
for i, id in ipairs(expired) do
  local stored, job = redis.call('HGET', meta, id), redis.call('HGET', body, id)
  redis.call('ZREM', leases, id)
  if stored and job and string.sub(stored, 1, 1) == '3' then
    local base, kind, index = string.match(job, '^(%-?%d+) %d+ ...........(.).(%d+)')
    lost_jobs[#lost_jobs + 1] = { id = id, meta = stored, nth = i, kind = kind or '',
      seq = tonumber(base or 0) + tonumber(index or 0) }
  end
end
-- The last one admitted first, so that the oldest is at the head in the end. Among
-- equals (jobs that came as scheduled have no number), that is whose lease ran out first.
table.sort(lost_jobs, function(a, b)
  if a.seq ~= b.seq then return a.seq > b.seq end
  return a.nth > b.nth
end)
for _, lost_job in ipairs(lost_jobs) do
  local id = lost_job.id
  local _, epoch, attempts, lost, crashes, claim, last = string.match(lost_job.meta, META)
  local code = '1'
  crashes = tonumber(crashes) + counts_as_crash
  if crashes >= poison_at then
    code, last = '5', poison_last
    poison = poison + 1
    redis.call('ZADD', dead, text(now), id)
    if lost_job.kind ~= string.lower(lost_job.kind) then redis.call('HINCRBY', count, 'scheduled', -1) end
  else
    taken_back = taken_back + 1
    redis.call('LPUSH', queue, id)
  end
  redis.call('HSET', meta, id,
    string.format('%s %s %s %.0f %.0f %s ', code, epoch, attempts, tonumber(lost) + 1, crashes, claim) .. last)
end

local ended = redis.call('ZRANGEBYSCORE', seen_until, '-inf', text(now), 'LIMIT', 0, CHUNK)
if #ended > 0 then
  redis.call('HDEL', seen, unpack(ended))
  redis.call('ZREM', seen_until, unpack(ended))
end

-- The comparison: is every claimed job where its state says?
local next_cursor = ''
if cursor ~= '' then
  local scan = redis.call('HSCAN', meta, cursor, 'COUNT', 200)
  next_cursor = scan[1]
  local pairs_of = scan[2]
  for i = 1, #pairs_of, 2 do
    local id, state = pairs_of[i], string.sub(pairs_of[i + 1], 1, 1)
    if redis.call('HEXISTS', body, id) == 0 then
      redis.call('HDEL', meta, id)
      redis.call('ZREM', leases, id)
      redis.call('ZREM', later, id)
      redis.call('ZREM', dead, id)
      repaired = repaired + 1
    elseif state == '3' and not redis.call('ZSCORE', leases, id) then
      redis.call('ZADD', leases, text(now + longest), id)
      repaired = repaired + 1
    elseif state == '4' then
      local due = tonumber(redis.call('ZSCORE', later, id))
      if (not due and not redis.call('ZSCORE', purged_later, id)) or (due and due > now + longest_retry) then
        redis.call('ZADD', later, text(due and now + longest_retry or now), id)
        repaired = repaired + 1
      end
    elseif state == '5' and not redis.call('ZSCORE', dead, id) then
      redis.call('ZADD', dead, text(now), id)
      repaired = repaired + 1
    end
  end
  local answers = redis.call('HGETALL', claims)
  for i = 1, #answers, 2 do
    local made = tonumber(string.match(answers[i + 1], '^%S+ (%d+) '))
    if not made or made < now - CLAIM_KEPT or made > now + CLAIM_KEPT then
      redis.call('HDEL', claims, answers[i])
    end
  end
end

local missing = redis.call('HLEN', body) - redis.call('LLEN', queue) - redis.call('ZCARD', later)
  - redis.call('ZCARD', leases) - redis.call('ZCARD', dead)
local unpurged = redis.call('LLEN', purged) + redis.call('ZCARD', purged_later)
missing = missing - unpurged
if missing < 0 then missing = 0 end
if unpurged > 0 then
  local progress = tonumber(redis.call('HGET', count, 'purge_at') or 0)
  if math.abs(now - progress) < PURGE_PAUSE then unpurged = 0 end
end
-- Also where others wait in the list: the lease may have held the last place in flight.
if taken_back + poison > 0 then redis.call('PUBLISH', channel, bucket) end
return { now, taken_back, poison, repaired, next_cursor, missing, unpurged }
