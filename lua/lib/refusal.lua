-- refusal.lua: what enqueue.lua answers for a job for which there is no room: how many there are, how many there may be, and how long to
-- wait, microseconds. The wait is 0 while nothing leaves, and negative where it is a guess.
--
-- bucket is that of places.lua, with callbacks (how many wait, see callbacks.lua) and bounds: capacity, scheduled,
-- scheduled_capacity, and of its dead letters dead (the key),
-- dead_full (the code, or nil), dead_there, dead_most and dead_retention.

--#include lib/dlq.lua
--#include lib/flow.lua
--#include lib/places.lua

local refusal = { SCHEDULED_FULL = 8 }

-- How long until there are fewer than `bound` jobs and callbacks, if all jobs that leave are done and callbacks leave as fast.
local function wait_for_room(bucket, bound)
  local at = bucket.paused and 0 or places.slot(bucket, math.max(bucket.unfinished + bucket.callbacks - bound, 0))
  return at > 0 and math.max(at - bucket.now, bucket.interval) or 0
end

-- How long until a time of places.eta.
local function wait_until(at, now, interval) return at > 0 and math.max(at - now, interval) or 0 end

-- full is the code of the answer, bound that of the bucket for the job's priority.
function refusal.of(full, bucket, part, bound)
  local interval, now = bucket.interval, bucket.now
  if full == places.FLOW_FULL then
    local there, may_be = places.taken(part), part.obeys.capacity
    return there, may_be, wait_until(places.eta(bucket, part, math.max(there - may_be, 0)), now, interval)
  elseif full == places.GROUP_FULL then
    return places.taken(part.group), part.group.obeys.capacity, places.wait_of_group(bucket, part)
  elseif full == places.TOO_MANY_FLOWS or full == places.TOO_MANY_GROUPS then
    -- Nobody knows which flow ends when.
    return full == places.TOO_MANY_FLOWS and bucket.there or bucket.groups_there, bucket.max_flows, bucket.paused and 0 or interval
  elseif full == refusal.SCHEDULED_FULL then
    local head = redis.call('ZRANGE', KEYS[part.at + flow.PLACES], 0, 0, 'WITHSCORES')
    local wait = interval
    if head[2] and tonumber(head[2]) > now then wait = tonumber(head[2]) - now end
    return bucket.scheduled, bucket.scheduled_capacity, bucket.paused and 0 or wait
  elseif full == bucket.dead_full then
    return bucket.dead_there, bucket.dead_most,
      dlq.wait(bucket.dead, full, bucket.dead_there, bucket.dead_most, bucket.dead_retention, now)
  end
  return bucket.unfinished + bucket.callbacks, bound, wait_for_room(bucket, bound)
end

return refusal
