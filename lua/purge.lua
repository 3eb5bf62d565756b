-- purge.lua: drops all jobs of a bucket that wait. The first call moves them
-- aside, so that none of them departs from then on and new ones do as always;
-- each call removes a chunk of them. Jobs in flight are left, also when they
-- come back. Sent again with the same id it goes on, or answers what it came to.
-- What was moved aside and is not removed yet counts against the bucket's bounds.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:conf    hash  what the bucket obeys
-- KEYS[4]  …:count   hash  last sequence number; purge_id, purge_mark, purge_done, purge_at: of the last purge; purged: of all
-- KEYS[5]  …:q:<priority>:<flow>  list  ids that wait
-- KEYS[6]  …:later:<flow>  zset  id -> due time, microseconds
-- KEYS[7]  …:purged:<flow>  list  what was taken from the list and is not removed yet
-- KEYS[8]  …:purged_later:<flow>  zset  the same of later
-- KEYS[9]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[10] …:seen_until  zset  settled id -> end of its dedupe window
-- ARGV[1]  purge: its id; "" begins none and goes on with the one that is under way
-- ARGV[2]  keep_later: 1 leaves delayed jobs and retries, else 0
-- ARGV[3]  at_most: entries to remove in this call, 1 to 500
-- ARGV[4]  most_bytes: of bodies to read in this call
-- Returns  {1} the bucket is not configured; else {0, whose purge this call worked on (1 the caller's, 0
--          another's or none), jobs removed by this call, jobs removed by that purge so far, entries left}
-- Stores   ids of purged jobs, as cancelled, until their dedupe window ends
-- Needs    Redis 7.0

local body, meta, conf, count, queue, later = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local purged, purged_later, seen, seen_until = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local purge, keep_later, at_most, most_bytes = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3]), tonumber(ARGV[4])
local CANCELLED = '7'
local GENERATED_WINDOW = 60000000
local WAITS = { ['1'] = true, ['2'] = true, ['4'] = true }

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('ZREM', seen_until, '')

local settings = redis.call('HMGET', conf, 'dedupe_window', 'dedupe_max')
if not settings[1] then return { 1 } end
local dedupe_window, dedupe_max = tonumber(settings[1]), tonumber(settings[2])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local function text(n) return string.format('%.0f', n) end

local stored = redis.call('HMGET', count, 'seq', 'purge_id', 'purge_mark', 'purge_done')
local mark, done = tonumber(stored[3] or 0), tonumber(stored[4] or 0)
local own = purge ~= '' and stored[2] == purge
local function left() return redis.call('LLEN', purged) + redis.call('ZCARD', purged_later) end

if left() == 0 then
  if own or purge == '' then return { 0, own and 1 or 0, 0, done, 0 } end
  -- Begin. The number of every job that comes from now on is above the mark, so
  -- that an id which stands here for a job cancelled before can be used again.
  mark, done, own = tonumber(stored[1] or 0), 0, true
  redis.call('HSET', count, 'seq', text(mark + 1), 'purge_id', purge, 'purge_mark', text(mark))
  if redis.call('EXISTS', queue) == 1 then redis.call('RENAME', queue, purged) end
  if not keep_later and redis.call('EXISTS', later) == 1 then redis.call('RENAME', later, purged_later) end
end

local ids = redis.call('LRANGE', purged, 0, at_most - 1)
local of_list = #ids
if of_list < at_most then
  for _, id in ipairs(redis.call('ZRANGE', purged_later, 0, at_most - of_list - 1)) do ids[#ids + 1] = id end
end
-- Bodies may be large.
local bytes, n = 0, 0
while n < #ids and (n == 0 or bytes < most_bytes) do
  n = n + 1
  bytes = bytes + redis.call('HSTRLEN', body, ids[n])
end
for i = #ids, n + 1, -1 do ids[i] = nil end
of_list = math.min(of_list, n)

local removed, unscheduled, remembered, until_when, gone = 0, 0, {}, {}, {}
if n > 0 then
  local jobs, metas, handled = redis.call('HMGET', body, unpack(ids)), redis.call('HMGET', meta, unpack(ids)), {}
  for i, id in ipairs(ids) do
    local job = jobs[i]
    local waits = not metas[i] or WAITS[string.sub(metas[i], 1, 1)]
    -- In the list, an id that is also in later is what a job cancelled before has left there.
    local left_over = i <= of_list and redis.call('ZSCORE', later, id)
    if job and waits and not left_over and not handled[id] then
      local base, fingerprint, kind, index = string.match(job, '^(%-?%d+) %d+ (...........)(.)(%d+)')
      if not base or tonumber(base) + tonumber(index) <= mark then
        handled[id] = true
        removed = removed + 1
        gone[removed] = id
        if base then
          local plain = string.lower(kind)
          if kind ~= plain then unscheduled = unscheduled + 1 end
          local window = dedupe_window
          if plain == 'g' and window > GENERATED_WINDOW then window = GENERATED_WINDOW end
          if window > 0 then
            local ends = text(now + window)
            remembered[#remembered + 1], remembered[#remembered + 2] = id, fingerprint .. CANCELLED .. ends
            until_when[#until_when + 1], until_when[#until_when + 2] = ends, id
          end
        end
      end
    end
  end
end

-- Everything is decided. From here on there are only writes.
if of_list > 0 then redis.call('LPOP', purged, of_list) end
if n > of_list then redis.call('ZREM', purged_later, unpack(ids, of_list + 1, n)) end
if removed > 0 then
  redis.call('HDEL', body, unpack(gone))
  redis.call('HDEL', meta, unpack(gone))
end
if unscheduled > 0 then redis.call('HINCRBY', count, 'scheduled', -unscheduled) end
if #remembered > 0 then
  redis.call('HSET', seen, unpack(remembered))
  redis.call('ZADD', seen_until, unpack(until_when))
  local excess = redis.call('ZCARD', seen_until) - dedupe_max
  if excess > 0 then
    local oldest = redis.call('ZRANGE', seen_until, 0, math.min(excess, 2 * at_most) - 1)
    redis.call('HDEL', seen, unpack(oldest))
    redis.call('ZREM', seen_until, unpack(oldest))
    redis.call('HINCRBY', count, 'forgotten', #oldest)
  end
end
if removed > 0 then redis.call('HINCRBY', count, 'purged', removed) end
redis.call('HSET', count, 'purge_done', text(done + removed), 'purge_at', text(now))
return { 0, own and 1 or 0, removed, done + removed, left() }
