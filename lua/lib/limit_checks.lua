-- limit_checks.lua: the limit checks of enqueue.lua. The rule of each limit key, its state and the questions are read from
-- KEYS and ARGV of enqueue.lua. A state is read at its first use. Nothing is written before limit_checks.write.

--#include lib/callers.lua
--#include lib/codes.lua
--#include lib/limit_keys.lua
--#include lib/limits.lua

local limit_checks = { KEYS_OF_LIMIT = 3, ARGS_OF_LIMIT = 6 }

-- Opens the checks of a run: the keys of limits begin behind first_key, key_count of them, and their rules behind first_arg. Behind the
-- rules there is a flag for each limit, 1 in shadow mode.
function limit_checks.open(now, first_key, key_count, first_arg, limit_count)
  local q = { now = now, first_key = first_key, key_count = key_count, limit_count = limit_count, rules = {}, shadow = {}, states = {},
    used = {}, known_keys = {} } -- used: state of a limit -> its rule
  local at = first_arg
  for i = 1, key_count do
    q.rules[i] = { rule = limits[ARGV[at + 1]], a = tonumber(ARGV[at + 2]), b = tonumber(ARGV[at + 3]),
      full = tonumber(ARGV[at + 4]), max = ARGV[at + 5], life = ARGV[at + 6] }
    at = at + limit_checks.ARGS_OF_LIMIT
  end
  for i = 1, limit_count do q.shadow[i] = ARGV[at + i] == '1' end
  return q
end

-- Returns the state of a limit's key; letters: of the first caller that uses it.
local function state_of(q, number, letters)
  local state = q.states[number]
  if not state then
    local r, at = q.rules[number], q.first_key + (number - 1) * limit_checks.KEYS_OF_LIMIT
    state = limit_keys.read(q.known_keys, r.rule.read, q.now, KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], r.a, r.b, r.full, r.max, r.life,
      letters ~= '' and callers.digits(letters) or nil, callers.may_have)
    q.states[number] = state
    if state.stepped then q.used[state] = r.rule end
  end
  return state
end

-- Returns whether all limits whose numbers are behind `at` allow a number of jobs, none by its shared key. letters: of the caller.
function limit_checks.all_allow(q, at, jobs, letters)
  for i = 1, q.limit_count do
    local number = tonumber(ARGV[at + i])
    if number > 0 then
      local state = state_of(q, number, letters)
      if state.shared or q.rules[number].rule.check(state, jobs) ~= codes.ALLOWED then return false end
    end
  end
  return true
end

-- Spends a number of jobs of these limits. Puts the remaining requests and the reset of each into the reply, behind `to`.
function limit_checks.take_all(q, at, jobs, reply, to)
  for i = 1, q.limit_count do
    local number = tonumber(ARGV[at + i])
    local remaining, reset = -1, 0
    if number > 0 then
      local rule, state = q.rules[number].rule, q.states[number]
      rule.take(state, jobs)
      q.used[state] = rule
      remaining, reset = rule.answer(state)
    end
    reply[to + 2 * i - 1], reply[to + 2 * i] = remaining, reset
  end
end

-- Checks all limits of one job whose numbers are behind `at`, and puts the results into the reply behind `n`. It spends only if all
-- that are not in shadow mode allow, and there is `room`. letters: of the caller. Returns the worst verdict and the longest wait.
function limit_checks.ask(q, at, cost, room, reply, n, letters)
  local worst, longest = codes.ALLOWED, 0
  for i = 1, q.limit_count do
    local number, to = tonumber(ARGV[at + i]), n + 4 * i
    local verdict, wait = codes.NOT_ASKED, 0
    if number > 0 then
      verdict, wait = q.rules[number].rule.check(state_of(q, number, letters), cost)
      if not q.shadow[i] then
        if verdict > worst then worst = verdict end
        if wait > longest then longest = wait end
      end
      if q.states[number].shared then verdict = verdict + codes.SHARED end
    end
    reply[to + 1], reply[to + 3] = verdict, wait
  end
  for i = 1, q.limit_count do
    local number, to = tonumber(ARGV[at + i]), n + 4 * i
    local remaining, reset = 0, 0
    if number > 0 then
      local rule, state = q.rules[number].rule, q.states[number]
      if worst == codes.ALLOWED and room and reply[to + 1] % codes.SHARED == codes.ALLOWED then
        rule.take(state, cost)
        q.used[state] = rule
      end
      remaining, reset = rule.answer(state)
    end
    reply[to + 2], reply[to + 4] = remaining, reset
  end
  return worst, longest
end

-- Writes the changed states.
function limit_checks.write(q)
  if q.key_count == 0 then return end
  for state, rule in pairs(q.used) do limit_keys.write(rule.write, state) end
  limit_keys.finish(q.known_keys)
end

return limit_checks
