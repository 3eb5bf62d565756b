-- limit_keys.lua: the number of keys of a limit, and the key that all callers above that number share. Scripts that
-- check limits include it (see limits.lua).
--
-- A limit may have `max` keys (0: any number). A key expires within `life` microseconds of its last write. So each
-- key was written in this span of `life` or in the previous one. Only the first write in a span counts a key;
-- later writes cost nothing. So at most `max` keys exist, unless
-- `may_have` permits more, and an expired key counts for up to two spans.
-- If the count is lost, it is right again two spans later.
-- If the caller that names a key is known, `may_have` bounds its keys, and its further keys share that key too. So a caller that makes
-- up keys takes none of the keys of others.
-- Stores the string span:this:before:both, the start of the span and the numbers of keys written in it, in the previous
-- one, and in both; then, after a space each, the same for a caller, by its digits (see callers.lua): digits:this:before:both. It expires
-- two spans after it was written.
--
--   …:limit_keys:<limit>:<life>  string  how many keys of a limit there are; expires
--   …:limit:<limit>:overflow:<tier>  string  state of the key that callers above max share; of a sliding_window_log a list; expires
--   tundish:{l:<limit>}:keys:<life>  string  how many keys of a limit outside a bucket there are; expires
--   tundish:{l:<limit>}:overflow:<tier>  string  state of the key that callers above max share; of a sliding_window_log a list; expires

--#include lib/bits.lua

local limit_keys = {}

-- Returns the numbers of keys, `passed` microseconds after the span of their last write.
local function numbers(passed, life, this, before, both)
  if passed == life then return { this = 0, before = this + 0, both = 0, new = 0 } end
  if passed < -life then -- the clock stepped back: all count as if they were written now
    return { this = math.max(this + before - both, this + 0), before = 0, both = 0, new = 0 }
  end
  if passed < life then return { this = this + 0, before = before + 0, both = both + 0, new = 0 } end
  return { this = 0, before = 0, both = 0, new = 0 }
end

local function count_of(key, life, now)
  life = life + 0
  local start = now - now % life
  local span, this, before, both, rest = string.match(redis.call('GET', key) or '', '^(%d+):(%d+):(%d+):(%d+)(.*)$')
  if not span then return { key = key, life = life, span = start, all = numbers(life + 1, life), of = {} } end
  local passed = start - span
  local count = { key = key, life = life, span = start, all = numbers(passed, life, this, before, both), of = {} }
  if passed < life and passed >= -life then count.span = span + 0 end
  for digits, its, its_before, its_both in string.gmatch(rest, ' (%d+):(%d+):(%d+):(%d+)') do
    count.of[digits] = numbers(passed, life, its, its_before, its_both)
  end
  return count
end

local function alive(n) return math.max(n.this, n.this + n.before - n.both) + n.new end

-- Returns the state of a key, read by a rule's `read`. If the key is new and there are `max`, it is the state of the shared key. `known`
-- has the counts and shared states of this run. `max` and `life` are texts, as most calls need no numbers. `digits` names the
-- caller, nil none. `may_have` returns whether it may have one more, from the number of free keys (negative above `max`) and its own
-- number. `shared` marks the shared state.
function limit_keys.read(known, read, now, key, counter, overflow, a, b, full, max, life, digits, may_have)
  local state = read(key, now, a, b, full)
  if not state.at then bits.check() end
  if max == '0' or state.at and state.at - now >= -(now % life) then return state end
  local count = known[counter] or count_of(counter, life, now)
  known[counter] = count
  local mine = digits and (count.of[digits] or numbers(count.life + 1, count.life))
  if not state.at then
    local free = max - alive(count.all)
    local is_full = free <= 0
    if mine then is_full = not may_have(free, alive(mine)) end
    if is_full then
      state = known[overflow] or read(overflow, now, a, b, full)
      known[overflow], state.place, state.shared = state, overflow, true
      return state
    end
    count.all.new = count.all.new + 1
    if mine then mine.new = mine.new + 1 end
  end
  if mine then count.of[digits] = mine end
  state.count, state.mine = count, mine
  return state
end

-- Counts a key that is written for the first time in this span.
local function note(n, is_new, was_before)
  if is_new then n.new = n.new - 1 elseif was_before then n.both = n.both + 1 end
  n.this = n.this + 1
end

-- Writes a state by its rule's `write`, and counts its key.
function limit_keys.write(write, state, reset)
  local count, at, mine = state.count, state.at, state.mine
  write(state.place, state, reset)
  if not count then return end
  state.count, state.mine = nil, nil
  if at and at >= count.span then return end
  local was_before = at and at >= count.span - count.life
  note(count.all, not at, was_before)
  if mine then note(mine, not at, was_before and mine.before > mine.both) end
  count.changed = true
end

-- Writes the counts, after the last state.
function limit_keys.finish(known)
  for _, count in pairs(known) do
    if count.changed then
      local all = count.all
      local texts = { string.format('%d:%d:%d:%d', count.span, all.this, all.before, all.both) }
      for digits, n in pairs(count.of) do
        if n.this + n.before > 0 then texts[#texts + 1] = string.format('%s:%d:%d:%d', digits, n.this, n.before, n.both) end
      end
      redis.call('SET', count.key, table.concat(texts, ' '), 'PX', math.ceil(count.life / 500) + 1000)
    end
  end
end

return limit_keys
