-- places.lua: where enqueue.lua puts jobs: the flows of a batch, and what is known
-- of their times; its text goes in front of that script's. A bucket without flows has
-- one, "", of which no more is kept than its lists and its later (see flow.lua).
--
-- The functions are given the bucket, a table: now, offset (of the calendar's clock),
-- next_slot, rate_count, rate_per, interval, unfinished, paused, has_flows; places.read
-- adds there (flows there are), max_flows, and rivals (those whose turn it is).
--
-- A part is what the batch has to do with one flow: name; at, behind which its places begin in
-- KEYS; lengths of its lists, as far as known; pushed (priority -> ids), delayed (score, id, ...)
-- and first_due, its earliest: what gets in. Where the bucket has flows, also state and obeys (see flow.lua),
-- known (the flow is there), ready (when its rate lets it go, see flow.ready), and
-- interval, if it has a rate.

local places = {
  FLOW_FULL = 10, TOO_MANY_FLOWS = 11, -- codes of enqueue.lua
  CHUNK = 500,
}

-- Reads what is known of the flows.
function places.read(bucket, parts, conf, flows, calendar, flow_settings)
  local names = {}
  for n, part in ipairs(parts) do names[n] = part.name end
  local texts, own = redis.call('HMGET', flows, unpack(names)), redis.call('HMGET', flow_settings, unpack(names))
  local of_all = redis.call('HMGET', conf, 'flow_rate_count', 'flow_rate_per', 'flow_burst', 'flow_capacity',
    'flow_max_in_flight', 'max_flows')
  bucket.there, bucket.max_flows = redis.call('HLEN', flows), tonumber(of_all[6])
  bucket.rivals = redis.call('ZCOUNT', calendar, '-inf', string.format('%.0f', bucket.now + bucket.offset))
  for n, part in ipairs(parts) do
    local state, obeys = flow.read(texts[n]), flow.settings(own[n], of_all)
    part.state, part.obeys, part.known, part.ready = state, obeys, not state.new, bucket.now
    if obeys.rate_count > 0 then
      part.interval = obeys.rate_per / obeys.rate_count
      part.ready = flow.ready(state, bucket.now, obeys.rate_count, obeys.rate_per, obeys.burst)
    end
  end
end

-- Whether nothing of the flow leaves.
function places.held(bucket, part) return bucket.paused or bucket.has_flows and part.obeys.paused > 0 end

-- When a job leaves that has so many ahead of it in its flow, as far as can be told; 0 if
-- nothing leaves. The flows whose turn it is go one after the other.
function places.eta(bucket, part, ahead)
  if places.held(bucket, part) then return 0 end
  if not bucket.has_flows then return bucket.next_slot + ahead * bucket.interval end
  local turns = math.max((ahead + 1) * bucket.rivals - math.min(ahead, 1), ahead)
  local at = bucket.next_slot + math.min(turns, bucket.unfinished) * bucket.interval
  if part.interval then
    local unused = (part.obeys.burst - 1) * part.interval
    at = math.max(at, math.max(part.ready + unused, bucket.now) + ahead * part.interval - unused)
  end
  return at
end

-- How far apart the jobs of one flow leave then, as count and per.
function places.step(bucket, part)
  if not bucket.has_flows then return bucket.rate_count, bucket.rate_per end
  local per = bucket.rate_per * math.max(bucket.rivals, 1)
  if part.interval and part.interval > per / bucket.rate_count then return part.obeys.rate_count, part.obeys.rate_per end
  return bucket.rate_count, per
end

-- Why a flow, if the bucket has flows, does not take a job more, or so many that come at once:
-- a code, or nil.
function places.refusal(bucket, part, at_once)
  local bound = part.obeys.capacity
  if at_once > 0 and bound > 0 and part.state.unfinished + at_once > bound then return places.FLOW_FULL end
  if not part.known and bucket.there >= bucket.max_flows then return places.TOO_MANY_FLOWS end
end

-- Counts jobs that get into a flow, if the bucket has flows.
function places.count(bucket, part, at_once, for_later)
  if not part.known then bucket.there = bucket.there + 1 end
  part.known = true
  part.state.unfinished, part.state.scheduled = part.state.unfinished + at_once, part.state.scheduled + for_later
end

-- How many wait in the lists that are more important. Mostly none.
function places.above(part, priority)
  local first, last, n = part.at + 1, part.at + priority - 1, 0
  if priority == 1 or redis.call('EXISTS', unpack(KEYS, first, last)) == 0 then return 0 end
  for at = first, last do n = n + redis.call('LLEN', KEYS[at]) end
  return n
end

-- How many wait that are as important or more, those of the batch included.
function places.ahead(part, priority)
  local lengths, n = part.lengths, 0
  for i = 1, priority do
    local length = lengths[i]
    if not length then
      length = redis.call('LLEN', KEYS[part.at + i])
      lengths[i] = length
    end
    n = n + length
  end
  return n
end

-- Pushes what goes into the lists. Returns how many of these were empty, and how many
-- waited in the last of them.
local function push(part)
  local were_empty, waited = 0, 0
  for priority, pushed in pairs(part.pushed) do
    local length
    for i = 1, #pushed, places.CHUNK do
      length = redis.call('RPUSH', KEYS[part.at + priority], unpack(pushed, i, math.min(i + places.CHUNK - 1, #pushed)))
    end
    waited = length - #pushed
    if waited == 0 then were_empty = were_empty + 1 end
  end
  return were_empty, waited
end

-- Writes what gets into a flow. Returns how many waited in the last list that it pushed to; of a
-- bucket without flows, whether somebody has to be woken for it; of one with flows, when its turn is at the
-- latest, or nil where it has one that is no later.
function places.write(bucket, part)
  local were_empty, waited = push(part)
  local first, wake, turn = part.first_due, false, nil
  if bucket.has_flows then
    if were_empty > 0 then turn = math.max(bucket.now, part.ready) end
    if first then turn = math.min(turn or math.huge, math.max(first, part.ready)) end
  else
    -- All lists were empty if no more are there now than were filled.
    wake = were_empty > 0 and redis.call('EXISTS', unpack(KEYS, part.at + 1, part.at + 4)) == were_empty
  end
  if first then
    local later, delayed = KEYS[part.at + flow.PLACES], part.delayed
    if not bucket.has_flows then
      local head = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')
      wake = wake or not head[2] or first < tonumber(head[2])
    end
    for i = 1, #delayed, places.CHUNK do
      redis.call('ZADD', later, unpack(delayed, i, math.min(i + places.CHUNK - 1, #delayed)))
    end
  end
  return waited, wake, turn
end
