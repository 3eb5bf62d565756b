-- ask.lua: asks one limit, outside any bucket, one question: what allow.lua does
-- for many, without what it needs for that. allow.go makes a script for each rule.
-- It has the usual case of the rule in one piece, where the question is allowed
-- and nothing is odd about what is stored, because the functions of the rule and
-- their state cost as much as a fifth of it. Where that does not apply it wrote
-- nothing, and the rule of limits.lua decides.
-- Not safe to send twice in the strict sense: a resend after a lost reply spends
-- once more, which errs on the side of refusing.
--
-- KEYS[1]  tundish:{l:<limit>}:<key>  the limit's state for the key: a zset for sliding_window_log, else a string
-- KEYS[2]  tundish:{l:<limit>}:conf  hash  what an operator made of the limit; absent if ARGV[5] is
-- KEYS[3]  tundish:{l:<limit>}:keys:<life>  string  how many keys there are (see limit_keys.lua); absent if ARGV[7] is
-- KEYS[4]  tundish:{l:<limit>}:overflow:<tier>  state of the key that all share who are above ARGV[7]; absent if it is
-- ARGV[1]  a: token_bucket: micro-tokens that come every b microseconds, 1 or more;
--             sliding_window_counter: pieces of a window, 1 to 100; else 0
-- ARGV[2]  b: microseconds, 1 or more: of a refill, a piece or a window
-- ARGV[3]  full: micro-tokens of a full bucket, or requests in a window
-- ARGV[4]  cost: requests, 1 or more
-- ARGV[5]  limits_rev of the conf that the caller knows; "" or absent to decide in any case
-- ARGV[6]  now: microseconds for tests; "" or absent to ask the server
-- ARGV[7]  max: keys that the limit may have; 0 or absent for any number
-- ARGV[8]  life: microseconds within which a state expires; absent if ARGV[7] is
-- Returns  {remaining, reset} allowed; {remaining, reset, verdict, wait, missing, shared}: verdict 0 allowed, 1 refused,
--          2 impossible, missing 1 if there is no conf, shared 1 if the shared key was asked; {} the conf has another
--          limits_rev, and nothing was decided. Remaining in requests, wait and reset in microseconds
-- Stores   the state, if it was spent of; it expires a second after it is worth nothing: it is then as if never used;
--          and how many keys there are
-- Needs    Redis 7.0

local key, conf, counter, overflow, known_rev, now = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[5], ARGV[6]
local a, b, full, cost = ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0
local max, life = (ARGV[7] or 0) + 0, (ARGV[8] or 0) + 0

local missing = 0
if known_rev and known_rev ~= '' then
  local rev = redis.call('HGET', conf, 'limits_rev')
  if not rev then
    missing = 1
  elseif rev ~= known_rev then
    return {}
  end
end

-- The time is kept as text, too: to format it would cost more.
if not now or now == '' then
  local time = redis.call('TIME')
  now = time[1] .. string.sub('00000' .. time[2], -6)
end
local stamp = now
now = now + 0

-- The first write in a span of life counts the key, which is not the usual case.
local since = 0
if max > 0 then since = now - now % life end

--- token_bucket
do
  local raw = redis.pcall('GET', key)
  local level, rem, need, usual = full, 0, cost * MICRO, not raw and max == 0
  if raw and not raw.err then
    local was, at, odd = string.match(raw, '^(%d+):(%d+):?(%d*)$')
    if was and now - at >= 0 and at - since >= 0 then
      local rest = (now - at) % b
      local whole = (now - at - rest) / b * a
      if whole < full - was then
        local part = rest * a
        if odd ~= '' then part = part + odd end
        rem = part % b
        level = was + whole + (part - rem) / b
      end
      usual = level < full or rem == 0
    end
  end
  if usual and missing == 0 and need <= level then
    level = level - need
    local rest = (full - level) % a
    local reset = (full - level - rest) / a * b + math.ceil((rest * b - rem) / a)
    local text = string.format('%.0f:', level) .. stamp
    if rem > 0 then text = text .. string.format(':%.0f', rem) end
    redis.call('SET', key, text, 'PX', math.ceil(reset / 1000) + 1000)
    return { (level - level % MICRO) / MICRO, reset }
  end
end

--- sliding_window_log
do
  local newest = redis.pcall('ZRANGE', key, '-1', '-1')[1]
  local at, total, its_b = string.match(newest or '', '^(%d+):%d+:(%d+):(%d+)$')
  if at and #at == #stamp and its_b + 0 == b and now - at > 0 and now - at < b and at - since >= 0 then
    local first = redis.call('ZRANGEBYLEX', key, string.format('[%016.0f', now - b + 1), '+', 'LIMIT', '0', '1')[1]
    local left = full - total - cost + string.match(first, '^%d+:(%d+)')
    if left >= 0 and missing == 0 then
      redis.call('ZADD', key, '0', stamp .. ':' .. total .. string.format(':%.0f:', total + cost) .. its_b)
      local every = math.floor(math.min(math.max(full / 16, 16), 512))
      if total % every + cost >= every then
        local gone = redis.call('ZLEXCOUNT', key, '-', string.format('(%016.0f', now - b + 1))
        if gone > 0 then redis.call('ZREMRANGEBYRANK', key, 0, math.min(gone, 2 * every) - 1) end
      end
      if now - now % TTL_SLOT ~= at - at % TTL_SLOT then redis.call('PEXPIRE', key, math.ceil(b / 1000) + 1000) end
      return { left, b }
    end
  end
end

--- sliding_window_counter fixed_window
do
  local raw = redis.pcall('GET', key)
  if raw and not raw.err then
    local lead, pieces, its_b, others, at, first, tail, fading
    if a < 2 then
      lead, its_b, at, first, tail, fading = string.match(raw, '^(w(%d+):)(%d+):(%d+)(:?(%d*))$')
      if at and (fading ~= '') ~= (a == 1) then at = nil end
    else
      lead, pieces, its_b, others, at, first, tail, fading = string.match(raw, '^(s(%d+):(%d+):(%d+):)(%d+):(%d+)([%d:]*:(%d+))$')
      if at and pieces + 0 ~= a then at = nil end
    end
    if at and its_b + 0 == b and now - at >= 0 and at - since >= 0 and at % b - at == now % b - now and first ~= '0' then
      local remainder, faded = b - now % b, 0
      local used = first + cost
      if a > 1 then used = used + others end
      if a > 0 then
        faded = fading * remainder
        local rest = faded % b
        used = used + (faded - rest) / b
        if rest > 0 then used = used + 1 end
      end
      if faded < EXACT and used <= full and missing == 0 then
        redis.call('SET', key, lead .. stamp .. string.format(':%.0f', first + cost) .. tail, 'KEEPTTL')
        return { full - used, a * b + remainder }
      end
    end
  end
end

--- every rule
local known = {}
local state = limit_keys.read(known, read, now, key, counter, overflow, a, b, full, max, life)
local verdict, wait = check(state, cost)
if verdict == 0 then take(state, cost) end
local remaining, reset = answer(state)
if verdict == 0 or state.stepped then
  limit_keys.write(write, state, reset)
  limit_keys.finish(known)
end
if verdict == 0 and missing == 0 and not state.shared then return { remaining, reset } end
return { remaining, reset, verdict, wait, missing, state.shared and 1 or 0 }
