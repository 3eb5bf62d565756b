-- refusal.lua: the reply of enqueue.lua for a job without room: the present number, the maximum, and how long to
-- wait at the earliest, in microseconds (see estimate.earliest). The wait is 0 while nothing departs; a negative wait is a guess.
--
-- bucket is the one of placement.lua, with callbacks (number of waiting ones, see callbacks.lua) and bounds: capacity, scheduled,
-- scheduled_capacity, and for its dead letters dead (the key),
-- dead_full (the code, or nil), dead_there, dead_most and dead_retention.

--#include lib/codes.lua
--#include lib/dlq.lua
--#include lib/estimate.lua
--#include lib/flow.lua
--#include lib/flow_owners.lua
--#include lib/jobs_ahead.lua
--#include lib/placement.lua

local refusal = {
  LOOKS = 32, -- flows, or groups, that are checked for scheduled jobs
}

-- Returns how many delayed jobs, which make no room, depart from the flow of a job before all others.
local function due_first(bucket, part) return jobs_ahead.due(KEYS[part.at + flow.PLACES], bucket.now) end

-- Returns how long until there are fewer than `bound` jobs and callbacks, if all departing jobs end as done and callbacks move on as fast.
-- In a bucket with flows the number of due jobs is unknown.
local function wait_for_room(bucket, part, bound)
  local b, first = estimate.earliest(bucket), bucket.has_flows and 0 or due_first(bucket, part)
  local at = estimate.of_bucket(b, estimate.requests(b, math.max(bucket.unfinished + bucket.callbacks - bound, 0) + first))
  return at > 0 and math.max(at - bucket.now, b.interval) or 0
end

-- Returns the wait until an estimated time.
local function wait_until(at, now, interval) return at > 0 and math.max(at - now, interval) or 0 end

-- Returns a lower bound of the time until a scheduled job comes due, of the flows or groups in a turn queue. states are their
-- states. A flow whose turn is now only shows whether it has scheduled jobs. due is the first due time among
-- the jobs of this script, nil if there are none: they are not in the turn queue yet.
local function wait_in_turn_queue(bucket, turn_queue, states, due)
  local turns, names = redis.call('ZRANGE', turn_queue, 0, refusal.LOOKS - 1, 'WITHSCORES'), {}
  local first = due and math.max(due - bucket.now, bucket.interval)
  for i = 1, #turns, 2 do
    local turn = tonumber(turns[i + 1]) - bucket.offset - bucket.now
    if turn > bucket.interval then
      first = math.min(first or turn, turn)
      break
    end
    names[#names + 1] = turns[i]
  end
  for _, text in ipairs(#names > 0 and redis.call('HMGET', states, unpack(names)) or {}) do
    if flow.read(text or nil).scheduled > 0 then return bucket.interval end
  end
  return first or bucket.interval
end

-- Returns how long until the next scheduled job comes due: of the job's flow, or of any if all_flows is set. A scheduled job that is
-- neither in later nor in flight is about to depart.
local function wait_for_due(bucket, part, all_flows)
  if bucket.paused then return 0 end
  local g = part.group
  if all_flows and bucket.has_flows then
    return wait_in_turn_queue(bucket, bucket.turn_queue, g and bucket.groups.key or bucket.flows, bucket.first_due)
  end
  local later, new = KEYS[part.at + flow.PLACES], part.delayed and #part.delayed / 2 or 0
  if part.state and part.state.scheduled - new > redis.call('ZCARD', later) then return bucket.interval end
  local head = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')[2]
  local due = math.min(tonumber(head) or math.huge, part.first_due or math.huge)
  return due < math.huge and math.max(due - bucket.now, bucket.interval) or bucket.interval
end

-- Records that the bucket has too many dead letters, or too many bytes of them.
function refusal.dead(bucket, key, full, there, most, conf)
  bucket.dead, bucket.dead_full, bucket.dead_there, bucket.dead_most = key, full, there, most
  bucket.dead_retention = tonumber(redis.call('HGET', conf, 'dead_retention') or 0)
end

-- Returns the reply. full is its code, bound the bucket's bound for the job's priority, sealed the job.
function refusal.reply(full, bucket, part, bound, sealed)
  local interval, now = bucket.interval, bucket.now
  if full == codes.FLOW_FULL then
    local there, may_be = placement.taken(part), part.obeys.capacity
    local fastest = estimate.earliest(bucket)
    local leave_before = math.max(there - may_be, 0) + due_first(bucket, part)
    return there, may_be, wait_until(estimate.eta(fastest, part, leave_before), now, fastest.interval)
  elseif full == codes.GROUP_FULL then
    local g = part.group
    local there, may_be = placement.taken(g), g.obeys.capacity
    local fastest = estimate.earliest(bucket)
    return there, may_be, wait_until(estimate.of_group(fastest, g, math.max(there - may_be, 0)), now, fastest.interval)
  elseif full == codes.TOO_MANY_FLOWS or full == codes.TOO_MANY_GROUPS then
    -- It is unknown which flow ends when.
    return full == codes.TOO_MANY_FLOWS and bucket.there or bucket.groups_there, bucket.max_flows, bucket.paused and 0 or interval
  elseif full == codes.TOO_MANY_OF_CALLER then
    return flow_owners.too_many(bucket.flow_owners, sealed), bucket.flow_owners.most, bucket.paused and 0 or interval
  elseif full == codes.SCHEDULED_FULL then
    return bucket.scheduled, bucket.scheduled_capacity, wait_for_due(bucket, part, true)
  elseif full == codes.FLOW_SCHEDULED_FULL then
    local wait = estimate.held(bucket, part) and 0 or wait_for_due(bucket, part)
    return part.state.scheduled, placement.scheduled_bound(part, bucket.flow_later), wait
  elseif full == codes.GROUP_SCHEDULED_FULL then
    local g = part.group
    local wait = g.state.in_flight > 0 and interval or wait_in_turn_queue(bucket, g.due, bucket.flows, g.first_due)
    return g.state.scheduled, placement.scheduled_bound(g, bucket.group_later), (bucket.paused or g.obeys.paused > 0) and 0 or wait
  elseif full == bucket.dead_full then
    return bucket.dead_there, bucket.dead_most,
      dlq.wait(bucket.dead, full, bucket.dead_there, bucket.dead_most, bucket.dead_retention, now)
  end
  return bucket.unfinished + bucket.callbacks, bound, wait_for_room(bucket, part, bound)
end

return refusal
