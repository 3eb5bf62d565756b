-- settle.lua: ends leases, each with its outcome: done, retry, dead or returned
-- unused. An outcome counts only with the epoch and the claim of the lease; a
-- late writer changes nothing. Sent twice, the second time answers 0 for all.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:conf    hash  what the bucket obeys
-- KEYS[4]  …:count   hash  jobs that came as scheduled, ids forgotten early
-- KEYS[5]  …:q:<priority>:<flow>  list  ids that wait
-- KEYS[6]  …:later:<flow>  zset  id -> due time, microseconds
-- KEYS[7]  …:leases  zset  id -> deadline, microseconds
-- KEYS[8]  …:dead    zset  id -> time of death
-- KEYS[9]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[10] …:seen_until  zset  settled id -> end of its dedupe window
-- ARGV[1]  channel to wake dispatchers on
-- ARGV[2]  bucket: what to publish there
-- ARGV[3...]  for each outcome: id, epoch, claim, result (1 done, 2 retry, 3 dead, 4 returned),
--          delay in microseconds (retry), last response (JSON, "" none), mark of the job
-- Returns  {1} the bucket is not configured; else {0, and for each outcome 1 settled or 0 stale}
-- Stores   ids of settled jobs until their dedupe window ends, dead letters until dropped
-- Needs    Redis 7.0

local body, meta, conf, count, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local later, leases, dead, seen, seen_until = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local channel, bucket = ARGV[1], ARGV[2]
local FIRST_ARG, WIDTH = 2, 7
local DONE, RETRY, DEAD = '1', '2', '3'
local CHUNK = 500
local GENERATED_WINDOW = 60000000
local META = '^(%d) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$'
local outcome_count = (#ARGV - FIRST_ARG) / WIDTH

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('ZREM', leases, '')

local settings = redis.call('HMGET', conf, 'max_in_flight', 'dedupe_window', 'dedupe_max')
if not settings[1] then return { 1 } end
local max_in_flight, dedupe_window, dedupe_max =
  tonumber(settings[1]), tonumber(settings[2]), tonumber(settings[3])

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local ids = {}
for i = 1, outcome_count do ids[i] = ARGV[FIRST_ARG + (i - 1) * WIDTH + 1] end
local stored = redis.call('HMGET', meta, unpack(ids))
local was_full = redis.call('ZCARD', leases) >= max_in_flight
local queue_was_empty = redis.call('LLEN', queue) == 0
local head = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')

local reply = { 0 }
local unleased, gone, metas, retries, deaths, returned, remembered, until_when = {}, {}, {}, {}, {}, {}, {}, {}
local unscheduled, earliest, handled = 0, nil, {}

for i = 1, outcome_count do
  local at = FIRST_ARG + (i - 1) * WIDTH
  local id, epoch, claim, result = ids[i], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local delay, last, mark = tonumber(ARGV[at + 5]), ARGV[at + 6], ARGV[at + 7]
  local state, now_epoch, attempts, lost, crashes, owner, before
  if stored[i] and not handled[id] then
    state, now_epoch, attempts, lost, crashes, owner, before = string.match(stored[i], META)
  end
  if state ~= '3' or now_epoch ~= epoch or owner ~= claim then
    reply[i + 1] = 0
  else
    reply[i + 1] = 1
    handled[id] = true
    unleased[#unleased + 1] = id
    local kind = string.sub(mark, 12, 12)
    local came_scheduled = kind ~= string.lower(kind)
    if last == '' then last = before end
    if result == DONE then
      gone[#gone + 1] = id
      local window = dedupe_window
      if string.lower(kind) == 'g' and window > GENERATED_WINDOW then window = GENERATED_WINDOW end
      if window > 0 then
        local ends = string.format('%.0f', now + window)
        remembered[#remembered + 1] = id
        remembered[#remembered + 1] = string.sub(mark, 1, 11) .. '6' .. ends
        until_when[#until_when + 1] = ends
        until_when[#until_when + 1] = id
      end
      if came_scheduled then unscheduled = unscheduled + 1 end
    else
      local code = '1'
      if result == RETRY then
        code, attempts, crashes = '4', tonumber(attempts) + 1, '0'
        local due = now + delay
        retries[#retries + 1] = string.format('%.0f', due)
        retries[#retries + 1] = id
        if not earliest or due < earliest then earliest = due end
      elseif result == DEAD then
        code, attempts, crashes = '5', tonumber(attempts) + 1, '0'
        deaths[#deaths + 1] = string.format('%.0f', now)
        deaths[#deaths + 1] = id
        if came_scheduled then unscheduled = unscheduled + 1 end
      else
        returned[#returned + 1] = id
      end
      metas[#metas + 1] = id
      metas[#metas + 1] = string.format('%s %s %.0f %s %s %s ', code, epoch, tonumber(attempts), lost, crashes, claim)
        .. last
    end
  end
end
if #unleased == 0 then return reply end

-- Everything is decided. From here on there are only writes.
local function in_chunks(command, key, list)
  for i = 1, #list, CHUNK do
    redis.call(command, key, unpack(list, i, math.min(i + CHUNK - 1, #list)))
  end
end
in_chunks('ZREM', leases, unleased)
in_chunks('HDEL', body, gone)
in_chunks('HDEL', meta, gone)
in_chunks('HSET', meta, metas)
in_chunks('ZADD', later, retries)
in_chunks('ZADD', dead, deaths)
for i = #returned, 1, -1 do redis.call('LPUSH', queue, returned[i]) end
if unscheduled > 0 then redis.call('HINCRBY', count, 'scheduled', -unscheduled) end
in_chunks('HSET', seen, remembered)
in_chunks('ZADD', seen_until, until_when)

-- Ids whose window ended go, and the oldest where there are too many.
local ended = redis.call('ZRANGEBYSCORE', seen_until, '-inf', string.format('%.0f', now), 'LIMIT', 0, CHUNK)
in_chunks('HDEL', seen, ended)
in_chunks('ZREM', seen_until, ended)
local excess = redis.call('ZCARD', seen_until) - dedupe_max
if excess > 0 then
  local oldest = redis.call('ZRANGE', seen_until, 0, math.min(excess, 2 * CHUNK) - 1)
  in_chunks('HDEL', seen, oldest)
  in_chunks('ZREM', seen_until, oldest)
  redis.call('HINCRBY', count, 'forgotten', #oldest)
end

if was_full or (queue_was_empty and #returned > 0) or (earliest and (not head[2] or earliest < tonumber(head[2]))) then
  redis.call('PUBLISH', channel, bucket)
end
return reply
