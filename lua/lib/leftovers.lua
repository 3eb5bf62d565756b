-- leftovers.lua: removes ids of ended jobs from the lists where they waited. Redis searches a list from its ends, which takes some
-- 20 ns per entry. So an id in the middle of a long list stays there: claim.lua pops it without a slot, and sift.lua removes such ids
-- when they outnumber the waiting jobs.

--#include lib/codec.lua

local leftovers = {
  SHORT = 1000, -- entries of a list that is searched completely
  CHUNK = 200,
  MOST = 2000, -- entries at the head of a long list that one run checks
}

-- Returns whether an id in a list belongs to no job that waits there, by its meta.
function leftovers.is_one(body, id, stored)
  if stored then return string.sub(stored, 1, 1) ~= codec.QUEUED end
  return redis.call('HEXISTS', body, id) == 0
end

-- Returns how many entries at the head of a list are leftovers, up to a maximum. Adds each to found.
local function at_head(list, body, meta, found)
  local ids = redis.call('LRANGE', list, 0, leftovers.CHUNK - 1)
  local metas = #ids > 0 and redis.call('HMGET', meta, unpack(ids))
  for i, id in ipairs(ids) do
    if not leftovers.is_one(body, id, metas[i]) then return i - 1 end
    found[id] = true
  end
  return #ids
end

-- Removes ids from a list, after their metas or their bodies show that they do not wait any more. From a long list it removes only those
-- at the head. Returns whether all were removed.
function leftovers.remove(list, ids, body, meta)
  if redis.call('LLEN', list) <= leftovers.SHORT then
    for _, id in ipairs(ids) do redis.call('LREM', list, 0, id) end
    return true
  end
  local found, popped = {}, 0
  repeat
    local n = at_head(list, body, meta, found)
    if n > 0 then redis.call('LPOP', list, n) end
    popped = popped + n
  until n < leftovers.CHUNK or popped >= leftovers.MOST
  for _, id in ipairs(ids) do
    if not found[id] then return false end
  end
  return true
end

return leftovers
