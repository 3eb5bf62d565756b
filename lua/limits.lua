-- limits.lua: the rules of admission, shared by enqueue.lua, allow.lua and ask.lua.
--
-- It is not a script: its text is put in front of theirs. A rule is five
-- functions over a state that lives in one key; what its three numbers a, b and
-- full mean, each rule says:
--   read(key, now, a, b, full)   the state as of now; writes nothing
--   check(state, cost)           0 allowed, 1 refused, 2 impossible; and the microseconds to wait
--   take(state, cost)            spends the cost in the state
--   answer(state)                whole requests left, microseconds until it is as if never used; of token_bucket
--                                also what the rounding up of those added, in a-ths of a microsecond
--   write(key, state, reset)     stores it, with the TTL after which it is worth nothing; reset is
--                                what answer says, if it was asked after the last take
-- Functions are made anew for each run, so that what is not worth one is none, and
-- those of a rule are made when it is asked for. allow.lua and ask.lua are given one
-- rule alone, without its table, by allow.go: a rule is a function that begins behind
-- a line of three dashes and its names, and ends with the table of its functions.
-- A state with `stepped` must be written also when nothing was spent.
-- A time in the future means that the clock stepped back, which mints nothing.
-- A step of up to a second is waited out (`ahead`), so that a clock that jitters
-- mints nothing either; after a larger one the time becomes now and must be
-- written, or nothing would come until the clock is there again.
-- What another rule left in the key, because the limit's algorithm was changed,
-- is worth nothing and is replaced.
-- A state tells in `at` when it was last written; it has none if nothing of its rule is stored.
-- All numbers are integers below 2^53; Go rejects limits for which they are not.
-- Redis takes such a number whole where it is an argument of a command.

local MICRO, MAX_JITTER, TTL_SLOT, EXACT = 1000000, 1000000, 100000, 2 ^ 53

--- table
local limits, make = {}, {}

--- shared
-- What a string rule reads where GET failed: nothing, if a log is there. What no
-- rule can have left is an error.
local function no_text(key)
  if redis.call('TYPE', key).ok == 'zset' then return false end
  return redis.call('GET', key)
end

--- token_bucket
-- `a` micro-tokens come every `b` microseconds, up to `full`.
-- Stores the string level:time, and :remainder if there is one. The remainder of
-- the division is carried, so that odd rates stay exact for ever.
function make.token_bucket()
  local function wait_for(state, level)
    local missing = level - state.level
    if missing <= 0 then return 0, 0 end
    local a = state.a
    local rest = missing % a
    local part = rest * state.b - state.rem
    local up = math.ceil(part / a)
    return state.ahead + (missing - rest) / a * state.b + up, up * a - part
  end

  local function read(key, now, a, b, full)
    local state = { level = full, rem = 0, now = now, ahead = 0, a = a, b = b, full = full }
    local raw = redis.pcall('GET', key)
    if raw and raw.err then raw = no_text(key) end
    if not raw then return state end
    local level, at, rem = string.match(raw, '^(%d+):(%d+):?(%d*)$')
    if not level then return state end
    state.at, level = at + 0, level + 0
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
  end

  local function check(state, cost)
    local need = cost * MICRO
    if need <= state.level then return 0, 0 end
    if need > state.full then return 2, 0 end
    return 1, (wait_for(state, need))
  end

  local function take(state, cost) state.level = state.level - cost * MICRO end

  local function answer(state)
    local level = state.level
    return (level - level % MICRO) / MICRO, wait_for(state, state.full)
  end

  local function write(key, state, reset)
    local text
    if state.rem == 0 then
      text = string.format('%.0f:%.0f', state.level, state.now)
    else
      text = string.format('%.0f:%.0f:%.0f', state.level, state.now, state.rem)
    end
    redis.call('SET', key, text, 'PX', math.ceil((reset or wait_for(state, state.full)) / 1000) + 1000)
  end

  return { read = read, check = check, take = take, answer = answer, write = write }
end

--- sliding_window_log
-- In any `b` microseconds at most `full` requests; `a` is not used. A request
-- counts until it is `b` old. Stores a sorted set whose scores are all 0, so that
-- its order is that of the members "time:before:after:b": one for each microsecond
-- in which something was admitted, whatever it cost. The time has sixteen digits;
-- before and after are how many requests there were in the life of the key, so that
-- those between two members are a difference: nothing is summed. What does not count
-- any more is removed with every 16th request, or every (full / 16)th, because
-- removing several at once costs less: there are never more members than `full`
-- and as many. For the same reason the key's TTL is set by the first write in a
-- tenth of a second with that b.
function make.sliding_window_log()
  -- The first member that counts at a time.
  local function oldest_of(key, at, b)
    return redis.call('ZRANGEBYLEX', key, string.format('[%016.0f', at - b + 1), '+', 'LIMIT', '0', '1')[1]
  end

  local function read(key, now, _, b, full)
    local state = { key = key, now = now, ahead = 0, b = b, full = full, total = 0, stored = 0, added = 0, last = now - b }
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
    at, total = at + 0, total + 0
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
    -- The first member with which so many of those that count are gone.
    local at, before, after = string.match(state.first, '^(%d+):(%d+):(%d+)')
    local wanted = before + missing
    if after + 0 < wanted then
      local low = redis.call('ZRANK', state.key, state.first) + 1
      local high = redis.call('ZCARD', state.key) - 1
      while low <= high do
        local middle = math.floor((low + high) / 2)
        local entry = redis.call('ZRANGE', state.key, middle, middle)[1]
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
    local before = same and string.match(same, '^%d+:(%d+)') or string.format('%.0f', total)
    if state.foreign then redis.call('DEL', key) end
    local member = string.format('%016.0f:%s:%.0f:%.0f', now, before, total + added, b)
    redis.call('ZADD', key, '0', member)
    if state.stepped then
      redis.call('ZREMRANGEBYLEX', key, '-', '(' .. member)
      redis.call('ZREMRANGEBYLEX', key, '(' .. member, '+')
    else
      if same then redis.call('ZREM', key, same) end
      local every = math.floor(math.min(math.max(state.full / 16, 16), 512))
      if total % every + added >= every then
        local gone = redis.call('ZLEXCOUNT', key, '-', string.format('(%016.0f', now - b + 1))
        if gone > 0 then redis.call('ZREMRANGEBYRANK', key, 0, math.min(gone, 2 * every) - 1) end
      end
      if state.kept then return end
    end
    redis.call('PEXPIRE', key, math.ceil((state.ahead + b) / 1000) + 1000)
  end

  return { read = read, check = check, take = take, answer = answer, write = write }
end

--- sliding_window_counter fixed_window
-- Time is cut at multiples of `b` microseconds, and what is counted there is the
-- count of a piece. The piece of now, the `a` - 1 before it, and the one before
-- those, weighted by how much of it is younger than `a` times `b`, may be `full`
-- together.
-- fixed_window is that with an `a` of 0: the piece of now alone.
-- Stores the string wb:TIME:count:count…, the piece of TIME first; with an `a`
-- above 1 sa:b:others:TIME:count:count…, where others is what those are together
-- that are neither first nor last, so that the usual case need not read them.
-- The key's TTL is set by the first write in a piece: for the others it is the same.
-- Where that is of pieces of another length, or the clock stepped back, all
-- requests count as if they came at that time, which is the latest that they can
-- have come.
function make.sliding_window_counter()
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
    local width, at, list = string.match(raw, '^w(%d+):(%d+):([%d:]+)$')
    if not at then width, at, list = string.match(raw, '^s%d+:(%d+):%d+:(%d+):([%d:]+)$') end
    if at then
      state.at = at + 0
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

  local function read(key, now, a, b, full)
    local state = { now = now, ahead = 0, a = a, b = b, full = full, left = b - now % b, first = 0, others = 0, fading = 0, tail = '' }
    local raw = redis.pcall('GET', key)
    if raw and raw.err then raw = no_text(key) end
    if not raw then
      if a > 0 then state.tail = string.rep(':0', a) end
      state.used = 0
      return state
    end
    -- The usual case: the same pieces, and the one of now is the first.
    local lead, pieces, width, others, at, first, tail, fading
    if a < 2 then
      lead, width, at, first, tail, fading = string.match(raw, '^(w(%d+):)(%d+):(%d+)(:?(%d*))$')
      if at and (fading ~= '') ~= (a == 1) then at = nil end
    else
      lead, pieces, width, others, at, first, tail, fading = string.match(raw, '^(s(%d+):(%d+):(%d+):)(%d+):(%d+)([%d:]*:(%d+))$')
      if at and pieces + 0 ~= a then at = nil end
    end
    if at and width + 0 == b and now - at >= 0 and at % b - at == now % b - now then
      state.lead, state.first, state.tail, state.at = lead, first + 0, tail, at + 0
      if a > 0 then state.fading = fading + 0 end
      if a > 1 then state.others = others + 0 end
      state.kept = state.first > 0
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
  end

  local function check(state, cost)
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
  end

  local function take(state, cost)
    state.first, state.used = state.first + cost, state.used + cost
  end

  local function answer(state)
    local left = state.full - state.used
    if left < 0 then left = 0 end
    if state.first > 0 then return left, state.ahead + state.a * state.b + state.left end
    local counts = counts_of(state)
    for i = 2, state.a + 1 do
      if counts[i] > 0 then return left, state.ahead + (state.a + 1 - i) * state.b + state.left end
    end
    return left, 0
  end

  local function write(key, state, reset)
    local a, tail, lead = state.a, state.tail, state.lead
    local _
    if not reset then _, reset = answer(state) end
    if state.counts and a > 0 then tail = string.format(string.rep(':%.0f', a), unpack(state.counts, 2, a + 1)) end
    if not lead then
      lead = a < 2 and string.format('w%.0f:', state.b) or string.format('s%.0f:%.0f:%.0f:', a, state.b, state.others)
    end
    local text = lead .. string.format('%.0f:%.0f', state.now, state.first) .. tail
    if state.kept then
      redis.call('SET', key, text, 'KEEPTTL')
    else
      redis.call('SET', key, text, 'PX', math.ceil(reset / 1000) + 1000)
    end
  end

  return { read = read, check = check, take = take, answer = answer, write = write }
end

make.fixed_window = make.sliding_window_counter

--- every rule
-- The functions of a rule, made when they are first asked for.
function limits.rule(name)
  local rule = limits[name] or make[name]()
  limits[name] = rule
  return rule
end
