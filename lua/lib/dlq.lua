-- dlq.lua: the dead letters of a bucket, and their bytes. Every script that adds a dead letter,
-- removes one, or asks whether there is room for more includes it.
--
-- A dead letter counts with the lengths of its id, body, meta and attempts. Their sum is dead_bytes of …:count.
-- A counter may be lost, or missing in older data. So dlq.audit sums up all dead letters again, a chunk at
-- a time in the order of their deaths. dead_walk of …:count holds its progress, "time bytes". add and remove
-- change that sum too, so that it is exact at the end.

--#include lib/codes.lua
--#include lib/in_chunks.lua

local dlq = {
  AUDIT = 200, -- dead letters that one audit sums up
  PATROL = 15000000, -- microseconds until a dispatcher has dropped what its retention has ended for
  GUESS = 60000000, -- microseconds to wait if it is not known when there is room
}

local function size(body, meta, tried, id)
  return #id + redis.call('HSTRLEN', body, id) + redis.call('HSTRLEN', meta, id) + redis.call('HSTRLEN', tried, id)
end

local function read_walk(count)
  local upto, sum = string.match(redis.call('HGET', count, 'dead_walk') or '', '^(%d+) (%-?%d+)$')
  return tonumber(upto), tonumber(sum)
end
local function write_walk(count, upto, sum)
  redis.call('HSET', count, 'dead_walk', string.format('%d %d', upto, sum))
end

-- Counts bytes of dead letters of one time.
local function change(count, time, bytes)
  redis.call('HINCRBY', count, 'dead_bytes', string.format('%d', bytes))
  local upto, sum = read_walk(count)
  if upto and time <= upto then write_walk(count, upto, sum + bytes) end
end

-- Adds jobs. Their metas and attempts are written already and do not change any more.
function dlq.add(dead, body, meta, tried, count, now, ids)
  if #ids == 0 then return end
  local bytes, scores = 0, {}
  for i, id in ipairs(ids) do
    bytes = bytes + size(body, meta, tried, id)
    scores[2 * i - 1], scores[2 * i] = string.format('%d', now), id
  end
  in_chunks('ZADD', dead, scores)
  change(count, now, bytes)
end

-- Takes one away, before its body, its meta and its attempts change or go.
function dlq.remove(dead, body, meta, tried, count, id)
  local time = redis.call('ZSCORE', dead, id)
  if not time then return end
  redis.call('ZREM', dead, id)
  change(count, tonumber(time), -size(body, meta, tried, id))
end

-- The bounds of the bucket on dead letters and on their bytes; math.huge without a bound, as in older
-- settings.
function dlq.bounds(capacity, most, bytes)
  most, bytes = tonumber(most), tonumber(bytes)
  if most == 0 then most = 10 * capacity end
  if bytes == 0 then bytes = nil end
  return most or math.huge, bytes or math.huge
end

-- Why no job is let in, which may become a dead letter: a code with how many there are and may be, or nil.
function dlq.full(there, bytes, most, most_bytes)
  if there >= most then return codes.DEAD_FULL, there, most end
  if bytes >= most_bytes then return codes.DEAD_TOO_LARGE, bytes, most_bytes end
end

-- The same of a bucket that has some, by its settings; nil where they are dropped instead.
function dlq.full_of(conf, there, bytes, capacity)
  local dead_drop, dead_capacity, dead_max_bytes = unpack(redis.call('HMGET', conf, 'dead_drop', 'dead_capacity', 'dead_max_bytes'))
  if dead_drop ~= '1' then return dlq.full(there, bytes, dlq.bounds(capacity, dead_capacity, dead_max_bytes)) end
end

-- How long until there is room, in microseconds; negative where that is a guess. More than one may have to go.
function dlq.wait(dead, code, there, most, retention, now)
  if retention == 0 then return -dlq.GUESS end
  local rank = code == codes.DEAD_FULL and there - most or 0
  local died = redis.call('ZRANGE', dead, rank, rank, 'WITHSCORES')[2]
  local wait = math.max(tonumber(died or now) + retention - now, 0) + dlq.PATROL
  return code == codes.DEAD_FULL and wait or -wait
end

-- Goes on to sum up the dead letters.
function dlq.audit(dead, body, meta, tried, count)
  local upto, sum = read_walk(count)
  sum = sum or 0
  local from = upto and string.format('(%d', upto) or '-inf'
  local some = redis.call('ZRANGEBYSCORE', dead, from, '+inf', 'WITHSCORES', 'LIMIT', 0, dlq.AUDIT)
  local ended, n = #some < 2 * dlq.AUDIT, #some
  -- Dead letters of the same time are summed together: the sum is of all up to a time.
  local last, _, first = some[n], unpack(some, 1, 2)
  if not ended and first ~= last then
    while some[n] == last do n = n - 2 end
  elseif not ended then
    some = redis.call('ZRANGEBYSCORE', dead, first, first, 'WITHSCORES')
    n = #some
  end
  for i = 1, n, 2 do sum = sum + size(body, meta, tried, some[i]) end
  if ended then
    redis.call('HSET', count, 'dead_bytes', string.format('%d', sum))
    redis.call('HDEL', count, 'dead_walk')
  else
    write_walk(count, tonumber(some[n]), sum)
  end
end

return dlq
