-- expiries.lua: when the jobs of a bucket expire, so that expire.lua finds them wherever they wait.
--
--   expiries  zset  id -> when the job expires, by the server's clock, microseconds; of jobs that expire only
--
-- The body of a job says when it expires (see codec.lua); an entry is a hint to look at it. Scripts that end a job take its entry out,
-- or leave it to expire.lua. Jobs of programs that know no expiries have no entry: they become dead letters when a claim finds
-- them. The field expires of the settings says whether there was ever an entry.

--#include lib/in_chunks.lua

local expiries = {}

-- Notes a job that expires after a time, of which the text has its microseconds behind a number of characters. list: arguments of ZADD.
function expiries.note(list, id, now, text, behind)
  local n = #list
  list[n + 1], list[n + 2] = string.format('%d', now + tonumber(string.match(text, '^%d+', behind + 1))), id
end

-- Writes what was noted. known is the field expires of the settings.
function expiries.write(key, conf, list, known)
  if #list == 0 then return end
  in_chunks('ZADD', key, list)
  if not known then redis.call('HSET', conf, 'expires', '1') end
end

return expiries
