-- flow_owners.lua: the callers that made the flows of a bucket, so that one caller takes no more than its share of the flows.
--
-- The zset flow_owners has flow -> the digits of its caller (see callers.lua) * 2^33, plus when it was last checked, milliseconds
-- modulo 2^33. So the flows of a caller are adjacent, and one command counts them. Jobs without a caller do not change the owners
-- of flows. An entry stays until it is checked after its flow was removed: a run that would refuse checks 100 of the
-- caller, and the audit of sweep.lua 500 of all. A redrive makes flows without an entry: only an operator starts one.
--
-- While a bucket has fewer flows than 10 % of the share, none is recorded and nothing is counted. A caller may
-- have made all of these, so the recorded ones are limited to 90 % of its share. It never exceeds its share. While a
-- bucket has at most that many flows, no caller can have more, and nothing is counted either.

--#include lib/callers.lua
--#include lib/in_chunks.lua

local flow_owners = { SPAN = 8589934592, LOOKS = 100, CHUNK = 500 }

-- Opens the owners for a run that makes new flows; nil if no share matters. there: number of flows of the bucket; new:
-- how many of the run are new.
function flow_owners.open(key, flows, share, there, new, now)
  share = tonumber(share or 0)
  local spared = math.floor(share / 10)
  if share == 0 or there + new <= spared then return nil end
  local most = share - spared
  return { key = key, flows = flows, most = most, counted = there + new > most, at = math.floor(now / 1000) % flow_owners.SPAN, new = new,
    counts = {}, gone = {}, scores = {} }
end

local function score(m, digits) return string.format('%.0f', digits * flow_owners.SPAN + m.at) end

-- Checks some flows of a caller, the least recently checked first. Returns how many no longer exist.
local function look(m, digits, n)
  local first = string.format('%.0f', digits * flow_owners.SPAN)
  local last = string.format('%.0f', digits * flow_owners.SPAN + flow_owners.SPAN - 1)
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
  count = redis.call('ZCOUNT', m.key, string.format('%.0f', digits * flow_owners.SPAN),
    string.format('%.0f', digits * flow_owners.SPAN + flow_owners.SPAN - 1))
  if count + m.new > m.most then count = count - look(m, digits, flow_owners.LOOKS) end
  m.counts[digits] = count
  return count
end

-- Returns whether jobs may make all new flows of the run: they have no caller, or one with room for all; and whether they have none. The
-- jobs are in ARGV behind `before`, with width arguments each: id, sealed job, ...
function flow_owners.all_fit(m, n, before, width)
  local letters = callers.from_job(ARGV[before + 2])
  for j = 2, n do
    if callers.from_job(ARGV[before + (j - 1) * width + 2]) ~= letters then return false end
  end
  if letters == '' then return true, true end
  return not m.counted or count_of(m, tonumber(callers.digits(letters))) + m.new <= m.most
end

-- Returns how many flows the caller of a job has made, if it may make no more; else nil.
function flow_owners.too_many(m, sealed)
  local letters = m.counted and callers.from_job(sealed) or ''
  if letters == '' then return nil end
  local count = count_of(m, tonumber(callers.digits(letters)))
  return count >= m.most and count or nil
end

-- Records a flow that a job makes.
function flow_owners.note(m, name, sealed)
  local letters = callers.from_job(sealed)
  if letters == '' then return end
  local digits = tonumber(callers.digits(letters))
  if m.counted then m.counts[digits] = count_of(m, digits) + 1 end
  m.scores[#m.scores + 1], m.scores[#m.scores + 2] = score(m, digits), name
end

-- Writes the recorded and the checked entries.
function flow_owners.write(m)
  in_chunks('ZREM', m.key, m.gone)
  in_chunks('ZADD', m.key, m.scores)
  m.gone, m.scores = {}, {}
end

-- Removes some entries of flows that no longer exist, of all callers.
function flow_owners.trim(key, flows, now)
  local there = redis.call('ZCARD', key)
  if there == 0 then return end
  if redis.call('EXISTS', flows) == 0 then return redis.call('UNLINK', key) end
  local names, gone = redis.call('ZRANGE', key, now % there, now % there + flow_owners.CHUNK - 1), {}
  for i, state in ipairs(redis.call('HMGET', flows, unpack(names))) do
    if not state then gone[#gone + 1] = names[i] end
  end
  if #gone > 0 then redis.call('ZREM', key, unpack(gone)) end
end

return flow_owners
