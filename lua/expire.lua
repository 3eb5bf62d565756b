-- expire.lua: makes dead letters of waiting jobs that have expired, wherever they wait, so that they take no place from new ones: a claim
-- finds them only at their turn, and there is no turn while the bucket or the flow is paused. Jobs in flight and jobs of a flow that is
-- being purged are spared: a later run checks them again. May be sent twice.
--
-- KEYS[1]  …:body    hash  id -> see codec.lua
-- KEYS[2]  …:meta    hash  id -> see codec.lua
-- KEYS[3]  …:settings    hash  settings of the bucket; leftovers: see cancel.lua
-- KEYS[4]  …:count   hash  jobs enqueued with a delay, bytes of dead letters; purge_flow: of the last purge
-- KEYS[5]  …:leases  zset  id -> deadline, microseconds
-- KEYS[6]  …:dead    zset  id -> time of death
-- KEYS[7]  …:flows   hash  flow -> its state (see flow.lua)
-- KEYS[8]  …:flow_settings  hash  flow -> its own settings
-- KEYS[9]  …:attempts  hash  id -> its first attempt and the last ones (see outcomes.lua)
-- KEYS[10] …:outbox  zset  events -> when to move them on (see outbox.lua)
-- KEYS[11] …:outbox_texts  hash  their texts
-- KEYS[12] …:callbacks  zset  callbacks -> when to hand them out (see callbacks.lua)
-- KEYS[13] …:callback_texts  hash  their texts
-- KEYS[14] …:callback_counts  hash  number of callbacks of each flow and group (see callbacks.lua)
-- KEYS[15] …:expiries  zset  id -> when the job expires (see expiries.lua)
-- KEYS[16...]  what a purge has not removed yet: …:purged:<priority>:, four lists, and …:purged_later:, a zset; then for each flow
--          its five places: …:q:<priority>:<flow>, four lists, the most important first, then …:later:<flow>, a zset; where flows are
--          in groups then what group.load wants
-- ARGV[1]  levels: 1 if the bucket has flows, 2 if they are in groups, 0 if it has only the flow ""
-- ARGV[2]  again: microseconds until the next check of a job that is spared, or of another flow than the caller assumes
-- ARGV[3]  most_bytes: of bodies to read in this call; one is read however large
-- ARGV[4]  expired_last: last response of a job that has expired (JSON)
-- ARGV[5]  flow_count: number of flows
-- ARGV[6...]  the flows, in the order of their places; then for each job, 200 at most: id, the number of its flow, from 1
-- Returns  {now, number of jobs checked, from the first on, number of flows whose lists have more entries of ended
--          jobs than of waiting ones (see sift.lua), their names, then for each job that became a dead letter: 0, id, flow,
--          attempts}; {0, 0, 0} for a bucket that is not configured, or has no flows although levels says so, or the reverse
-- Stores   the dead letters, until they are redriven or dropped; their callbacks, until they are moved on
-- Needs    Redis 7.0

--#include lib/callbacks.lua
--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/expiry.lua
--#include lib/flow.lua
--#include lib/group.lua
--#include lib/leftovers.lua
--#include lib/outbox.lua
--#include lib/server_time.lua

local body, meta, conf, count, leases, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local flows, flow_settings, tried, outbox_key, outbox_texts = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local callbacks_key, callback_texts, callback_counts, expiries_key = KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local levels, again, most_bytes, expired_last, flow_count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local has_flows, in_groups, PURGED, FIRST_FLOW = levels ~= codes.NO_FLOWS, levels == codes.GROUPS, 15, 5
local FIRST_PLACE = PURGED + flow.PLACES

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', expiries_key, '')

local rate_count, stored_levels, events = unpack(redis.call('HMGET', conf, 'rate_count', 'flows', 'events'))
if not rate_count or (stored_levels or codes.NO_FLOWS) ~= levels then return { 0, 0, 0 } end
local now = server_time()
local function before(n) return FIRST_PLACE + (n - 1) * flow.PLACES end

local purging = redis.call('EXISTS', unpack(KEYS, PURGED + 1, FIRST_PLACE)) > 0 and redis.call('HGET', count, 'purge_flow')
local parts, names, groups = {}, {}, nil
for n = 1, flow_count do names[n] = ARGV[FIRST_FLOW + n] end
if has_flows then
  parts = flow.load(conf, flows, flow_settings, names)
  if in_groups then groups = group.load(conf, KEYS, before(flow_count + 1), parts) end
else
  parts[1] = {}
end

local box = (events or '') ~= '' and outbox.open(events, outbox_key, outbox_texts, count, now)
local noted = callbacks.open(callbacks_key, callback_texts, now, callback_counts, levels)
local out = { metas = {}, metas_size = 0, died = {} } -- the part of claim_reply.lua that dead letters need
local over = expiry.open(out, noted, box, tried, 0, expired_last)
local gone, later, expired, handled, looked_at, bytes = {}, {}, {}, {}, 0, 0
for i = FIRST_FLOW + flow_count + 1, #ARGV, 2 do
  local id, n = ARGV[i], tonumber(ARGV[i + 1])
  local stored = redis.call('HGET', meta, id)
  local state, job = stored and string.sub(stored, 1, 1), nil
  local waits = not state or state == codec.QUEUED or state == codec.RETRYING
  if waits then
    bytes = bytes + redis.call('HSTRLEN', body, id)
    if looked_at > 0 and bytes > most_bytes then break end
    job = redis.call('HGET', body, id)
  end
  looked_at = looked_at + 1
  local ends = nil
  if job then ends = select(3, codec.times(job)) end
  if state == codec.IN_FLIGHT then
    later[#later + 1], later[#later + 2] = string.format('%d', now + again), id
  elseif not ends then
    gone[#gone + 1] = id -- it has ended, or does not expire
  elseif ends > now then
    later[#later + 1], later[#later + 2] = string.format('%d', ends), id
  elseif names[n] == purging or has_flows and flow.from_job(job, in_groups) ~= names[n] then
    later[#later + 1], later[#later + 2] = string.format('%d', now + again), id
  elseif not handled[id] then
    handled[id], gone[#gone + 1] = true, id
    expired[#expired + 1] = { id = id, n = n, list = flow.list_of(codec.mark(job)) }
    expiry.note(over, parts[n], id, job, stored, codes.CLAIM_EXPIRED)
  end
end

-- Everything is decided. From here on the script writes; what it still reads decides nothing about jobs.
if #gone > 0 then redis.call('ZREM', expiries_key, unpack(gone)) end
if #later > 0 then redis.call('ZADD', expiries_key, unpack(later)) end
if #expired == 0 then return { now, looked_at, 0 } end
redis.call('HSET', meta, unpack(out.metas))
expiry.write(over, dead, body, meta, count, now)
local lists, touched = {}, {}
for _, one in ipairs(expired) do
  -- A job waits in later, or in a list.
  local place = before(one.n)
  if redis.call('ZREM', KEYS[place + flow.PLACES], one.id) == 0 then
    local list = place + one.list
    if not lists[list] then lists[list], touched[#touched + 1] = {}, { list = list, n = one.n } end
    lists[list][#lists[list] + 1] = one.id
  end
end
for n, f in ipairs(parts) do
  if has_flows and f.changed then flow.save(flows, parts[n]) end
end
group.close(groups, now)
if box then outbox.write(box) end

-- Returns how many entries in the lists of a flow belong to no waiting job, and how many jobs wait in them.
local function count_leftovers(n)
  local entries, waiting = 0, redis.call('HLEN', body) - redis.call('ZCARD', dead) - redis.call('ZCARD', leases)
  for i = 1, flow.PLACES - 1 do entries = entries + redis.call('LLEN', KEYS[before(n) + i]) end
  if has_flows then
    local state = parts[n].state
    waiting = state.unfinished + state.scheduled - state.in_flight
  end
  waiting = waiting - redis.call('ZCARD', KEYS[before(n) + flow.PLACES])
  return entries - waiting, waiting
end

local reply, named, NAMED = { now, looked_at, 0 }, {}, 3
for _, one in ipairs(touched) do
  if not leftovers.remove(KEYS[one.list], lists[one.list], body, meta) then
    redis.call('HSET', conf, 'leftovers', '1')
    local more, waiting = count_leftovers(one.n)
    if more > math.max(waiting, leftovers.SHORT) and not named[one.n] then
      named[one.n], reply[NAMED] = true, reply[NAMED] + 1
      reply[#reply + 1] = names[one.n]
    end
  end
end
for _, value in ipairs(out.died) do reply[#reply + 1] = value end
return reply
