-- callbacks.lua: reports outcomes of jobs to a URL. The script that ends a job writes its callback in the same run. A
-- dispatcher enqueues it as a job of another bucket, and removes it once that job is admitted: see move_callbacks.lua. None is dropped or
-- merged, so they count against the capacity of the bucket, and of the flow and the group of their jobs.
--
--   …:callbacks        zset  outcomes to send: name -> when to hand it out, by the server's clock, microseconds
--   …:callback_texts   hash  name -> text
--   …:callback_counts  hash  "f" and a flow, "g" and a group -> its number of callbacks; in a bucket with flows. It is
--                      removed with the last callback
--
-- The name is "at epoch id": when the job ended, microseconds, the number of its claims, and its id. So a dead letter that is
-- redriven and dies again has two. The text is "first LF second LF body":
--   first   the first line of the job's body in Redis (see codec.lua): it names the addresses
--   second  the head of its result (see results.lua), or the meta of a job that died while it was not being delivered; "7" for a cancelled
--          job of a bundle
--   body    of the response, of a job with a result
-- The text of a finished bundle is "bundle", "" and the bundle (see bundle.lua).

--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/flow.lua

local callbacks = { CHUNK = 500 }

-- Opens the callbacks of a run. levels: '0' for a bucket without flows, '2' if these are in groups.
function callbacks.open(key, texts, now, counts, levels)
  return { key = key, texts = texts, at = string.format('%d', now), times = {}, pairs = {}, counts = counts, levels = levels, more = {} }
end

-- Adds a number to the counts of the flow that a callback's first line names, and of its group.
local function count(more, levels, first, n)
  if levels == codes.NO_FLOWS then return end
  local name = flow.from_job(first, levels == codes.GROUPS)
  more['f' .. name] = (more['f' .. name] or 0) + n
  if levels ~= codes.GROUPS then return end
  local of_group = 'g' .. flow.group_of(name)
  more[of_group] = (more[of_group] or 0) + n
end

-- Records a callback, for callbacks.write.
function callbacks.note(list, id, epoch, first, second, body)
  local name, n = string.format('%s %d ', list.at, epoch) .. id, #list.times
  list.times[n + 1], list.times[n + 2] = list.at, name
  list.pairs[n + 1], list.pairs[n + 2] = name, first .. '\n' .. second .. '\n' .. body
  count(list.more, list.levels, first, 1)
end

-- Records the callback of a job that died while it was not being delivered, from its body and its meta, if any.
function callbacks.note_dead(list, id, body, stored)
  if not codec.has_callback(body) then return end
  callbacks.note(list, id, codec.numbers(stored), string.match(body, '^[^\n]*'), stored, '')
end

-- Records that a waiting job was cancelled, if it is in a bundle. No URL is notified of that.
function callbacks.note_cancelled(list, id, body, stored)
  if not codec.in_bundle(body) then return end
  callbacks.note(list, id, codec.numbers(stored), string.match(body, '^[^\n]*'), codec.CANCELLED, '')
end

-- Writes the recorded callbacks.
function callbacks.write(list)
  for from = 1, #list.times, callbacks.CHUNK do
    local to = math.min(from + callbacks.CHUNK - 1, #list.times)
    redis.call('HSET', list.texts, unpack(list.pairs, from, to))
    redis.call('ZADD', list.key, unpack(list.times, from, to))
  end
  for field, n in pairs(list.more) do redis.call('HINCRBY', list.counts, field, n) end
end

-- Removes callbacks by name. Returns those that existed.
function callbacks.remove(key, texts, counts, levels, gone)
  local more, were = {}, {}
  for _, name in ipairs(gone) do
    local stored = levels ~= codes.NO_FLOWS and redis.call('HGET', texts, name)
    if stored then count(more, levels, stored, -1) end
    redis.call('ZREM', key, name)
    if redis.call('HDEL', texts, name) == 1 then were[name] = true end
  end
  for field, n in pairs(more) do
    if redis.call('HINCRBY', counts, field, n) <= 0 then redis.call('HDEL', counts, field) end
  end
  if levels ~= codes.NO_FLOWS and #gone > 0 and redis.call('EXISTS', texts) == 0 then redis.call('DEL', counts) end
  return were
end

-- Returns the numbers of callbacks of flows, or of groups, by their names; kind is 'f' or 'g'.
function callbacks.counted(counts, kind, names)
  local fields, found = {}, {}
  for n, name in ipairs(names) do fields[n] = kind .. name end
  for n, there in ipairs(redis.call('HMGET', counts, unpack(fields))) do found[n] = tonumber(there or 0) end
  return found
end

return callbacks
