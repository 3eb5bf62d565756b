-- dedupe.lua: the ids of jobs that were settled, cancelled, dropped or purged. They are
-- remembered until their dedupe window ends, at most dedupe_max of them.
--
-- The hash seen holds the state of each id and the end of its window (see codec.lua). There are two windows:
-- dedupe_window, and a minute for ids that the client made. Ids of one window end in the order in which they were added. So two
-- lists, seen_window and seen_minute, oldest first, name the ids to forget. After the window was shortened, older ids end
-- later than the ids behind them. The ids behind them then stay a little longer, and enqueue.lua reads the end itself.
--
-- An id of the proxy identifies a client's request, by its Idempotency-Key. If the request was done, the id is remembered as any other.
-- If not, another request may use the id at once. For one more minute the id identifies only a repetition of the same call of
-- enqueue.lua whose reply was lost. An id that is used again within that minute keeps its one entry in seen_minute: if its end is
-- later than its place in the list, the entry moves to the end of the list.
--
-- Above dedupe_max the callers with the most ids lose their oldest ones: so no caller can push out the ids of others. The field
-- seen_of:<digits> of …:count is the number of a caller's ids (see owned.lua). If the caller of the oldest id keeps
-- it, the id moves to the second-to-last place of its list: relocate.lua takes the end of the last id as the end of the whole list.

--#include lib/callers.lua
--#include lib/codec.lua
--#include lib/in_chunks.lua
--#include lib/owned.lua

local dedupe = {
  PROXY = 'proxy-', -- see ProxyID of caller.go
  CHUNK = 500,
  MINUTE = 60000000, -- microseconds: our client sends no second job under an id that it made
  OF = 'seen_of:',
  LOOKS = 1000, -- ids of a list that a run checks for removal
  SPARE = 8, -- one id in SPARE may exceed the maximum, until ids of the right callers are found
}

-- Opens the ids that a run remembers: window and max as in the settings; the keys seen, seen_window, seen_minute and count.
function dedupe.open(window, max, now, seen, seen_window, seen_minute, count)
  local d = { window = window, max = max, now = now, seen = seen, fields = {}, lists = { seen_window, seen_minute }, ids = { {}, {} },
    count = count, of = {} }
  d.ends = { string.format('%d', now + window), string.format('%d', now + math.min(window, dedupe.MINUTE)) }
  return d
end

local function is_of_proxy(id) return string.sub(id, 1, #dedupe.PROXY) == dedupe.PROXY end

-- Returns whether a remembered id is free (ended is its text in seen): a client of the proxy repeats a request that was not done.
function dedupe.is_free(id, ended)
  return is_of_proxy(id) and string.sub(ended, 12, 12) ~= codec.DONE
end

local function count_for(d, digits, by)
  if digits then d.of[digits] = (d.of[digits] or 0) + by end
end

-- Writes the counts.
local function write_counts(d)
  for digits, by in pairs(d.of) do
    if by ~= 0 then owned.add(d.count, dedupe.OF, digits, by) end
  end
  d.of = {}
end

-- Records the ended job of a mark (see codec.mark), with the code of its final state.
function dedupe.add(d, id, mark, code)
  if d.window <= 0 then return end
  local kind = string.byte(mark, 12)
  local n = (kind == 103 or kind == 71) and 2 or 1 -- g or G
  local has_entry = false
  if code ~= codec.DONE and is_of_proxy(id) then
    n, has_entry = 2, redis.call('HEXISTS', d.seen, id) == 1
  end
  local fields, ids = d.fields, d.ids[n]
  local at = #fields
  local ends = d.ends[n]
  if #mark > callers.MARK then ends = callers.ends(ends, mark) end
  local stored = string.sub(mark, 1, 11) .. code .. ends
  fields[at + 1], fields[at + 2] = id, stored
  if has_entry then return end
  ids[#ids + 1] = id
  count_for(d, callers.ended(stored), 1)
end

-- Moves the head of a list to its end, if it ends later than the id behind it.
local function move_back(d, list, ends)
  local second = redis.call('LINDEX', list, 1)
  local before = second and redis.call('HGET', d.seen, second)
  if second and (not before or tonumber(string.sub(before, 13)) < tonumber(string.sub(ends, 13))) then
    redis.call('LMOVE', list, list, 'LEFT', 'RIGHT')
  end
end

-- Forgets up to `most` ids at the head of the nth list whose window has ended. Usually the first id has not ended.
local function forget(d, nth, most)
  local list = d.lists[nth]
  local first = redis.call('LINDEX', list, 0)
  local ends = first and redis.call('HGET', d.seen, first)
  if not first then return end
  if ends and tonumber(string.sub(ends, 13)) > d.now then
    if is_of_proxy(first) then move_back(d, list, ends) end
    return
  end
  local ids = redis.call('LRANGE', list, 0, most - 1)
  local gone, n = {}, 0
  for i, stored in ipairs(redis.call('HMGET', d.seen, unpack(ids))) do
    if stored and tonumber(string.sub(stored, 13)) > d.now then break end
    if stored then
      gone[#gone + 1] = ids[i]
      count_for(d, callers.ended(stored), -1)
    end
    n = i
  end
  if n > 0 then redis.call('LPOP', list, n) end
  in_chunks('HDEL', d.seen, gone)
end

-- Forgets ids whose window has ended, up to `most` per list; 500 or fewer.
function dedupe.forget(d, most)
  for n = 1, 2 do forget(d, n, most) end
  write_counts(d)
end

-- Forgets ids of the nth list, of callers with more than a level; without a level, the oldest. Returns their number.
local function make_room(d, nth, excess, all, level)
  local list, gone, looked = d.lists[nth], 0, 0
  local looks = math.min(redis.call('LLEN', list), dedupe.LOOKS)
  while gone < excess and looked < looks do
    local ids, forgotten, stay = redis.call('LRANGE', list, 0, math.min(excess - gone, looks - looked) - 1), {}, {}
    for i, stored in ipairs(redis.call('HMGET', d.seen, unpack(ids))) do
      local owner = stored and callers.ended(stored) or nil
      if owner and level and (all[owner] or 0) <= level then
        stay[#stay + 1] = ids[i]
      else
        count_for(d, owner, -1)
        if owner and all then all[owner] = (all[owner] or 0) - 1 end
        forgotten[#forgotten + 1] = ids[i]
      end
    end
    redis.call('LPOP', list, #ids)
    in_chunks('HDEL', d.seen, forgotten)
    if #stay > 0 then
      stay[#stay + 1] = redis.call('RPOP', list) or nil
      in_chunks('RPUSH', list, stay)
    end
    gone, looked = gone + #forgotten, looked + #ids
  end
  return gone
end

-- Writes the recorded ids. Forgets ids whose window ended, and above the maximum the oldest of the callers with the most ids: first ids
-- that end within a minute.
function dedupe.write(d)
  -- More ids are forgotten than added, so that ended ones do not pile up.
  for n = 1, 2 do forget(d, n, math.min(2 * #d.ids[n] + 10, dedupe.CHUNK)) end
  in_chunks('HSET', d.seen, d.fields)
  for n = 1, 2 do in_chunks('RPUSH', d.lists[n], d.ids[n]) end
  write_counts(d)
  local above = redis.call('HLEN', d.seen) - d.max
  if above <= 0 then return end
  local excess, gone, all = math.min(above, 2 * dedupe.CHUNK), 0, owned.all(d.count, dedupe.OF)
  local level = all and owned.level(all, excess)
  for n = 2, 1, -1 do gone = gone + make_room(d, n, excess - gone, all, level) end
  local spare = math.floor(d.max / dedupe.SPARE)
  for n = 2, 1, -1 do
    if above - gone > spare and gone < excess then gone = gone + make_room(d, n, math.min(above - spare, excess) - gone) end
  end
  if gone > 0 then redis.call('HINCRBY', d.count, 'forgotten', gone) end
  write_counts(d)
end

return dedupe
