-- waiting.lua: removes jobs from the places where they wait, some at a time. An id in a list may be left from a cancelled job, and
-- belong to another job by now: so each is checked against its body and its meta.

--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/flow.lua

local waiting = {}

-- Returns some of the ids in the five places behind keys[before], and for each the number of its place: at_most ids, or as many as have
-- bodies of most_bytes, but at least one.
function waiting.read(keys, before, at_most, body, most_bytes)
  local ids, from = {}, {}
  for i = 1, flow.PLACES do
    local room = at_most - #ids
    local some = {}
    if room > 0 and i == flow.PLACES then
      some = redis.call('ZRANGE', keys[before + i], 0, room - 1)
    elseif room > 0 then
      some = redis.call('LRANGE', keys[before + i], 0, room - 1)
    end
    for _, id in ipairs(some) do
      if most_bytes <= 0 then return ids, from end
      most_bytes = most_bytes - redis.call('HSTRLEN', body, id)
      ids[#ids + 1], from[#from + 1] = id, i
    end
  end
  return ids, from
end

-- Returns the number (nil if it cannot be read) and the mark of a job that waits in that place, by its body. nil
-- if it does not wait there, or is of another flow.
function waiting.job(body, stored, place, levels, name)
  if not body then return nil end
  local base, kind, index = string.match(body, '^(%-?%d+) %d+ ...........(.).(%d+)')
  local plain = string.lower(kind or '')
  local in_list, state = place < flow.PLACES and codec.QUEUED or codec.RETRYING, stored and string.sub(stored, 1, 1)
  if not state then state = not base and in_list or kind == plain and codec.QUEUED or codec.RETRYING end
  if state ~= in_list or levels ~= codes.NO_FLOWS and flow.from_job(body, levels == codes.GROUPS) ~= name then return nil end
  return { number = base and tonumber(base) + tonumber(index), mark = codec.mark(body),
    delayed = kind ~= nil and kind ~= plain }
end

-- Removes ids from their places.
function waiting.take(keys, before, ids, from)
  local popped, n = {}, #ids
  for i = 1, n do popped[from[i]] = (popped[from[i]] or 0) + 1 end
  for i = 1, flow.PLACES - 1 do
    if popped[i] then redis.call('LPOP', keys[before + i], popped[i]) end
  end
  local last = popped[flow.PLACES]
  if last then redis.call('ZREM', keys[before + flow.PLACES], unpack(ids, n - last + 1, n)) end
end

-- Returns how many entries are left there.
function waiting.left(keys, before)
  local n = redis.call('ZCARD', keys[before + flow.PLACES])
  for i = 1, flow.PLACES - 1 do n = n + redis.call('LLEN', keys[before + i]) end
  return n
end

return waiting
