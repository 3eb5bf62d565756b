-- callbacks.lua: outcomes of jobs that somebody is to be told. The script that ends a job writes its callback in the same run. A
-- dispatcher makes a job of another bucket of it, and takes it out once that job is in: see move_callbacks.lua. None is dropped or put
-- together with another one, so they count against the capacity of the bucket.
--
--   callbacks       zset  name -> when it is to be handed out, by the server's clock, microseconds
--   callback_texts  hash  name -> text
--
-- The name is "at epoch id": when the job ended, microseconds, the number of its claims, and its id. So a dead letter that is
-- redriven and dies again has two. The text is "first LF second LF body":
--   first   the first line of the job's body in Redis (see codec.lua): it names the addresses
--   second  the head of its result (see results.lua), or the meta of a job that died while nobody delivered it
--   body    of the answer, of a job with a result

--#include lib/codec.lua

local callbacks = { CHUNK = 500 }

-- The callbacks that a run writes.
function callbacks.open(key, texts, now) return { key = key, texts = texts, at = string.format('%d', now), times = {}, pairs = {} } end

-- Notes one, to be written by callbacks.write.
function callbacks.note(list, id, epoch, first, second, body)
  local name, n = string.format('%s %d ', list.at, epoch) .. id, #list.times
  list.times[n + 1], list.times[n + 2] = list.at, name
  list.pairs[n + 1], list.pairs[n + 2] = name, first .. '\n' .. second .. '\n' .. body
end

-- Notes that of a job that died and that nobody delivered, by its body and its meta, if it has one.
function callbacks.note_dead(list, id, body, stored)
  if not codec.has_callback(body) then return end
  callbacks.note(list, id, codec.numbers(stored), string.match(body, '^[^\n]*'), stored, '')
end

-- Writes what was noted.
function callbacks.write(list)
  for from = 1, #list.times, callbacks.CHUNK do
    local to = math.min(from + callbacks.CHUNK - 1, #list.times)
    redis.call('HSET', list.texts, unpack(list.pairs, from, to))
    redis.call('ZADD', list.key, unpack(list.times, from, to))
  end
end

return callbacks
