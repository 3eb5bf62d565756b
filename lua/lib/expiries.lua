-- expiries.lua: the times at which jobs of a bucket expire, so that expire.lua finds them wherever they wait.
--
--   expiries  zset  id -> when the job expires, by the server's clock, microseconds; only of jobs that expire
--
-- The body of a job has its expiry (see codec.lua); an entry is a hint to check it. Scripts that end a job remove its entry,
-- or leave that to expire.lua. The field expires of the settings shows whether there was ever an entry.

--#include lib/in_chunks.lua

local expiries = {}

-- Records a job that expires after a time: its text has the microseconds behind `behind` characters. list: arguments of ZADD.
function expiries.note(list, id, now, text, behind)
  local n = #list
  list[n + 1], list[n + 2] = string.format('%d', now + tonumber(string.match(text, '^%d+', behind + 1))), id
end

-- Writes the recorded entries. known is the field expires of the settings.
function expiries.write(key, conf, list, known)
  if #list == 0 then return end
  in_chunks('ZADD', key, list)
  if not known then redis.call('HSET', conf, 'expires', '1') end
end

return expiries
