-- limits.lua: the rules of admission, shared by enqueue.lua and allow.lua.
--
-- It is not a script: lua.go puts its text in front of theirs. A rule is a
-- table of functions over a state that lives in one key; what its three
-- numbers a, b and full mean, each rule says:
--   read(key, now, a, b, full)   the state as of now; writes nothing
--   check(state, cost)           0 allowed, 1 refused, 2 impossible; and the microseconds to wait
--   take(state, cost)            spends the cost in the state
--   answer(state)                whole requests left, microseconds until it is as if never used
--   write(key, state, reset)     stores it, with the TTL after which it is worth nothing; reset is
--                                what answer says, if it was asked after the last take
-- Each function is made anew for each run, so that what is not worth one is none.
-- A rule begins with a line of three dashes and its name, see allow.go.
-- A state with `stepped` must be written also when nothing was spent.
-- A time in the future means that the clock stepped back, which mints nothing.
-- A step of up to a second is waited out (`ahead`), so that a clock that jitters
-- mints nothing either; after a larger one the time becomes now and must be
-- written, or nothing would come until the clock is there again.
-- What another rule left in the key, because the limit's algorithm was changed,
-- is worth nothing and is replaced.
-- All numbers are integers below 2^53; Go rejects limits for which they are not.
-- Redis takes such a number whole where it is an argument of a command.

local MICRO = 1000000
local MAX_JITTER = 1000000

local limits = {}

-- The string in the key; false if there is none or a log is there. What no rule
-- can have left is an error.
local function text_of(key)
  local raw = redis.pcall('GET', key)
  if type(raw) ~= 'table' then return raw end
  if redis.call('TYPE', key).ok == 'zset' then return false end
  return redis.call('GET', key)
end

--- token_bucket
-- `a` micro-tokens come every `b` microseconds, up to `full`.
-- Stores the string level:time, and :remainder if there is one. The remainder of
-- the division is carried, so that odd rates stay exact for ever.

local function wait_for(state, level)
  local missing = level - state.level
  if missing <= 0 then return 0 end
  local a = state.a
  local rest = missing % a
  return state.ahead + (missing - rest) / a * state.b + math.ceil((rest * state.b - state.rem) / a)
end

limits.token_bucket = {
  read = function(key, now, a, b, full)
    local state = { level = full, rem = 0, now = now, ahead = 0, a = a, b = b, full = full }
    local raw = text_of(key)
    if not raw then return state end
    local level, at, rem = string.match(raw, '^(%d+):(%d+):?(%d*)$')
    if not level then return state end
    level = level + 0
    if level >= full then return state end
    local elapsed = now - at
    if elapsed < 0 then
      if elapsed < -MAX_JITTER then state.stepped = true else state.now, state.ahead = at + 0, -elapsed end
      elapsed = 0
    end
    rem = rem == '' and 0 or rem + 0
    local rest = elapsed % b
    local whole = (elapsed - rest) / b * a
    if whole < full - level then
      local part = rest * a + rem
      local carry = part % b
      level = level + whole + (part - carry) / b
      if level < full then state.level, state.rem = level, carry end
    end
    return state
  end,

  check = function(state, cost)
    local need = cost * MICRO
    if need <= state.level then return 0, 0 end
    if need > state.full then return 2, 0 end
    return 1, wait_for(state, need)
  end,

  take = function(state, cost) state.level = state.level - cost * MICRO end,

  answer = function(state)
    local level = state.level
    return (level - level % MICRO) / MICRO, wait_for(state, state.full)
  end,

  write = function(key, state, reset)
    local text
    if state.rem == 0 then
      text = string.format('%.0f:%.0f', state.level, state.now)
    else
      text = string.format('%.0f:%.0f:%.0f', state.level, state.now, state.rem)
    end
    redis.call('SET', key, text, 'PX', math.ceil((reset or wait_for(state, state.full)) / 1000) + 1000)
  end,
}

--- sliding_window_log
-- In any `b` microseconds at most `full` requests; `a` is not used. A request
-- counts until it is `b` old. Stores a sorted set whose scores are all 0, so that
-- its order is that of the members "time:total:cost": one for each microsecond in
-- which something was admitted, whatever it cost. The time has sixteen digits, and
-- total is how many requests came before in the life of the key, so that those
-- between two members are a difference: nothing is summed. What does not count
-- any more is removed with every 16th request, or every (full / 16)th, because
-- removing several at once costs less: there are never more members than `full`
-- and as many.

-- The first member that counts at a time.
local function oldest_of(key, at, b)
  return redis.call('ZRANGEBYLEX', key, string.format('[%016.0f', at - b + 1), '+', 'LIMIT', '0', '1')[1]
end

limits.sliding_window_log = {
  read = function(key, now, _, b, full)
    local state = { key = key, now = now, ahead = 0, b = b, full = full, total = 0, stored = 0, added = 0, last = now - b }
    local newest = redis.pcall('ZRANGE', key, '-1', '-1')
    if newest.err then
      if redis.call('TYPE', key).ok ~= 'string' then redis.call('ZRANGE', key, '-1', '-1') end
      state.foreign = true
      return state
    end
    newest = newest[1]
    if not newest then return state end
    local at, total, cost = string.match(newest, '^(%d+):(%d+):(%d+)$')
    if not at then
      state.foreign = true
      return state
    end
    local past, elapsed = total + cost, now - at
    state.total = past
    if elapsed < 0 then
      at = at + 0
      if elapsed < -MAX_JITTER then
        -- All that counts is as if it came now.
        local _, before = string.match(oldest_of(key, at, b), '^(%d+):(%d+):(%d+)$')
        state.stepped, state.added = true, past - before
        return state
      end
      state.now, state.ahead, now = at, -elapsed, at
    end
    local first = oldest_of(key, now, b)
    if first then
      local _, before = string.match(first, '^(%d+):(%d+):(%d+)$')
      state.first, state.stored, state.last, state.newest = first, past - before, at + 0, newest
    end
    return state
  end,

  check = function(state, cost)
    local missing = state.stored + state.added + cost - state.full
    if missing <= 0 then return 0, 0 end
    if cost > state.full then return 2, 0 end
    if missing > state.stored then return 1, state.ahead + state.b end
    -- The first member with which so many of those that count are gone.
    local at, total, more = string.match(state.first, '^(%d+):(%d+):(%d+)$')
    local wanted = total + missing
    if total + more < wanted then
      local low = redis.call('ZRANK', state.key, state.first) + 1
      local high = redis.call('ZCARD', state.key) - 1
      while low <= high do
        local middle = math.floor((low + high) / 2)
        local entry = redis.call('ZRANGE', state.key, middle, middle)[1]
        local its_time, before, its_cost = string.match(entry, '^(%d+):(%d+):(%d+)$')
        if before + its_cost < wanted then low = middle + 1 else at, high = its_time, middle - 1 end
      end
    end
    return 1, state.ahead + at + state.b - state.now
  end,

  take = function(state, cost) state.added = state.added + cost end,

  answer = function(state)
    local reset = 0
    if state.added > 0 then
      reset = state.ahead + state.b
    elseif state.stored > 0 then
      reset = state.ahead + state.last + state.b - state.now
    end
    return math.max(state.full - state.stored - state.added, 0), reset
  end,

  -- ZADD comes first, for it is what a server without memory refuses.
  write = function(key, state)
    local now, total, added = state.now, state.total, state.added
    local same = state.last == now and state.newest
    local before, cost = total, added
    if same then
      local _, first = string.match(same, '^(%d+):(%d+):(%d+)$')
      before, cost = first + 0, total - first + added
    end
    if state.foreign then redis.call('DEL', key) end
    local member = string.format('%016.0f:%.0f:%.0f', now, before, cost)
    redis.call('ZADD', key, '0', member)
    if state.stepped then
      redis.call('ZREMRANGEBYLEX', key, '-', '(' .. member)
      redis.call('ZREMRANGEBYLEX', key, '(' .. member, '+')
    else
      if same then redis.call('ZREM', key, same) end
      local every = math.max(16, math.floor(state.full / 16))
      if total % every + added >= every then
        redis.call('ZREMRANGEBYLEX', key, '-', string.format('(%016.0f', now - state.b + 1))
      end
    end
    redis.call('PEXPIRE', key, math.ceil((state.ahead + state.b) / 1000) + 1000)
  end,
}

--- sliding_window_counter fixed_window
-- Time is cut at multiples of `b` microseconds, and what is counted there is the
-- count of a piece. The piece of now, the `a` - 1 before it, and the one before
-- those, weighted by how much of it is younger than `a` times `b`, may be `full`
-- together.
-- fixed_window is that with an `a` of 0: the piece of now alone.
-- Stores the string wTIME:b:count:count…, the piece of TIME first; with an `a`
-- above 1 sa:TIME:b:others:count:count…, where others is what those are together
-- that are neither first nor last, so that the usual case need not read them.
-- Where that is of pieces of another length, or the clock stepped back, all
-- requests count as if they came at that time, which is the latest that they can
-- have come.

local EXACT = 2 ^ 53

-- n times m by d, rounded down, and the rest, where the product is too large for
-- a number: n below 2^40, m and d below 2^42.
local function scaled(n, m, d)
  local product = n * m
  if product < EXACT then
    local rest = product % d
    return (product - rest) / d, rest
  end
  local quotient, rest = 0, 0
  for power = 3, 0, -1 do
    local part = rest * 1024 + math.floor(n / 1024 ^ power) % 1024 * m
    rest = part % d
    quotient = quotient * 1024 + (part - rest) / d
  end
  return quotient, rest
end

-- The counts of the pieces; the first one is in state.first.
local function counts_of(state)
  local counts = state.counts
  if not counts then
    counts = { state.first }
    for text in string.gmatch(state.tail, '%d+') do counts[#counts + 1] = text + 0 end
    state.counts = counts
  end
  return counts
end

-- The state that is kept in a text, whatever its pieces are and were.
local function read_slowly(state, raw)
  local now, a, b = state.now, state.a, state.b
  local known, shift, sum = {}, 0, 0
  local at, width, list = string.match(raw, '^w(%d+):(%d+):([%d:]+)$')
  if not at then at, width, list = string.match(raw, '^s%d+:(%d+):(%d+):%d+:([%d:]+)$') end
  if at then
    for text in string.gmatch(list, '%d+') do
      known[#known + 1] = text + 0
      sum = sum + text
    end
    local elapsed = now - at
    state.stepped = elapsed < -MAX_JITTER
    if state.stepped or width + 0 ~= b then known = { math.min(sum, state.full) } end
    if not state.stepped then
      if elapsed < 0 then
        now = at + 0
        state.now, state.ahead, state.left = now, -elapsed, b - now % b
      end
      shift = (now - now % b - at + at % b) / b
    end
  end
  local counts = {}
  for i = 1, a + 1 do
    counts[i] = known[i - shift] or 0
    if i > 1 and i <= a then state.others = state.others + counts[i] end
  end
  state.counts, state.first = counts, counts[1]
  if a > 0 then state.fading = counts[a + 1] end
end

limits.sliding_window_counter = {
  read = function(key, now, a, b, full)
    local state = { now = now, ahead = 0, a = a, b = b, full = full, left = b - now % b, first = 0, others = 0, fading = 0, tail = '' }
    local raw = text_of(key)
    if not raw then
      if a > 0 then state.tail = string.rep(':0', a) end
      state.used = 0
      return state
    end
    -- The usual case: the same pieces, and the one of now is the first.
    local pieces, at, width, others, first, middle, fading
    if a < 2 then
      at, width, first, fading = string.match(raw, '^w(%d+):(%d+):(%d+):?(%d*)$')
      if at and (fading ~= '') ~= (a == 1) then at = nil end
    else
      pieces, at, width, others, first, middle, fading = string.match(raw, '^s(%d+):(%d+):(%d+):(%d+):(%d+)([%d:]*):(%d+)$')
      if pieces and pieces + 0 ~= a then at = nil end
    end
    if at and width + 0 == b and now - at >= 0 and at % b - at == now % b - now then
      state.first = first + 0
      if a > 0 then state.fading = fading + 0 end
      if a == 1 then
        state.tail = ':' .. fading
      elseif a > 1 then
        state.others, state.tail = others + 0, middle .. ':' .. fading
      end
    else
      read_slowly(state, raw)
    end
    local used = state.first + state.others
    if state.fading > 0 then
      local part, rest = scaled(state.fading, state.left, b)
      used = used + part + (rest > 0 and 1 or 0)
    end
    state.used = used
    return state
  end,

  check = function(state, cost)
    if state.used + cost <= state.full then return 0, 0 end
    if cost > state.full then return 2, 0 end
    -- Walks forward over the pieces to the first microsecond that has room.
    local a, counts = state.a, counts_of(state)
    local passed, whole, span = state.ahead, state.first + state.others, state.left
    for k = 0, a + 1 do
      local room = state.full - cost - whole
      local fading = 0
      if k == a then fading = state.first elseif k < a then fading = counts[a + 1 - k] end
      if a == 0 then fading = 0 end
      if room >= fading then return 1, passed end
      if room >= 0 then
        local left = math.min(scaled(room, state.b, fading), span)
        if left > 0 then return 1, passed + span - left end
      end
      passed = passed + span
      span = state.b
      -- The last one that is whole begins to fade.
      local last = math.max(a, 1) - k
      if last == 1 then whole = whole - state.first elseif last > 1 then whole = whole - counts[last] end
    end
    return 1, passed
  end,

  take = function(state, cost)
    state.first, state.used = state.first + cost, state.used + cost
  end,

  answer = function(state)
    local left = state.full - state.used
    if left < 0 then left = 0 end
    if state.first > 0 then return left, state.ahead + state.a * state.b + state.left end
    local counts = counts_of(state)
    for i = 2, state.a + 1 do
      if counts[i] > 0 then return left, state.ahead + (state.a + 1 - i) * state.b + state.left end
    end
    return left, 0
  end,

  write = function(key, state, reset)
    local a, tail, text = state.a, state.tail
    local _
    if not reset then _, reset = limits.sliding_window_counter.answer(state) end
    if state.counts and a > 0 then tail = string.format(string.rep(':%.0f', a), unpack(state.counts, 2, a + 1)) end
    if a < 2 then
      text = string.format('w%.0f:%.0f:%.0f', state.now, state.b, state.first)
    else
      text = string.format('s%.0f:%.0f:%.0f:%.0f:%.0f', a, state.now, state.b, state.others, state.first)
    end
    redis.call('SET', key, text .. tail, 'PX', math.ceil(reset / 1000) + 1000)
  end,
}

limits.fixed_window = limits.sliding_window_counter
