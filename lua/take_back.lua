-- take_back.lua: the second half of a sweep. It returns jobs with an ended lease to the
-- head of their list, in the order in which they were admitted. A job that crashed its worker
-- too often becomes a dead letter "poison". It returns retries that are in no place to
-- later, and flows that have something to send to the turn queue. It checks again everything that sweep.lua
-- found. May be sent twice.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:settings    hash  settings of the bucket
-- KEYS[4]  …:pace    hash  offset: of the engine's clock
-- KEYS[5]  …:count   hash  jobs enqueued with a delay, bytes of dead letters
-- KEYS[6]  …:leases  zset  id -> deadline, microseconds
-- KEYS[7]  …:dead    zset  id -> time of death
-- KEYS[8]  …:flows   hash  flow -> its state (see flow.lua)
-- KEYS[9]  …:flow_settings  hash  flow -> its own settings
-- KEYS[10] …:due:    zset  flow -> its turn, by the engine's clock; where flows are in groups …:due_groups, group -> its turn
-- KEYS[11] …:attempts  hash  id -> its first attempt and the last ones (see outcomes.lua)
-- KEYS[12] …:outbox  zset  events -> when to move them on (see outbox.lua)
-- KEYS[13] …:outbox_texts  hash  their texts
-- KEYS[14] …:callbacks  zset  callbacks -> when to hand them out (see callbacks.lua)
-- KEYS[15] …:callback_texts  hash  their texts
-- KEYS[16] …:followers  zset  batch members in flight, without the first of each batch -> number of their batch (see batch.lua)
-- KEYS[17] …:callback_counts  hash  number of callbacks of each flow and group (see callbacks.lua)
-- KEYS[18...]  jobs that a purge moved out and has not removed yet: …:purged:<priority>:, four lists, and
--          …:purged_later:, a zset; then for each flow its five places: …:q:<priority>:<flow>, four lists, the
--          most important first, then …:later:<flow>, a zset; where flows are in groups then what group.load wants; in a
--          pool then the pool's seven (see pool.lua)
-- ARGV[1]  channel: to wake dispatchers on
-- ARGV[2]  bucket: the message to publish
-- ARGV[3]  levels: 1 if the bucket has flows, 2 if they are in groups, 0 if it has only the flow ""
-- ARGV[4]  is_crash: 1 if a lost lease counts as a crash, 0 after an outage of Redis, 2 if only for a job that was started
--          in another process (see start.lua), as it always does for self-dispatched jobs
-- ARGV[5]  poison_crashes: consecutive crashes that make a job poison
-- ARGV[6]  poison_last: last response of a poison job (JSON)
-- ARGV[7]  longest_wait: of a retry, microseconds: a longer one is cut to it (or to a second: claim
--          parks jobs for less)
-- ARGV[8]  latest: the latest time that is possible, microseconds: if it is later, no lease is taken back; 0 unknown
-- ARGV[9]  member: the name of the bucket if it is in a pool, else ''
-- ARGV[10] flow_count: number of flows
-- ARGV[11...]  the flows, in the order of their places, 256 at most; then for each job: id, the number of its flow, from 1
-- Returns  {taken back, poison, repaired, jobs without a place: by how many the counters of the flows were too high, then the
--          ids of the poison jobs}; all 0 for a bucket that is not configured
-- Stores   callbacks of poison jobs, until they are moved on
-- Needs    Redis 7.0

--#include lib/batch.lua
--#include lib/callbacks.lua
--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/dlq.lua
--#include lib/flow.lua
--#include lib/group.lua
--#include lib/outbox.lua
--#include lib/pool.lua
--#include lib/server_time.lua
--#include lib/text.lua

local body, meta, conf, pace, count = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, dead, flows, flow_settings, due_flows, tried = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local outbox_key, outbox_texts, callbacks_key, callback_texts, followers_key = KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16]
local callback_counts = KEYS[17]
local channel, bucket, levels, has_flows, in_groups = ARGV[1], ARGV[2], ARGV[3], ARGV[3] ~= codes.NO_FLOWS, ARGV[3] == codes.GROUPS
local counts_as_crash, poison_at, poison_last = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local longest_retry, bound = math.max(tonumber(ARGV[7]), 1000000), tonumber(ARGV[8])
local PURGED, FIRST_FLOW, WIDTH = 17, 10, 2
local FIRST_PLACE = PURGED + flow.PLACES
local purged_later = KEYS[FIRST_PLACE]
local member, flow_count = ARGV[9], tonumber(ARGV[10])
local first_arg = FIRST_FLOW + flow_count

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', leases, '')

local rate_count, events = unpack(redis.call('HMGET', conf, 'rate_count', 'events'))
if not rate_count then return { 0, 0, 0, 0 } end
local now = server_time()
local function before(n) return FIRST_PLACE + (n - 1) * flow.PLACES end

local names, loaded, turn_queue, groups = {}, nil, nil, nil
for n = 1, flow_count do names[n] = ARGV[FIRST_FLOW + n] end
if has_flows then loaded, turn_queue = flow.load(conf, flows, flow_settings, names), flow.turn_queue(due_flows, pace) end
if in_groups then groups = group.load(conf, KEYS, before(flow_count + 1), loaded) end

local taken_back, poison, repaired, missing = 0, 0, 0, 0
local lost_jobs, unplaced = {}, {}
for i = first_arg + 1, #ARGV, WIDTH do
  local id, n = ARGV[i], tonumber(ARGV[i + 1])
  local stored = redis.call('HGET', meta, id)
  local state = stored and string.sub(stored, 1, 1)
  local deadline = state == codec.IN_FLIGHT and tonumber(redis.call('ZSCORE', leases, id))
  if deadline and deadline <= now and (bound == 0 or now <= bound) then
    local job = redis.call('HGET', body, id)
    if job and (not has_flows or flow.from_job(job, in_groups) == names[n]) then
      local base, kind, letter, index = string.match(job, '^(%-?%d+) %d+ ...........(.)(.)(%d+)')
      lost_jobs[#lost_jobs + 1] = { id = id, n = n, meta = stored, deadline = deadline, kind = kind or '',
        mark = codec.mark(job), body = codec.has_callback(job) and job, is_self_dispatched = codec.is_self_dispatched(job),
        list = flow.PRIORITY_OF[letter or ''] or 3, seq = tonumber(base or 0) + tonumber(index or 0) }
    end
  elseif state == codec.RETRYING then
    local due = tonumber(redis.call('ZSCORE', KEYS[before(n) + flow.PLACES], id))
    if (not due and not redis.call('ZSCORE', purged_later, id)) or (due and due > now + longest_retry) then
      local job = not has_flows or redis.call('HGET', body, id)
      if job == true or job and flow.from_job(job, in_groups) == names[n] then
        unplaced[#unplaced + 1] = { id = id, n = n, due = due and now + longest_retry or now }
      end
    end
  end
end
-- The job admitted last comes first, so that the oldest ends up at the head. Jobs enqueued with a
-- delay have no number: among them, the job whose lease ended first.
table.sort(lost_jobs, function(a, b)
  if a.seq ~= b.seq then return a.seq > b.seq end
  if a.deadline ~= b.deadline then return a.deadline > b.deadline end
  return a.id > b.id
end)

local were_empty = {}
for _, lost_job in ipairs(lost_jobs) do
  local n = lost_job.n
  if loaded and were_empty[n] == nil then
    were_empty[n] = redis.call('EXISTS', KEYS[before(n) + 1], KEYS[before(n) + 2], KEYS[before(n) + 3], KEYS[before(n) + 4]) == 0
  end
end

-- Everything is decided. From here on there are only writes, and reads of the new state.
local handled, soonest, poisoned, marks, ending = {}, {}, {}, {}, {}
local noted = callbacks.open(callbacks_key, callback_texts, now, callback_counts, levels)
for _, lost_job in ipairs(lost_jobs) do
  local id = lost_job.id
  if not handled[id] then
    handled[id] = true
    local _, epoch, attempts, lost, crashes, claim, last = string.match(lost_job.meta, codec.META)
    local code = codec.QUEUED
    local scheduled = lost_job.kind ~= string.lower(lost_job.kind)
    local was_started = string.sub(claim, 1, 1) == '+'
    if counts_as_crash == 1 and not lost_job.is_self_dispatched or counts_as_crash > 0 and was_started then crashes = crashes + 1 end
    crashes = tonumber(crashes)
    redis.call('ZREM', leases, id)
    local f = loaded and loaded[lost_job.n]
    if f then flow.count(f, 0, 0, -1) end
    local number = batch.number(claim)
    if number then batch.ends(ending, number, id, f or {}) end
    if crashes >= poison_at then
      code, last = codec.DEAD, poison_last
      poison = poison + 1
      poisoned[poison], marks[poison], lost_job.is_poison = id, lost_job.mark, true
      flow.unschedule(count, scheduled and 1 or 0)
      if f then flow.count(f, scheduled and 0 or -1, scheduled and -1 or 0, 0) end
    else
      taken_back = taken_back + 1
      redis.call('LPUSH', KEYS[before(lost_job.n) + lost_job.list], id)
      if f then flow.fill(f.state, flow.LETTERS[lost_job.list]) end
      if were_empty[lost_job.n] then soonest[lost_job.n] = now end
    end
    local becomes = string.format('%s %s %s %d %d %s ', code, epoch, attempts, tonumber(lost) + 1, crashes, claim) .. last
    redis.call('HSET', meta, id, becomes)
    if lost_job.is_poison and lost_job.body then callbacks.note_dead(noted, id, lost_job.body, becomes) end
  end
end
if #ending > 0 then batch.close(ending, followers_key) end
dlq.add(dead, body, meta, tried, count, now, poisoned, marks)
callbacks.write(noted)
local box = outbox.open(events, outbox_key, outbox_texts, count, now)
for _, lost_job in ipairs(box and lost_jobs or {}) do
  if lost_job.is_poison then outbox.note_dead(box, loaded and names[lost_job.n], { lost_job.id }, 'poison', lost_job.mark) end
end
outbox.write(box)
for _, job in ipairs(unplaced) do
  redis.call('ZADD', KEYS[before(job.n) + flow.PLACES], text(job.due), job.id)
  if loaded then flow.fill(loaded[job.n].state, 'd') end
  soonest[job.n] = math.min(soonest[job.n] or job.due, job.due)
  repaired = repaired + 1
end

if loaded then
  local purging = redis.call('EXISTS', KEYS[PURGED + 1], KEYS[PURGED + 2], KEYS[PURGED + 3], KEYS[PURGED + 4], purged_later) > 0
  local purged_flow = purging and redis.call('HGET', count, 'purge_flow')
  local none_leased = redis.call('ZCARD', leases) == 0
  for n, f in ipairs(loaded) do
    local state = f.state
    flow.count(f, 0, 0, 0, -(f.followers or 0))
    if none_leased then flow.count(f, 0, 0, -state.in_flight, -state.followers) end
    local excess = state.unfinished + state.scheduled - state.in_flight
    -- Counters that are too high would keep the flow for ever and fill it: keys were deleted by hand.
    if excess > 0 and purged_flow ~= f.name and not flow.next(KEYS, before(n), now) then
      missing = missing + excess
      local plain = math.min(excess, state.unfinished)
      flow.count(f, -plain, plain - excess, 0)
    end
    flow.save(flows, f, now + turn_queue.offset)
    flow.recall(turn_queue, f, KEYS, before(n), now, soonest[n])
  end
  group.close(groups, now, turn_queue)
end
pool.note(member, KEYS, batch.in_flight(leases, followers_key), now, channel)
-- Even if others wait in the list: the lease may have held the last place in flight.
if taken_back + poison > 0 or (turn_queue and turn_queue.sooner) then redis.pcall('PUBLISH', channel, bucket) end
return { taken_back, poison, repaired, missing, unpack(poisoned) }
