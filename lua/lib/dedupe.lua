-- dedupe.lua: the ids of jobs that were settled, cancelled, dropped or purged. They are
-- remembered until their dedupe window ends, and never more of them than dedupe_max. Its text
-- goes in front of the scripts that end jobs.

local dedupe = {
  CHUNK = 500,
  GENERATED_WINDOW = 60000000, -- of an id that our client made: it sends no second job under that id
}

-- What a run of the script is to remember: window and max as in the conf.
function dedupe.open(window, max, now) return { window = window, max = max, now = now, ids = {}, ends = {} } end

-- Notes the job of a mark (fingerprint, then c or g) and the code of the state that it ended in.
function dedupe.add(d, id, mark, code)
  local window = d.window
  if string.lower(string.sub(mark, 12, 12)) == 'g' then window = math.min(window, dedupe.GENERATED_WINDOW) end
  if window <= 0 then return end
  local ends, n = string.format('%.0f', d.now + window), #d.ids
  d.ids[n + 1], d.ids[n + 2] = id, string.sub(mark, 1, 11) .. code .. ends
  d.ends[n + 1], d.ends[n + 2] = ends, id
end

local function in_chunks(command, key, list)
  for i = 1, #list, dedupe.CHUNK do
    redis.call(command, key, unpack(list, i, math.min(i + dedupe.CHUNK - 1, #list)))
  end
end

-- Writes what was noted. Forgets ids whose window ended, and the oldest where there are too many.
function dedupe.write(d, seen, seen_until, count)
  in_chunks('HSET', seen, d.ids)
  in_chunks('ZADD', seen_until, d.ends)
  local ended = redis.call('ZRANGEBYSCORE', seen_until, '-inf', string.format('%.0f', d.now), 'LIMIT', 0, dedupe.CHUNK)
  in_chunks('HDEL', seen, ended)
  in_chunks('ZREM', seen_until, ended)
  local excess = redis.call('ZCARD', seen_until) - d.max
  if excess > 0 then
    local oldest = redis.call('ZRANGE', seen_until, 0, math.min(excess, 2 * dedupe.CHUNK) - 1)
    in_chunks('HDEL', seen, oldest)
    in_chunks('ZREM', seen_until, oldest)
    redis.call('HINCRBY', count, 'forgotten', #oldest)
  end
end

return dedupe
