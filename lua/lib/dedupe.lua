-- dedupe.lua: the ids of jobs that were settled, cancelled, dropped or purged. They are
-- remembered until their dedupe window ends, and never more of them than dedupe_max.
--
-- The hash seen holds the state of each id and the end of its window (see codec.lua). There are two windows:
-- dedupe_window, and a minute for ids that the client made. Ids of one window end in the order in which they came. So two
-- lists, seen_window and seen_minute, oldest first, name the ids to forget. After the window was shortened, older ids end
-- later than those behind them. They keep those in memory a little longer, and enqueue.lua reads the end itself.
--
-- An id of the proxy names what a client wants done, by its Idempotency-Key. Once that is done, the id is remembered as any other. If
-- the job ended otherwise, its id is free: for a minute it is remembered only for an enqueue that is sent again after a lost reply. Such an
-- id may come again before that, and has one entry in seen_minute all the same: where its end is later than its place says, the entry
-- moves to the end of the list.

--#include lib/callers.lua
--#include lib/codec.lua
--#include lib/in_chunks.lua

local dedupe = {
  PROXY = 'proxy-', -- see ProxyID of caller.go
  CHUNK = 500,
  MINUTE = 60000000, -- microseconds: our client sends no second job under an id that it has made
}

-- The ids that a run of the script remembers: window and max as in the settings; the keys seen, seen_window and seen_minute.
function dedupe.open(window, max, now, seen, seen_window, seen_minute)
  local d = { window = window, max = max, now = now, seen = seen, fields = {}, lists = { seen_window, seen_minute }, ids = { {}, {} } }
  d.ends = { string.format('%d', now + window), string.format('%d', now + math.min(window, dedupe.MINUTE)) }
  return d
end

local function is_of_proxy(id) return string.sub(id, 1, #dedupe.PROXY) == dedupe.PROXY end

-- Whether an id is free although it is remembered (ended is what seen holds): a client of the proxy asks again for what was not done.
function dedupe.is_free(id, ended)
  return is_of_proxy(id) and string.sub(ended, 12, 12) ~= codec.DONE
end

-- Notes the job of a mark (see codec.mark) and the code of the state that it ended in.
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
  fields[at + 1], fields[at + 2] = id, string.sub(mark, 1, 11) .. code .. ends
  if not has_entry then ids[#ids + 1] = id end
end

-- Moves the head of a list to its end, if it ends later than the id behind it.
local function move_back(d, list, ends)
  local second = redis.call('LINDEX', list, 1)
  local before = second and redis.call('HGET', d.seen, second)
  if second and (not before or tonumber(string.sub(before, 13)) < tonumber(string.sub(ends, 13))) then
    redis.call('LMOVE', list, list, 'LEFT', 'RIGHT')
  end
end

-- Forgets the ids at the head of a list whose window has ended, up to a number. Most runs find that the first one has not.
local function forget(d, list, most)
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
    if stored then gone[#gone + 1] = ids[i] end
    n = i
  end
  if n > 0 then redis.call('LPOP', list, n) end
  in_chunks('HDEL', d.seen, gone)
end

-- Forgets ids whose window has ended, up to a number of each list; 500 or fewer.
function dedupe.forget(d, most)
  for n = 1, 2 do forget(d, d.lists[n], most) end
end

-- Writes the noted ids. Forgets ids whose window ended, and the oldest if there are too many: first those that end within a
-- minute.
function dedupe.write(d, count)
  -- More ids are forgotten than come, so that ended ones do not pile up.
  for n = 1, 2 do forget(d, d.lists[n], math.min(2 * #d.ids[n] + 10, dedupe.CHUNK)) end
  in_chunks('HSET', d.seen, d.fields)
  for n = 1, 2 do in_chunks('RPUSH', d.lists[n], d.ids[n]) end
  local excess = math.min(redis.call('HLEN', d.seen) - d.max, 2 * dedupe.CHUNK)
  for n = 2, 1, -1 do
    if excess > 0 then
      local oldest = redis.call('LRANGE', d.lists[n], 0, excess - 1)
      if #oldest > 0 then
        redis.call('LPOP', d.lists[n], #oldest)
        in_chunks('HDEL', d.seen, oldest)
        redis.call('HINCRBY', count, 'forgotten', #oldest)
        excess = excess - #oldest
      end
    end
  end
end

return dedupe
