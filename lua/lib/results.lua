-- results.lua: the downstream's responses to ended jobs: kept for a time, or for a process that waits.
--
-- A result is two texts: a head (JSON, one line) and the body of the response. A dispatcher writes them (result.go of
-- shaper/internal/codec). Scripts read neither, and add the outcomes of earlier attempts to the head of a job that is done. A bucket keeps
-- results in
--   …:results      hash  id -> head LF body, kept or for a process that waits
--   …:result_ends  zset  id -> when it is dropped, by the server's clock, microseconds
-- and result_bytes of …:count is the sum of their sizes. There are at most `max` results, and at most `bytes` bytes. The flow with the
-- most results, or the most bytes, whichever is short, drops its oldest ones: so a loud flow never drops the results of others.
-- results_dropped counts these.
-- With flows there are also the following keys; without flows they have each caller in place of a flow, by its letters (see callers.lua)
--   …:result_flows   hash  id -> "time flow": when the result was stored, and the path of its flow (see flow.lua)
--   …:result_order   zset  all of score 0, "length:flow time id": length counts the bytes of the path, and time has 16 digits
--   …:result_shares  zset  "n" flow -> number of results of the flow, negated; "b" flow -> their bytes, negated
-- Results without a caller in a bucket without flows have none: while they outnumber the results of any flow, the first ones to end make
-- room.
--
-- A result that a process waits for is stored even if the bucket keeps none: for WAITS, and for READ once the process has read it. It is
-- not removed at once, as the reply may be lost, the caller may ask again, and another process may wait for the same job. A message on a
-- channel notifies the process.

--#include lib/text.lua

local results = {
  CHUNK = 200,
  MOST_OUT = 1000, -- results dropped in one run
  STEPS = 200, -- times that a run checks which flow has the most
  WAITS = 30000000, -- microseconds that a result waits for the process that needs it
  READ = 5000000, -- the same, after that process has read it
}

-- Returns the bytes of a result; 0 if there is none.
local function size(hash, id)
  local length = redis.call('HSTRLEN', hash, id)
  return length > 0 and #id + length or 0
end

-- Opens the results of a bucket, by its settings: retention in microseconds (nil or 0: it keeps none), max and bytes. keys: of results,
-- ends, count, flows, order and shares; a script that drops none needs only the first three.
function results.open(retention, max, bytes, now, keys)
  local hash, ends, count, flows, order, shares = unpack(keys, 1, 6)
  return { retention = tonumber(retention or 0), max = tonumber(max), bytes = tonumber(bytes),
    hash = hash, ends = ends, count = count, flows = flows, order = order, shares = shares, now = now }
end

local function held(r) return tonumber(redis.call('HGET', r.count, 'result_bytes') or 0) end

-- Returns the prefix of a flow's entries in order.
local function entries_of(path) return string.format('%d:', #path) .. path .. ' ' end
local function entry(path, kept_at, id) return entries_of(path) .. string.format('%016d ', tonumber(kept_at)) .. id end

-- Adds to the share of a flow; negative numbers subtract.
local function charge(r, path, number, bytes)
  number = number - tonumber(redis.call('ZSCORE', r.shares, 'n' .. path) or 0)
  bytes = bytes + tonumber(redis.call('ZSCORE', r.shares, 'b' .. path) or 0)
  if number > 0 then
    redis.call('ZADD', r.shares, text(-number), 'n' .. path, text(math.max(bytes, 0)), 'b' .. path)
  else
    redis.call('ZREM', r.shares, 'n' .. path, 'b' .. path)
  end
end

-- Drops results, and returns their bytes.
local function drop(r, ids)
  local bytes, gone, numbers, sizes = 0, {}, {}, {}
  for n, owner in ipairs(redis.call('HMGET', r.flows, unpack(ids))) do
    local id = ids[n]
    local its, kept_at, path = size(r.hash, id), string.match(owner or '', '^(%d+) (.*)$')
    bytes = bytes + its
    if path then
      gone[#gone + 1] = entry(path, kept_at, id)
      numbers[path], sizes[path] = (numbers[path] or 0) + 1, (sizes[path] or 0) + its
    end
  end
  redis.call('HDEL', r.hash, unpack(ids))
  redis.call('ZREM', r.ends, unpack(ids))
  redis.call('HINCRBY', r.count, 'result_bytes', string.format('%d', -bytes))
  if #gone > 0 then
    redis.call('HDEL', r.flows, unpack(ids))
    redis.call('ZREM', r.order, unpack(gone))
    for path, number in pairs(numbers) do charge(r, path, -number, -sizes[path]) end
  end
  return bytes
end

-- Drops expired results, up to at_most. Returns their number.
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

-- Returns the number of results of a flow, and their bytes.
local function share_of(r, path)
  return -tonumber(redis.call('ZSCORE', r.shares, 'n' .. path) or 0), tonumber(redis.call('ZSCORE', r.shares, 'b' .. path) or 0)
end

-- Returns the oldest results of the flow with the most, up to too_many results or the excess bytes. They leave it at most one fewer than
-- the flow with the next most has; or they are 10 % of its results, if there is no time to compare each. Among equal flows it takes that
-- of the new result, own. Nil if more results have no flow.
local function of_loudest(r, there, too_many, excess, own)
  local loudest, score, _, next_score = unpack(redis.call('ZRANGE', r.shares, 0, 1, 'WITHSCORES'))
  local number = -tonumber(score or 0)
  if number == 0 or there - redis.call('HLEN', r.flows) > number then return nil end
  local path, its, bytes = string.sub(loudest, 2), 0, 0
  if own then its, bytes = share_of(r, own) end
  local n
  if too_many > 0 then
    if its >= number then path = own end
    n = math.min(too_many, math.max(number - math.max(-tonumber(next_score or 0), 0) + 1, math.floor(number / 10)))
  else
    local largest, most_bytes = unpack(redis.call('ZREVRANGE', r.shares, 0, 0, 'WITHSCORES'))
    path = own and bytes >= tonumber(most_bytes) and own or string.sub(largest, 2)
    its, bytes = share_of(r, path)
    n = math.floor(excess * its / math.max(bytes, 1) / 2)
  end
  local begins, ids = entries_of(path), {}
  n = math.min(math.max(n, 1), results.CHUNK)
  local oldest = redis.call('ZRANGE', r.order, '[' .. begins, '(' .. begins .. ':', 'BYLEX', 'LIMIT', 0, n)
  for i, one in ipairs(oldest) do ids[i] = string.sub(one, #begins + 18) end
  if #ids == 0 then redis.call('ZREM', r.shares, 'n' .. path, 'b' .. path) end -- Redis has evicted the order alone
  return ids
end

-- Returns the results that end first: only the excess ones, or one at a time if the bytes are too many.
local function ending_first(r, too_many)
  return redis.call('ZRANGE', r.ends, 0, math.min(math.max(too_many, 1), results.CHUNK) - 1)
end

-- Drops results until there is room for one more of a size. Returns whether there is room.
local function make_room(r, bytes, path)
  local there, has, out = redis.call('HLEN', r.hash), held(r), 0
  for _ = 1, results.STEPS do
    local too_many, excess = there + 1 - r.max, has + bytes - r.bytes
    if too_many <= 0 and excess <= 0 then return true end
    if there == 0 or out >= results.MOST_OUT then return false end
    local ids = of_loudest(r, there, too_many, excess, path) or ending_first(r, too_many)
    if #ids > 0 then
      has, out = has - drop(r, ids), out + #ids
      there = redis.call('HLEN', r.hash)
      redis.call('HINCRBY', r.count, 'results_dropped', #ids)
    end
  end
  return false
end

-- Adds to the head of a result how the attempts before the last one ended, from the text of outcomes.lua; false or nil: none.
function results.with_attempts(head, tried)
  local lines = tried and string.match(tried, '^%d*\n(.+)$')
  if not lines or not string.find(head, '^{.+}$') then return head end
  return string.sub(head, 1, -2) .. ',"tried":[' .. (string.gsub(lines, '\n', ',')) .. ']}'
end

-- Stores a result, and replaces one of the same id: for the retention (is_kept), and for the process that waits for it (is_awaited).
-- path: of its flow, in a bucket without flows the letters of its caller, nil none. A result without room is dropped.
function results.keep(r, id, head, body, is_kept, is_awaited, path)
  local life = math.max(is_kept and r.retention or 0, is_awaited and results.WAITS or 0)
  if life <= 0 then return end
  local result = head .. '\n' .. body
  if redis.call('HEXISTS', r.hash, id) == 1 then drop(r, { id }) end
  local bytes = #id + #result
  if not make_room(r, bytes, path) then
    redis.call('HINCRBY', r.count, 'results_dropped', 1)
    return
  end
  redis.call('HSET', r.hash, id, result)
  redis.call('ZADD', r.ends, string.format('%d', r.now + life), id)
  redis.call('HINCRBY', r.count, 'result_bytes', bytes)
  if path then
    redis.call('HSET', r.flows, id, string.format('%d ', r.now) .. path)
    redis.call('ZADD', r.order, 0, entry(path, r.now, id))
    charge(r, path, 1, bytes)
  end
end

-- Returns the number of results, their bytes, and when the oldest was stored (0 without any).
function results.count(r)
  local id, ends = unpack(redis.call('ZRANGE', r.ends, 0, 0, 'WITHSCORES'))
  local kept_at = id and (string.match(redis.call('HGET', r.flows, id) or '', '^%d+') or math.min(tonumber(ends) - r.retention, r.now))
  return redis.call('HLEN', r.hash), held(r), tonumber(kept_at or 0)
end

-- Drops results by id. Returns the number of ids.
function results.drop(r, ids)
  if #ids > 0 then drop(r, ids) end
  return #ids
end

-- Records that the process that waits for a result has read it. If the bucket keeps results, it stays.
function results.was_read(r, id)
  local ends = r.retention <= 0 and redis.call('ZSCORE', r.ends, id)
  if ends and tonumber(ends) > r.now + results.READ then redis.call('ZADD', r.ends, string.format('%d', r.now + results.READ), id) end
end

return results
