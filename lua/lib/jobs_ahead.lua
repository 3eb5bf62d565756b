-- jobs_ahead.lua: counts the waiting jobs in other places of a flow that depart before a job. By the rules of queue.lua, these are the
-- due jobs of later, and the jobs of another list that count as enqueued earlier. A list is in the order of enqueueing, with few
-- exceptions.

--#include lib/codec.lua

local jobs_ahead = {
  LOOKS = 10, -- jobs of a list to read: the number is right to 0.1 % of its length
  MOST_BYTES = 262144, -- of the bodies that are read per list
}

-- Returns when the nth job of a list was enqueued, from 0, and the bytes of its body. For a cancelled job the next one counts.
local function came_at(list, n, body)
  for _, id in ipairs(redis.call('LRANGE', list, n, n + 3)) do
    local job = redis.call('HGET', body, id)
    if job then return codec.came(job), #job end
  end
  return nil, 0
end

-- Returns how many jobs of a list are before the first one that was enqueued at a time or later.
local function came_before(list, time, body)
  local low, high, bytes = 0, redis.call('LLEN', list), 0
  for look = 1, jobs_ahead.LOOKS do
    if low >= high or bytes > jobs_ahead.MOST_BYTES then break end
    local n = look == 1 and 0 or math.floor((low + high) / 2)
    local came, size = came_at(list, n, body)
    bytes = bytes + size
    if came and came < time then low = n + 1 else high = n end
  end
  return math.floor((low + high) / 2)
end

-- Returns how many jobs of another list depart before a job of a priority that was enqueued at a time. class is the priority of that
-- list: of two jobs that count as enqueued at once, the more important one goes first.
function jobs_ahead.in_list(list, class, priority, came, aging, body)
  local until_then = came - (class - priority) * aging
  return came_before(list, class < priority and until_then + 1 or until_then, body)
end

-- Returns how many jobs of later are due.
function jobs_ahead.due(later, now) return redis.call('ZCOUNT', later, '-inf', string.format('%d', now)) end

return jobs_ahead
