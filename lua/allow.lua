-- allow.lua: decides about many requests to one limit, outside any bucket. It decides
-- them in order, as if each came alone, and spends the allowed ones.
-- All of them use one algorithm.
-- A repeated call is not free of effects: after a lost reply it spends
-- once more, which errs on the side of refusing.
--
-- KEYS[1]     tundish:{l:<limit>}:conf  hash  the effective limit
-- KEYS[2...]  tundish:{l:<limit>}:<key>  the limit's states, one for each key of a
--             question: a list for sliding_window_log, else a string; then for each setting
--             tundish:{l:<limit>}:keys:<life>  string  how many keys there are (see limit_keys.lua), and
--             tundish:{l:<limit>}:overflow:<tier>  state of the key that all callers above max share
-- ARGV[1]     limits_rev: of the conf that the caller knows, "" to decide in any case
-- ARGV[2]     now: microseconds for tests, "" to ask the server
-- ARGV[3]     algorithm: a name of limits.lua
-- ARGV[4]     max: keys that the limit may have, 0 any number
-- ARGV[5]     life: microseconds, 1 or more: a state expires within
-- ARGV[6]     setting_count: number of settings that follow; more than one if tiers of the limit differ
-- ARGV[7]     caller: six digits of the caller that names the keys, "" none
-- ARGV[8...]  each setting:
--               a: token_bucket: micro-tokens that come every b microseconds, 1 or more;
--                  sliding_window_counter: pieces of a window, 1 to 100; else 0
--               b: microseconds, 1 or more: of a refill, a piece or a window
--               full: micro-tokens of a full bucket, or requests in a window
--             then for one question, asked once, its cost alone; else
--             each state: the number of its setting, from 1
--             each question:
--               number of its state, from 1
--               cost: requests, 1 or more
--               times: how often it is asked, 1 or more; 0 takes what is available, up to the cost; -1 does so if all
--               requests of the previous question about this state were allowed
-- Returns  {status, answer, ...}: status 0 decided, 2 decided and the conf is missing; 1 alone: the
--          conf has another limits_rev, and nothing was decided. An answer is
--            {allowed, remaining, reset, slack}: how many of the times were allowed; slack is what the rounding of
--            reset added, of token_bucket in a-ths of a microsecond, else 0: lua.EarlierReset computes the earlier resets from it;
--            and if not all were: {verdict, wait, remaining, reset} of the others: verdict 1 refused, 2 impossible; these
--            apply after the last question of the batch, so that a caller that waits that long and is alone is admitted;
--          or for times 0 and -1 {taken, remaining, reset}; and after the answers the numbers of the states that were replaced by
--          the shared one. Remaining in requests, wait and reset in microseconds
-- Stores   the changed states; each expires a second after it is as if never used;
--          and how many keys there are
-- Needs    Redis 7.0

--#include lib/callers.lua
--#include lib/codes.lua
--#include lib/limit_keys.lua
--#include lib/limits.lua

local conf, known_rev, now, algorithm = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local max, life, setting_count, caller = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local FIRST_STATE, FIRST_SETTING, SETTING = 2, 8, 3
local rule = limits[algorithm]
local read, check, take, answer, write = rule.read, rule.check, rule.take, rule.answer, rule.write

local status = 0
if known_rev ~= '' then
  local rev = redis.call('HGET', conf, 'limits_rev')
  if not rev then
    status = 2
  elseif rev ~= known_rev then
    return { 1 }
  end
end

-- A caller names keys for a whole service, so a single caller may have all of them. Above the bound, others may add keys up to the number
-- that each leaves free of twice the bound, as with dead letters (see dlq.lua).
local digits = caller ~= '' and caller or nil
local may_have = digits and function(free, held) return free > 0 or callers.may_have(free + max, held) end

if now == '' then
  local seconds, micros = unpack(redis.call('TIME')) -- not server_time: a call is one in fifty of all that a question costs
  now = seconds * 1000000 + micros
else
  now = tonumber(now)
end

-- Most calls ask one question once. The code below would decide the same, with 25 % more work for Redis.
local known, r, at = {}, FIRST_SETTING, FIRST_SETTING + SETTING * setting_count
if #ARGV == at then
  local k, cost = FIRST_STATE, ARGV[at] + 0
  local state = limit_keys.read(known, read, now, KEYS[k], KEYS[k + 1], KEYS[k + 2], ARGV[r] + 0, ARGV[r + 1] + 0, ARGV[r + 2] + 0,
    max, life, digits, may_have)
  local verdict, wait = check(state, cost)
  local is_allowed = verdict == codes.ALLOWED
  if is_allowed then take(state, cost) end
  local remaining, reset, slack = answer(state)
  if is_allowed or state.stepped then limit_keys.write(write, state, reset) end
  limit_keys.finish(known)
  local shared = state.shared and 1 or nil
  if is_allowed then return { status, 1, remaining, reset, slack or 0, shared } end
  return { status, 0, remaining, reset, slack or 0, verdict, wait, remaining, reset, shared }
end

-- All states are read before any is written: if one cannot be read, nothing is spent.
local states, spent, overflowed = {}, {}, {}
local last_state = #KEYS - 2 * setting_count
for i = FIRST_STATE, last_state do
  local setting = ARGV[at] + 0
  local first, k = r + SETTING * (setting - 1), last_state + 2 * setting
  states[i] = limit_keys.read(known, read, now, KEYS[i], KEYS[k - 1], KEYS[k], ARGV[first] + 0, ARGV[first + 1] + 0, ARGV[first + 2] + 0,
    max, life, digits, may_have)
  if states[i].shared then overflowed[#overflowed + 1] = i - 1 end
  at = at + 1
end

local reply, n = { status }, 1
local all_passed, refused = {}, {}
for q = at, #ARGV, 3 do
  local i, cost, times = tonumber(ARGV[q]) + 1, tonumber(ARGV[q + 1]), tonumber(ARGV[q + 2])
  local state = states[i]
  if times <= 0 then
    local taken = 0
    if times == 0 or all_passed[i] then taken = math.min(cost, (answer(state))) end
    if taken > 0 then take(state, taken) end
    if taken > 0 or state.stepped then spent[state] = true end
    local remaining, reset = answer(state)
    reply[n + 1], reply[n + 2], reply[n + 3] = taken, remaining, reset
    n = n + 3
  else
    local remaining, reset, slack = answer(state)
    local allowed = math.min(times, (remaining - remaining % cost) / cost)
    if allowed > 0 then
      take(state, allowed * cost)
      remaining, reset, slack = answer(state)
    end
    if allowed > 0 or state.stepped then spent[state] = true end
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = allowed, remaining, reset, slack or 0
    n = n + 4
    all_passed[i] = allowed == times
    if allowed < times then
      refused[#refused + 1] = { at = n, state = state, cost = cost }
      for k = 1, 4 do reply[n + k] = 0 end
      n = n + 4
    end
  end
end

for _, question in ipairs(refused) do
  local to, state = question.at, question.state
  reply[to + 1], reply[to + 2] = check(state, question.cost)
  reply[to + 3], reply[to + 4] = answer(state)
end

for i = FIRST_STATE, last_state do
  local state = states[i]
  if spent[state] then
    limit_keys.write(write, state)
    spent[state] = nil
  end
end
limit_keys.finish(known)
for i = 1, #overflowed do reply[n + i] = overflowed[i] end
return reply
