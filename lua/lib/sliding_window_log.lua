-- sliding_window_log.lua: a rule of limits.lua.
-- In any `b` microseconds at most `full` requests; `a` is not used. A request
-- counts until it is `b` old. Stores a list of "time:before:after:b", the oldest first,
-- one entry for each microsecond that admitted something, whatever it cost.
-- before and after are the numbers of requests in the life of the key. The requests
-- between two entries are a difference of these, so nothing is summed. Times never decrease
-- in a list, so that an entry is found by bisection. Each write removes the entries
-- that no longer count. So there are at most `full` of them. The first write in a
-- tenth of a second with that b sets the key's TTL; further writes need not.

--#include lib/codes.lua
--#include lib/limit_state.lua

local MAX_JITTER, TTL_SLOT = 1000000, 100000
local TIME, AFTER = '^(%d+)', '^%d+:%d+:(%d+)'

-- Returns the first entry behind the low-th, counted from 0, whose number-th value is above a bound, and its index. All later ones are
-- above it too, and there is one. It searches in growing steps, as it is usually one of the next, and then by bisection.
local function first_above(key, low, number, bound)
  local high, step, found = low, 1
  repeat
    if high > low then low, step = high, 2 * step end
    high = low + step
    found = redis.call('LINDEX', key, high)
  until not found or string.match(found, number) + 0 > bound
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    local entry = redis.call('LINDEX', key, middle)
    if not entry or string.match(entry, number) + 0 > bound then high, found = middle, entry else low = middle end
  end
  return found, high
end

-- Returns the first entry that counts at a time, and how many are before it.
local function oldest_of(key, at, b)
  local first = redis.call('LINDEX', key, '0')
  if string.match(first, TIME) + 0 > at - b then return first, 0 end
  return first_above(key, 0, TIME, at - b)
end

local function read(key, now, _, b, full)
  local state = { place = key, now = now, ahead = 0, b = b, full = full, total = 0, stored = 0, added = 0, gone = 0, last = now - b }
  local newest = redis.pcall('LINDEX', key, '-1')
  if not newest then return state end
  if newest.err then newest = limit_state.again('list', 'LINDEX', key, '-1') end
  local at, total, its_b = string.match(newest or '', limit_state.ENTRY)
  if not at then
    state.foreign = true
    return state
  end
  state.total_text, at, total = total, at + 0, total + 0
  local elapsed = now - at
  state.total, state.at, state.gone = total, at, -1
  if elapsed >= b then return state end
  if elapsed < 0 then
    if elapsed < -MAX_JITTER then
      -- All counting requests get the present time.
      state.stepped, state.added = true, total - string.match(oldest_of(key, at, b), '^%d+:(%d+)')
      return state
    end
    state.now, state.ahead, now = at, -elapsed, at
  end
  local first, gone = oldest_of(key, now, b)
  state.first, state.gone, state.stored, state.last, state.newest = first, gone, total - string.match(first, '^%d+:(%d+)'), at, newest
  state.kept = its_b + 0 == b and now - now % TTL_SLOT == at - at % TTL_SLOT
  return state
end

local function check(state, cost)
  local missing = state.stored + state.added + cost - state.full
  if missing <= 0 then return codes.ALLOWED, 0 end
  if cost > state.full then return codes.NEVER_ALLOWED, 0 end
  if missing > state.stored then return codes.REFUSED, state.ahead + state.b end
  -- The first entry at which this many requests have expired.
  local at, before, after = string.match(state.first, '^(%d+):(%d+):(%d+)')
  local wanted = before + missing
  if after + 0 < wanted then at = string.match(first_above(state.place, state.gone, AFTER, wanted - 1), TIME) end
  return codes.REFUSED, state.ahead + at + state.b - state.now
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

-- The new entry comes first, because a server without memory refuses it.
local function write(key, state)
  local now, b, gone = state.now, state.b, state.gone
  local same = state.last == now and state.newest
  local before = same and string.match(same, '^%d+:(%d+)') or state.total_text or '0'
  local entry = string.format('%d:%s:%d:%d', now, before, state.total + state.added, b)
  if same then
    redis.call('LSET', key, '-1', entry)
  else
    if state.foreign then redis.call('DEL', key) end
    redis.call('RPUSH', key, entry)
  end
  if gone == 1 then
    redis.call('LPOP', key) -- cheaper than with a number
  elseif gone ~= 0 then
    redis.call('LTRIM', key, gone, '-1') -- from -1 on: only the new one counts
  end
  if not state.kept then redis.call('PEXPIRE', key, math.ceil((state.ahead + b) / 1000) + 1000) end
end

local sliding_window_log = { read = read, check = check, take = take, answer = answer, write = write }

return sliding_window_log
