-- sweep.lua: looks for what was lost, a chunk at a time: leases that ran out, claimed
-- jobs that are not where they should be, flows that nobody would look at any more. What
-- needs the places of no flow it mends; the rest it names, for take_back.lua to look
-- at again and mend, as only the caller can say in which flow's places. May be sent twice.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:conf    hash  what the bucket obeys
-- KEYS[4]  …:pace    hash  lease: the longest lease of any dispatcher, microseconds
-- KEYS[5]  …:count   hash  purge_at, purge_flow: of the last purge
-- KEYS[6]  …:leases  zset  id -> deadline, microseconds
-- KEYS[7]  …:dead    zset  id -> time of death
-- KEYS[8]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[9]  …:seen_until  zset  settled id -> end of its dedupe window
-- KEYS[10] …:claims  hash  dispatcher -> its last claim and when
-- KEYS[11] …:flows   hash  flow -> its state (see flow.lua)
-- KEYS[12] …:flow_settings  hash  flow -> its own settings
-- KEYS[13] …:due:<group>  zset  flow -> its turn in calendar time
-- KEYS[14...]  what a purge took from its places and has not removed yet: …:purged:<priority>:, four lists, and
--          …:purged_later:, a zset; then the five places of the flow "", which a bucket without flows has:
--          …:q:<priority>:<flow>, four lists, and …:later:<flow>, a zset
-- ARGV[1]  has_flows: 1, or 0 of a bucket that has the flow "" only
-- ARGV[2]  leases to name at most; 0 for none (the clock stepped)
-- ARGV[3]  cursor of the comparison, "" to compare nothing
-- ARGV[4]  cursor in the flows, "" to look at none
-- ARGV[5]  latest time that it can be, microseconds: if it is later, the clock stepped forwards
--          and no lease is named; 0 unknown
-- Returns  {now, repaired, next cursor (a string), next cursor in the flows (a string), jobs without a place (an
--          estimate by counts, 0 is what it should be; always 0 of a bucket with flows: see take_back.lua),
--          what a purge has left lying, 0 while it is at work, how many jobs follow whose lease ran out, how many
--          that wait for a retry, then their ids, then names of flows}
-- Stores   nothing new
-- Needs    Redis 7.0

local body, meta, conf, pace, count = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, dead, seen, seen_until, claims = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local flows, flow_settings, due_flows = KEYS[11], KEYS[12], KEYS[13]
local has_flows, at_most, cursor, flow_cursor, bound = ARGV[1] == '1', tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])
local PURGED = 13 -- the keys before those of a purge
local PLACES = PURGED + flow.PLACES
local MAX_HORIZON = 200000
local CLAIM_KEPT = 60000000
local PURGE_PAUSE = 10000000 -- one that makes no progress for so long has lost its process
local CHUNK = 500

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

local expired, retries, astray, repaired = {}, {}, {}, 0
if at_most > 0 and (bound == 0 or now <= bound) then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', text(now), 'LIMIT', 0, at_most)) do
    local stored = redis.call('HGET', meta, id)
    if stored and string.sub(stored, 1, 1) == '3' and redis.call('HEXISTS', body, id) == 1 then
      expired[#expired + 1] = id
    else
      redis.call('ZREM', leases, id)
    end
  end
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
      -- In the later of a flow its id stays, and goes when its time comes: claim finds no job of it.
      if not has_flows then redis.call('ZREM', KEYS[PLACES + flow.PLACES], id) end
      redis.call('ZREM', dead, id)
      repaired = repaired + 1
    elseif state == '3' and not redis.call('ZSCORE', leases, id) then
      redis.call('ZADD', leases, text(now + longest), id)
      repaired = repaired + 1
    elseif state == '4' then
      retries[#retries + 1] = id
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

local function in_places(before)
  local n = redis.call('ZCARD', KEYS[before + flow.PLACES])
  for i = before + 1, before + flow.PLACES - 1 do n = n + redis.call('LLEN', KEYS[i]) end
  return n
end
local unpurged, missing = in_places(PURGED), 0
local purge = redis.call('HMGET', count, 'purge_at', 'purge_flow')
if not has_flows then
  missing = redis.call('HLEN', body) - in_places(PLACES) - redis.call('ZCARD', leases) - redis.call('ZCARD', dead) - unpurged
  if missing < 0 then missing = 0 end
end

-- Flows that are idle are forgotten. One that has jobs to send, as its counters say, is
-- on the calendar or is held back; and without leases nothing of it is in flight.
local next_flow_cursor = ''
if flow_cursor ~= '' then
  local scan = redis.call('HSCAN', flows, flow_cursor, 'COUNT', CHUNK)
  next_flow_cursor = scan[1]
  local names, idle, none_leased = {}, {}, redis.call('ZCARD', leases) == 0
  for i = 1, #scan[2], 2 do names[#names + 1] = scan[2][i] end
  for from = 1, #names, CHUNK do
    local some = { unpack(names, from, math.min(from + CHUNK - 1, #names)) }
    local turns = redis.call('ZMSCORE', due_flows, unpack(some))
    for n, f in ipairs(flow.load(conf, flows, flow_settings, some)) do
      local jobs = f.state.unfinished + f.state.scheduled
      if flow.is_idle(f.state, now, f.settings.rate_count, f.settings.rate_per) then
        idle[#idle + 1] = f.name
      elseif (none_leased and f.state.in_flight > 0) or (jobs > f.state.in_flight and not turns[n] and not flow.is_held(f)
        and (unpurged == 0 or f.name ~= purge[2])) then
        astray[#astray + 1] = f.name
      end
    end
  end
  for from = 1, #idle, CHUNK do
    redis.call('HDEL', flows, unpack(idle, from, math.min(from + CHUNK - 1, #idle)))
  end
end

if unpurged > 0 and math.abs(now - tonumber(purge[1] or 0)) < PURGE_PAUSE then unpurged = 0 end
local reply = { now, repaired, next_cursor, next_flow_cursor, missing, unpurged, #expired, #retries }
for _, list in ipairs({ expired, retries, astray }) do
  for _, name in ipairs(list) do reply[#reply + 1] = name end
end
return reply
