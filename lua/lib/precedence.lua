-- precedence.lua: how many of the jobs that wait in other places of a flow leave before a job. By the rules of queue.lua: those of later
-- that are due now, and those of another list that count as having come before it. The jobs of a list came in its order, but for a few.

--#include lib/codec.lua

local precedence = {
  LOOKS = 10, -- at jobs of a list: the number is right to a thousandth of its length
  MOST_BYTES = 262144, -- of the bodies that are read of a list
}

-- When the nth job of a list came, the first being 0, and the bytes of its body. For a cancelled job the next one counts.
local function came_at(list, n, body)
  for _, id in ipairs(redis.call('LRANGE', list, n, n + 3)) do
    local job = redis.call('HGET', body, id)
    if job then return codec.came(job), #job end
  end
  return nil, 0
end

-- How many jobs of a list stand before the first one that did not come before a time.
local function came_before(list, time, body)
  local low, high, bytes = 0, redis.call('LLEN', list), 0
  for look = 1, precedence.LOOKS do
    if low >= high or bytes > precedence.MOST_BYTES then break end
    local n = look == 1 and 0 or math.floor((low + high) / 2)
    local came, size = came_at(list, n, body)
    bytes = bytes + size
    if came and came < time then low = n + 1 else high = n end
  end
  return math.floor((low + high) / 2)
end

-- How many jobs of another list leave before a job of a priority that came at a time. class is the priority of that list: of two jobs that
-- count as having come at once, the more important one goes first.
function precedence.in_list(list, class, priority, came, aging, body)
  local until_then = came - (class - priority) * aging
  return came_before(list, class < priority and until_then + 1 or until_then, body)
end

-- How many of later are due.
function precedence.due(later, now) return redis.call('ZCOUNT', later, '-inf', string.format('%d', now)) end

return precedence
