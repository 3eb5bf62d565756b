-- results.lua: what the downstream answered to jobs that ended: kept for a time, or on its way to a process that waits for it.
--
-- A result is two texts: a head (JSON, one line) and the body of the answer. A dispatcher writes them (result.go of
-- shaper/internal/codec); scripts read neither. A bucket keeps results in
--   results  hash  id -> head LF body
--   ends     zset  id -> when it is dropped, by the server's clock, microseconds
-- and result_bytes of …:count is the sum of their sizes. No more than max of them, and no more bytes, are there: those that end first make
-- room, and results_dropped counts these.
--
-- A result that a process waits for is there, too, where the bucket keeps none: for WAITS, and for READ once the process has read it. It is
-- not removed at once, as the reply may be lost, the caller may ask again, and another process may wait for the same job. A message on a
-- channel tells the process.

local results = {
  CHUNK = 200,
  MOST_OUT = 1000, -- results dropped in one run
  WAITS = 30000000, -- microseconds that a result waits for the process that asked for it
  READ = 5000000, -- the same, once that process has read it
  MAX = 10000, -- of a bucket whose settings are older than results; see DefaultResultSettings of result.go
  BYTES = 67108864,
}

local function size(hash, id) return #id + redis.call('HSTRLEN', hash, id) end

-- The results of a bucket, by its settings: retention in microseconds (nil or 0: it keeps none), max and bytes.
function results.open(retention, max, bytes, hash, ends, count, now)
  return { retention = tonumber(retention or 0), max = tonumber(max or results.MAX), bytes = tonumber(bytes or results.BYTES),
    hash = hash, ends = ends, count = count, now = now }
end

local function held(r) return tonumber(redis.call('HGET', r.count, 'result_bytes') or 0) end

-- Drops results, and returns their bytes.
local function drop(r, ids)
  local bytes = 0
  for _, id in ipairs(ids) do bytes = bytes + size(r.hash, id) end
  redis.call('HDEL', r.hash, unpack(ids))
  redis.call('ZREM', r.ends, unpack(ids))
  redis.call('HINCRBY', r.count, 'result_bytes', string.format('%d', -bytes))
  return bytes
end

-- Drops those whose time is over, at_most of them. Returns how many that were.
function results.expire(r, at_most)
  local n = 0
  while n < at_most do
    local some = redis.call('ZRANGEBYSCORE', r.ends, '-inf', string.format('%d', r.now), 'LIMIT', 0, math.min(results.CHUNK, at_most - n))
    if #some == 0 then break end
    drop(r, some)
    n = n + #some
  end
  return n
end

-- Drops those that end first until there is room for one more of some bytes. Returns whether there is.
local function make_room(r, bytes)
  local there, has, out = redis.call('HLEN', r.hash), held(r), 0
  while there >= r.max or has + bytes > r.bytes do
    if there == 0 or out >= results.MOST_OUT then return false end
    -- Only as many as are too many, or one after the other where their bytes are.
    local n = math.min(math.max(there + 1 - r.max, 1), results.CHUNK)
    local oldest = redis.call('ZRANGE', r.ends, 0, n - 1)
    if #oldest == 0 then return false end
    has, there, out = has - drop(r, oldest), there - #oldest, out + #oldest
    redis.call('HINCRBY', r.count, 'results_dropped', #oldest)
  end
  return true
end

-- Keeps a result, instead of the one of the same id: for the retention (is_kept), and for the process that waits for it (is_awaited).
-- A result for which there is no room is dropped.
function results.keep(r, id, head, body, is_kept, is_awaited)
  local life = math.max(is_kept and r.retention or 0, is_awaited and results.WAITS or 0)
  if life <= 0 then return end
  local text = head .. '\n' .. body
  if redis.call('HEXISTS', r.hash, id) == 1 then drop(r, { id }) end
  if not make_room(r, #id + #text) then
    redis.call('HINCRBY', r.count, 'results_dropped', 1)
    return
  end
  redis.call('HSET', r.hash, id, text)
  redis.call('ZADD', r.ends, string.format('%d', r.now + life), id)
  redis.call('HINCRBY', r.count, 'result_bytes', #id + #text)
end

-- Drops some results that are there. Returns how many.
function results.drop(r, ids)
  if #ids > 0 then drop(r, ids) end
  return #ids
end

-- Notes that the process that waits for a result has read it. Where the bucket keeps results, it stays.
function results.was_read(r, id)
  local ends = r.retention <= 0 and redis.call('ZSCORE', r.ends, id)
  if ends and tonumber(ends) > r.now + results.READ then redis.call('ZADD', r.ends, string.format('%d', r.now + results.READ), id) end
end

return results
