-- sift.lua: removes ids of ended jobs from a list of waiting jobs, a chunk at a time. Otherwise the list would grow with each job
-- that expires in its middle (see leftovers.lua). The order of the other ids stays. May be sent twice.
--
-- KEYS[1]  …:body    hash  id -> see codec.lua
-- KEYS[2]  …:meta    hash  id -> see codec.lua
-- KEYS[3...]  the five places of the flow: …:q:<priority>:<flow>, four lists, the most important first, then …:later:<flow>, a zset
-- ARGV[1]  list: which of the four
-- ARGV[2]  from: entries to pass
-- ARGV[3]  at_most: entries to check, 1 to 500
-- Returns  {entries checked, entries removed}
-- Stores   nothing
-- Needs    Redis 7.0

--#include lib/leftovers.lua

local body, meta, number, from, at_most = KEYS[1], KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local FIRST_PLACE = 2
local list = KEYS[FIRST_PLACE + number]

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', meta, '')

local ids, removed = redis.call('LRANGE', list, from, from + at_most - 1), 0
if #ids == 0 then return { 0, 0 } end
local metas = redis.call('HMGET', meta, unpack(ids))
for i, id in ipairs(ids) do
  if leftovers.is_one(body, id, metas[i]) then
    redis.call('LSET', list, from + i - 1, '') -- no job has this id
    removed = removed + 1
  end
end
if removed > 0 then
  local is_near_head = 2 * from < redis.call('LLEN', list)
  redis.call('LREM', list, is_near_head and removed or -removed, '')
end
return { #ids, removed }
