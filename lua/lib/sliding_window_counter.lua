-- sliding_window_counter.lua: a rule of limits.lua, also used for fixed_window.
-- Time is cut at multiples of `b` microseconds into pieces, each with a count.
-- The current piece and the `a` - 1 before it count in full. The piece before
-- those is weighted by its part that is younger than `a` times `b`. The sum may be
-- `full`. fixed_window is the same with an `a` of 0: the current piece alone.
-- Stores the string wb:TIME:count:count…, the piece of TIME first. With an `a`
-- above 1 it is sa:b:others:TIME:count:count…, where others is the sum of the pieces
-- between the first and the last, so that the usual case need not read them.
-- The first write in a piece sets the key's TTL: it is the same for the others.
-- If the pieces had another length, or the clock stepped back, all requests count
-- as if they came at the latest possible time.

--#include lib/codes.lua
--#include lib/limit_state.lua

local MAX_JITTER, EXACT = 1000000, 2 ^ 53

-- Returns n times m by d, rounded down, and the rest, for a product that is too large for
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

-- Returns the counts of the pieces; the first one is in state.first.
local function counts_of(state)
  local counts = state.counts
  if not counts then
    counts = { state.first }
    for text in string.gmatch(state.tail, '%d+') do counts[#counts + 1] = text + 0 end
    state.counts = counts
  end
  return counts
end

-- Reads the state of a text, whatever its pieces are and were.
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
  local state = { place = key, now = now, ahead = 0, a = a, b = b, full = full, left = b - now % b, first = 0, others = 0, fading = 0,
    tail = '' }
  local raw = redis.pcall('GET', key)
  if raw and raw.err then raw = limit_state.again('string', 'GET', key) end
  if not raw then
    if a > 0 then state.tail = string.rep(':0', a) end
    state.used = 0
    return state
  end
  -- The usual case: the same pieces, and the present one is the first.
  local lead, pieces, width, others, at, first, tail, fading
  if a < 2 then
    lead, width, at, first, tail, fading = string.match(raw, '^(w(%d+):)(%d+):(%d+)(:?(%d*))$')
    if at and (fading ~= '') ~= (a == 1) then at = nil end
  else
    lead, pieces, width, others, at, first, tail, fading = string.match(raw, '^(s(%d+):(%d+):(%d+):)(%d+):(%d+)([%d:]*:(%d+))$')
    if at and pieces + 0 ~= a then at = nil end
  end
  at = at and at + 0
  if at and width + 0 == b and now >= at and at % b - at == now % b - now then
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
  if state.used + cost <= state.full then return codes.ALLOWED, 0 end
  if cost > state.full then return codes.NEVER_ALLOWED, 0 end
  -- Walks forward over the pieces to the first microsecond that has room.
  local a, counts = state.a, counts_of(state)
  local passed, whole, span = state.ahead, state.first + state.others, state.left
  for k = 0, a + 1 do
    local room = state.full - cost - whole
    local fading = 0
    if k == a then fading = state.first elseif k < a then fading = counts[a + 1 - k] end
    if a == 0 then fading = 0 end
    if room >= fading then return codes.REFUSED, passed end
    if room >= 0 then
      local left = math.min(scaled(room, state.b, fading), span)
      if left > 0 then return codes.REFUSED, passed + span - left end
    end
    passed = passed + span
    span = state.b
    -- The last whole piece begins to fade.
    local last = math.max(a, 1) - k
    if last == 1 then whole = whole - state.first elseif last > 1 then whole = whole - counts[last] end
  end
  return codes.REFUSED, passed
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
  if state.counts and a > 0 then tail = string.format(string.rep(':%d', a), unpack(state.counts, 2, a + 1)) end
  if not lead then
    lead = a < 2 and string.format('w%d:', state.b) or string.format('s%d:%d:%d:', a, state.b, state.others)
  end
  local text = lead .. string.format('%d:%d', state.now, state.first) .. tail
  if state.kept then
    redis.call('SET', key, text, 'KEEPTTL')
  else
    redis.call('SET', key, text, 'PX', math.ceil(reset / 1000) + 1000)
  end
end

local sliding_window_counter = { read = read, check = check, take = take, answer = answer, write = write }

return sliding_window_counter
