-- ended.lua: returns which of some jobs may have ended: they are dead, or do not exist any more. A process that waits for many jobs
-- asks for all of them at once.
--
-- KEYS[1]  …:body    hash  id -> see codec.lua
-- KEYS[2]  …:meta    hash  id -> see codec.lua
-- ARGV[1...]  ids, at most 500
-- Returns  for each id: 1 if the job may have ended, 0 if it has not
-- Stores   nothing
-- Needs    Redis 7.0

--#include lib/codec.lua

local body, meta = KEYS[1], KEYS[2]

local reply, metas = {}, redis.call('HMGET', meta, unpack(ARGV))
for i, id in ipairs(ARGV) do
  local stored = metas[i]
  if stored then -- a job that ends and does not become a dead letter loses its meta
    reply[i] = string.sub(stored, 1, 1) == codec.DEAD and 1 or 0
  else
    reply[i] = 1 - redis.call('HEXISTS', body, id)
  end
end
return reply
