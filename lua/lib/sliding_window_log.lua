-- sliding_window_log.lua: a rule of limits.lua.
-- In any `b` microseconds at most `full` requests; `a` is not used. A request
-- counts until it is `b` old. Stores a sorted set with scores of 0, so that the
-- texts of its members order it: "time:before:after:b", one member for each microsecond
-- that admitted something, whatever it cost. The time has sixteen digits;
-- before and after are the numbers of requests in the life of the key. The requests
-- between two members are a difference of these: nothing is summed. Expired members
-- are removed with every 16th request, or every (full / 16)th, because
-- removing several at once costs less. So there are never more members than `full`
-- and as many. For the same reason the first write in a tenth of a second with
-- that b sets the key's TTL.

local MAX_JITTER, TTL_SLOT = 1000000, 100000

-- The first member that counts at a time.
local function oldest_of(key, at, b)
  return redis.call('ZRANGEBYLEX', key, string.format('[%016d', at - b + 1), '+', 'LIMIT', '0', '1')[1]
end

local function read(key, now, _, b, full)
  local state = { place = key, now = now, ahead = 0, b = b, full = full, total = 0, stored = 0, added = 0, last = now - b }
  local newest = redis.pcall('ZRANGE', key, '-1', '-1')
  if newest.err then
    if redis.call('TYPE', key).ok ~= 'string' then redis.call('ZRANGE', key, '-1', '-1') end
    state.foreign = true
    return state
  end
  newest = newest[1]
  if not newest then return state end
  local at, total, its_b = string.match(newest, '^(%d+):%d+:(%d+):(%d+)$')
  if not at then
    state.foreign = true
    return state
  end
  state.total_text, at, total = total, at + 0, total + 0
  local elapsed = now - at
  state.total, state.at = total, at
  if elapsed >= b then return state end
  if elapsed < 0 then
    if elapsed < -MAX_JITTER then
      -- All that counts is as if it came now.
      state.stepped, state.added = true, total - string.match(oldest_of(key, at, b), '^%d+:(%d+)')
      return state
    end
    state.now, state.ahead, now = at, -elapsed, at
  end
  local first = oldest_of(key, now, b)
  state.first, state.stored, state.last, state.newest = first, total - string.match(first, '^%d+:(%d+)'), at, newest
  state.kept = its_b + 0 == b and now - now % TTL_SLOT == at - at % TTL_SLOT
  return state
end

local function check(state, cost)
  local missing = state.stored + state.added + cost - state.full
  if missing <= 0 then return 0, 0 end
  if cost > state.full then return 2, 0 end
  if missing > state.stored then return 1, state.ahead + state.b end
  -- The first member at which this many requests have expired.
  local at, before, after = string.match(state.first, '^(%d+):(%d+):(%d+)')
  local wanted = before + missing
  if after + 0 < wanted then
    local low = redis.call('ZRANK', state.place, state.first) + 1
    local high = redis.call('ZCARD', state.place) - 1
    while low <= high do
      local middle = math.floor((low + high) / 2)
      local entry = redis.call('ZRANGE', state.place, middle, middle)[1]
      local its_time, then_after = string.match(entry, '^(%d+):%d+:(%d+)')
      if then_after + 0 < wanted then low = middle + 1 else at, high = its_time, middle - 1 end
    end
  end
  return 1, state.ahead + at + state.b - state.now
end

local function take(state, cost) state.added = state.added + cost end

local function answer(state)
  local reset = 0
  if state.added > 0 then
    reset = state.ahead + state.b
  elseif state.stored > 0 then
    reset = state.ahead + state.last + state.b - state.now
  end
  local left = state.full - state.stored - state.added
  if left < 0 then left = 0 end
  return left, reset
end

-- ZADD comes first, for it is what a server without memory refuses.
local function write(key, state)
  local now, b, total, added = state.now, state.b, state.total, state.added
  local same = state.last == now and state.newest
  local before = same and string.match(same, '^%d+:(%d+)') or state.total_text or '0'
  if state.foreign then redis.call('DEL', key) end
  local member = string.format('%016d:%s:%d:%d', now, before, total + added, b)
  redis.call('ZADD', key, '0', member)
  if state.stepped then
    redis.call('ZREMRANGEBYLEX', key, '-', '(' .. member)
    redis.call('ZREMRANGEBYLEX', key, '(' .. member, '+')
  else
    if same then redis.call('ZREM', key, same) end
    local every = math.floor(state.full / 16)
    if every < 16 then every = 16 elseif every > 512 then every = 512 end
    if total % every + added >= every then
      local gone = redis.call('ZLEXCOUNT', key, '-', string.format('(%016d', now - b + 1))
      if gone > 0 then redis.call('ZREMRANGEBYRANK', key, 0, math.min(gone, 2 * every) - 1) end
    end
    if state.kept then return end
  end
  redis.call('PEXPIRE', key, math.ceil((state.ahead + b) / 1000) + 1000)
end

local sliding_window_log = { read = read, check = check, take = take, answer = answer, write = write }

return sliding_window_log
