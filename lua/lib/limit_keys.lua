-- limit_keys.lua: the number of keys of a limit, and the key that all callers above that number share. Scripts that
-- ask limits include it (see limits.lua).
--
-- A limit may have at most `max` keys (0: any number). A key expires within `life` microseconds of its last write. So each
-- key was written in this span of `life` or in the one before. The first write in a span counts a key,
-- which costs the others nothing. So never more than `max` keys live, and an expired key counts for up to two spans.
-- If the count is lost, it is right again two spans later.
-- Stores the string span:this:before:both, the start of the span and the numbers of keys written in it, in the one
-- before, and in both; it expires two spans after it was written.

--#include lib/bits.lua

local limit_keys = {}

local function count_of(key, life, now)
  life = life + 0
  local count = { key = key, life = life, span = now - now % life, this = 0, before = 0, both = 0, new = 0 }
  local span, this, before, both = string.match(redis.call('GET', key) or '', '^(%d+):(%d+):(%d+):(%d+)$')
  if not span then return count end
  local passed = count.span - span
  if passed == life then
    count.before = this + 0
  elseif passed < -life then -- the clock stepped back: all count as if they were written now
    count.this = math.max(this + before - both, this + 0)
  elseif passed < life then
    count.span, count.this, count.before, count.both = span + 0, this + 0, before + 0, both + 0
  end
  return count
end

-- The state of a key by a rule's `read`. If the key is new and there are `max`, it is the state of the shared key. `known`
-- has the counts and shared states of this run. `max` and `life` are texts, as most calls need no numbers of them.
-- `shared` marks the shared state.
function limit_keys.read(known, read, now, key, counter, overflow, a, b, full, max, life)
  local state = read(key, now, a, b, full)
  if not state.at then bits.check() end
  if max == '0' or state.at and state.at - now >= -(now % life) then return state end
  local count = known[counter] or count_of(counter, life, now)
  known[counter] = count
  if not state.at then
    if math.max(count.this, count.this + count.before - count.both) + count.new >= max + 0 then
      state = known[overflow] or read(overflow, now, a, b, full)
      known[overflow], state.place, state.shared = state, overflow, true
      return state
    end
    count.new = count.new + 1
  end
  state.count = count
  return state
end

-- Writes a state by its rule's `write`, and counts its key.
function limit_keys.write(write, state, reset)
  local count, at = state.count, state.at
  write(state.place, state, reset)
  if not count then return end
  state.count = nil
  if not at then
    count.new = count.new - 1
  elseif at >= count.span then
    return
  elseif at >= count.span - count.life then
    count.both = count.both + 1
  end
  count.this, count.changed = count.this + 1, true
end

-- Writes the counts, after the last state.
function limit_keys.finish(known)
  for _, count in pairs(known) do
    if count.changed then
      local text = string.format('%d:%d:%d:%d', count.span, count.this, count.before, count.both)
      redis.call('SET', count.key, text, 'PX', math.ceil(count.life / 500) + 1000)
    end
  end
end

return limit_keys
