-- dlq.lua: the dead letters of a bucket, and their bytes. Every script that adds or removes a dead letter,
-- or checks whether there is room for more, includes it.
--
-- A dead letter counts with the lengths of its id, body, meta and attempts. Their sum is dead_bytes of …:count.
-- Redis may lose a counter. So dlq.audit sums up all dead letters again, a chunk at
-- a time in the order of their deaths. dead_walk of …:count holds its progress, "time bytes". add and remove
-- change that sum too, so that it is exact at the end.
--
-- dead_of:<digits> and dead_bytes_of:<digits> of …:count are the number of dead letters of a caller (see callers.lua; no digits: jobs
-- without a caller), and their bytes. Wrong counts end when the bucket has no dead letters.

--#include lib/callers.lua
--#include lib/codes.lua
--#include lib/in_chunks.lua
--#include lib/owned.lua

local dlq = {
  AUDIT = 200, -- dead letters that one audit sums up
  PATROL = 15000000, -- microseconds until a dispatcher has dropped the dead letters whose retention has ended
  GUESS = 60000000, -- microseconds to wait if it is unknown when there is room
  OF = 'dead_of:', BYTES_OF = 'dead_bytes_of:',
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

-- Counts bytes of dead letters that died at a time.
local function change(count, time, bytes)
  redis.call('HINCRBY', count, 'dead_bytes', string.format('%d', bytes))
  local upto, sum = read_walk(count)
  if upto and time <= upto then write_walk(count, upto, sum + bytes) end
end

-- Returns the digits of the caller of a job by its mark (see codec.mark), '' none.
local function caller_of(mark)
  return mark and #mark > callers.MARK and callers.digits(string.sub(mark, callers.MARK + 1)) or ''
end

-- Counts dead letters of a caller.
local function charge(count, digits, number, bytes)
  if owned.add(count, dlq.OF, digits, number) > 0 then
    owned.add(count, dlq.BYTES_OF, digits, bytes)
  else
    redis.call('HDEL', count, dlq.BYTES_OF .. digits)
  end
end

-- Adds dead letters. Their metas and attempts are written already and no longer change. marks: of each; see codec.mark.
function dlq.add(dead, body, meta, tried, count, now, ids, marks)
  if #ids == 0 then return end
  local bytes, scores, numbers, sizes = 0, {}, {}, {}
  for i, id in ipairs(ids) do
    local its, digits = size(body, meta, tried, id), caller_of(marks[i])
    bytes = bytes + its
    numbers[digits], sizes[digits] = (numbers[digits] or 0) + 1, (sizes[digits] or 0) + its
    scores[2 * i - 1], scores[2 * i] = string.format('%d', now), id
  end
  in_chunks('ZADD', dead, scores)
  change(count, now, bytes)
  for digits, number in pairs(numbers) do charge(count, digits, number, sizes[digits]) end
end

-- Removes a dead letter, before its body, its meta and its attempts change. mark: see codec.mark.
function dlq.remove(dead, body, meta, tried, count, id, mark)
  local time = redis.call('ZSCORE', dead, id)
  if not time then return end
  redis.call('ZREM', dead, id)
  local bytes = size(body, meta, tried, id)
  change(count, tonumber(time), -bytes)
  charge(count, caller_of(mark), -1, -bytes)
end

-- Returns the bounds of the bucket on dead letters and on their bytes; math.huge without a bound.
function dlq.bounds(capacity, most, bytes)
  most, bytes = tonumber(most), tonumber(bytes)
  if most == 0 then most = 10 * capacity end
  if bytes == 0 then bytes = nil end
  return most or math.huge, bytes or math.huge
end

-- Returns why no job is admitted that may become a dead letter: a code, the present number and the maximum; or nil.
function dlq.full(there, bytes, most, most_bytes)
  if there >= most then return codes.DEAD_FULL, there, most end
  if bytes >= most_bytes then return codes.DEAD_TOO_LARGE, bytes, most_bytes end
end

-- Returns the same for a bucket with dead letters, by its settings; nil if they are dropped instead.
function dlq.full_of(conf, there, bytes, capacity)
  local dead_drop, dead_capacity, dead_max_bytes = unpack(redis.call('HMGET', conf, 'dead_drop', 'dead_capacity', 'dead_max_bytes'))
  if dead_drop ~= '1' then return dlq.full(there, bytes, dlq.bounds(capacity, dead_capacity, dead_max_bytes)) end
end

-- Returns the callers that may have more dead letters although the bucket is full (code, there and most: of dlq.full): a caller may have at
-- most as many as it leaves free of twice the bound. Each other caller counts with at most half the bound: jobs that it had in the bucket
-- may have become dead letters beyond any share. So a single caller has the bound, and no caller keeps others out.
function dlq.shares(count, code, there, most)
  return { held = owned.all(count, code == codes.DEAD_FULL and dlq.OF or dlq.BYTES_OF), there = there, most = most, known = {} }
end

-- Returns whether a job may be admitted nevertheless. letters: of its caller.
function dlq.may_have(shares, letters)
  local known = shares.known[letters]
  if known ~= nil then return known end
  known = false
  if shares.held then
    local digits, others, counted = letters ~= '' and callers.digits(letters) or '', 0, 0
    for owner, number in pairs(shares.held) do
      counted = counted + number
      if owner ~= digits then others = others + math.min(number, shares.most / 2) end
    end
    local own, of_nobody = shares.held[digits] or 0, math.max(shares.there - counted, 0)
    known = callers.may_have(2 * shares.most - own - others - of_nobody, own)
  end
  shares.known[letters] = known
  return known
end

-- Returns how long until there is room, in microseconds; negative for a guess. More than one dead letter may have to be removed.
function dlq.wait(dead, code, there, most, retention, now)
  if retention == 0 then return -dlq.GUESS end
  local rank = code == codes.DEAD_FULL and there - most or 0
  local died = redis.call('ZRANGE', dead, rank, rank, 'WITHSCORES')[2]
  local wait = math.max(tonumber(died or now) + retention - now, 0) + dlq.PATROL
  return code == codes.DEAD_FULL and wait or -wait
end

-- Removes the counts of callers: there are no dead letters.
local function forget_callers(count)
  for _, prefix in ipairs({ dlq.OF, dlq.BYTES_OF }) do
    for digits in pairs(owned.all(count, prefix) or {}) do redis.call('HDEL', count, prefix .. digits) end
  end
end

-- Continues to sum up the dead letters.
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
    if n == 0 and redis.call('EXISTS', dead) == 0 then forget_callers(count) end
  else
    write_walk(count, tonumber(some[n]), sum)
  end
end

return dlq
