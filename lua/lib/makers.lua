-- makers.lua: which caller made a flow, so that one caller takes no more than its share of the flows of a bucket.
--
-- The zset flow_makers has flow -> the digits of its caller (see callers.lua) * 2^33, plus when it was last looked at, milliseconds
-- modulo 2^33. So the flows of a caller stand together, and how many there are costs one count. Jobs without a caller leave the makers
-- of flows as they are. An entry stays until it is looked at after its flow has gone: a run that would refuse looks at 100 of the
-- caller, and the audit of sweep.lua at 500 of all. A redrive makes flows without a word here: only an operator starts one.
--
-- While a bucket has fewer flows than a tenth of the share, none is noted: nothing is stored and nothing counted. A caller may then
-- have made all of these, so that with the noted ones it may have nine tenths of its share. It never has more than its share. While a
-- bucket has no more flows than that, no caller can have more, and nothing is counted either.

--#include lib/callers.lua
--#include lib/in_chunks.lua

local makers = { SPAN = 8589934592, LOOKS = 100, CHUNK = 500 }

-- What is known of the makers in a run that makes new flows; nil where no share matters. there: how many flows the bucket has; new: how
-- many of the run are new.
function makers.open(key, flows, share, there, new, now)
  share = tonumber(share or 0)
  local spared = math.floor(share / 10)
  if share == 0 or there + new <= spared then return nil end
  local most = share - spared
  return { key = key, flows = flows, most = most, counted = there + new > most, at = math.floor(now / 1000) % makers.SPAN, new = new,
    counts = {}, gone = {}, scores = {} }
end

local function score(m, digits) return string.format('%.0f', digits * makers.SPAN + m.at) end

-- Looks at some flows of a caller, those first that were not looked at for longest. Returns how many are gone.
local function look(m, digits, n)
  local first = string.format('%.0f', digits * makers.SPAN)
  local last = string.format('%.0f', digits * makers.SPAN + makers.SPAN - 1)
  local names, gone = redis.call('ZRANGEBYSCORE', m.key, first, last, 'LIMIT', 0, n), 0
  local states = #names > 0 and redis.call('HMGET', m.flows, unpack(names)) or names
  for i, name in ipairs(names) do
    if states[i] then
      m.scores[#m.scores + 1], m.scores[#m.scores + 2] = score(m, digits), name
    else
      gone, m.gone[#m.gone + 1] = gone + 1, name
    end
  end
  return gone
end

local function count_of(m, digits)
  local count = m.counts[digits]
  if count then return count end
  count = redis.call('ZCOUNT', m.key, string.format('%.0f', digits * makers.SPAN),
    string.format('%.0f', digits * makers.SPAN + makers.SPAN - 1))
  if count + m.new > m.most then count = count - look(m, digits, makers.LOOKS) end
  m.counts[digits] = count
  return count
end

-- Whether jobs may make all new flows of the run: they have no caller, or one that has room for all; and whether that is none. The jobs
-- stand in ARGV behind `before`, with width arguments each: id, sealed job, ...
function makers.all_fit(m, n, before, width)
  local letters = callers.of(ARGV[before + 2])
  for j = 2, n do
    if callers.of(ARGV[before + (j - 1) * width + 2]) ~= letters then return false end
  end
  if letters == '' then return true, true end
  return not m.counted or count_of(m, tonumber(callers.digits(letters))) + m.new <= m.most
end

-- How many flows the caller of a job has made, if it may make no more; else nil.
function makers.too_many(m, sealed)
  local letters = m.counted and callers.of(sealed) or ''
  if letters == '' then return nil end
  local count = count_of(m, tonumber(callers.digits(letters)))
  return count >= m.most and count or nil
end

-- Notes a flow that a job makes.
function makers.note(m, name, sealed)
  local letters = callers.of(sealed)
  if letters == '' then return end
  local digits = tonumber(callers.digits(letters))
  if m.counted then m.counts[digits] = count_of(m, digits) + 1 end
  m.scores[#m.scores + 1], m.scores[#m.scores + 2] = score(m, digits), name
end

-- Writes what was noted and found.
function makers.write(m)
  in_chunks('ZREM', m.key, m.gone)
  in_chunks('ZADD', m.key, m.scores)
  m.gone, m.scores = {}, {}
end

-- Forgets some of the flows that are gone, of all callers.
function makers.trim(key, flows, now)
  local there = redis.call('ZCARD', key)
  if there == 0 then return end
  if redis.call('EXISTS', flows) == 0 then return redis.call('UNLINK', key) end
  local names, gone = redis.call('ZRANGE', key, now % there, now % there + makers.CHUNK - 1), {}
  for i, state in ipairs(redis.call('HMGET', flows, unpack(names))) do
    if not state then gone[#gone + 1] = names[i] end
  end
  if #gone > 0 then redis.call('ZREM', key, unpack(gone)) end
end

return makers
