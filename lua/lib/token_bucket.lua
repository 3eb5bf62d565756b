-- token_bucket.lua: a rule of limits.lua.
-- `a` micro-tokens are added every `b` microseconds, up to `full`.
-- Stores the string level:time, and :remainder if there is one. The remainder of
-- the division is carried, so that odd rates stay exact for ever.

--#include lib/codes.lua
--#include lib/limit_state.lua

local MICRO, MAX_JITTER = 1000000, 1000000

local function wait_for(state, level)
  local missing = level - state.level
  if missing <= 0 then return 0, 0 end
  local a = state.a
  local rest = missing % a
  local part = rest * state.b - state.rem
  local up = math.ceil(part / a)
  return (state.ahead or 0) + (missing - rest) / a * state.b + up, up * a - part
end

local function read(key, now, a, b, full)
  local state = { place = key, level = full, rem = 0, now = now, a = a, b = b, full = full }
  local raw = redis.pcall('GET', key)
  if raw and raw.err then raw = limit_state.again('string', 'GET', key) end
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
  if need <= state.level then return codes.ALLOWED, 0 end
  if need > state.full then return codes.NEVER_ALLOWED, 0 end
  return codes.REFUSED, (wait_for(state, need))
end

local function take(state, cost) state.level = state.level - cost * MICRO end

local function answer(state)
  local level = state.level
  return (level - level % MICRO) / MICRO, wait_for(state, state.full)
end

local function write(key, state, reset)
  local text
  if state.rem == 0 then
    text = string.format('%d:%d', state.level, state.now)
  else
    text = string.format('%d:%d:%d', state.level, state.now, state.rem)
  end
  redis.call('SET', key, text, 'PX', math.ceil((reset or wait_for(state, state.full)) / 1000) + 1000)
end

local token_bucket = { read = read, check = check, take = take, answer = answer, write = write }

return token_bucket
