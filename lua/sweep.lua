-- sweep.lua: looks for losses, a chunk at a time: expired leases, claimed
-- jobs that are not where they should be, flows that no claim would find. It
-- repairs what needs no flow's places. It names the rest for take_back.lua, which checks
-- and repairs it, as only the caller can give the places of a flow. May be sent twice.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:settings    hash  settings of the bucket
-- KEYS[4]  …:pace    hash  lease: the longest lease of any dispatcher, microseconds; offset: of the engine's clock
-- KEYS[5]  …:count   hash  jobs enqueued with a delay; purge_at, purge_flow: of the last purge; bytes of dead letters; held, open,
--          half_open: number of flows that their downstream holds, or whose breaker is in that state, by the last complete audit;
--          oldest: see oldest_waiting.lua, which follows a complete audit that named flows for it
-- KEYS[6]  …:leases  zset  id -> deadline, microseconds
-- KEYS[7]  …:dead    zset  id -> time of death
-- KEYS[8]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[9]  …:seen_window  list  settled ids, oldest first (see dedupe.lua)
-- KEYS[10] …:seen_minute  list  the same for ids that our client made
-- KEYS[11] …:claims  hash  dispatcher -> its last claim and when
-- KEYS[12] …:flows   hash  flow -> its state (see flow.lua)
-- KEYS[13] …:flow_settings  hash  flow -> its own settings
-- KEYS[14] …:due:    zset  flow -> its turn, by the engine's clock; where flows are in groups …:due_groups, group -> its turn
-- KEYS[15] …:groups  hash  group -> its state (see group.lua)
-- KEYS[16] …:group_settings  hash  group -> its own settings
-- KEYS[17] …:idle    zset  flow or group -> when it can be forgotten (see idle.lua)
-- KEYS[18] …:attempts  hash  id -> its first attempt and the last ones (see outcomes.lua)
-- KEYS[19] …:followers  zset  batch members in flight, without the first of each batch -> number of their batch (see batch.lua)
-- KEYS[20] …:flow_owners  zset  flow -> its caller (see flow_owners.lua)
-- KEYS[21...]  what a purge took from its places and has not removed yet: …:purged:<priority>:, four lists, and
--          …:purged_later:, a zset; then the five places of the flow "", which a bucket without flows has:
--          …:q:<priority>:<flow>, four lists, and …:later:<flow>, a zset; in a pool then the pool's seven (see pool.lua)
-- ARGV[1]  levels: 1 if the bucket has flows, 2 if they are in groups, 0 if it has only the flow ""
-- ARGV[2]  lease_count: leases to name at most; 0 for none (the clock stepped)
-- ARGV[3]  cursor: of the comparison, "" to compare nothing
-- ARGV[4]  flow_cursor: in the flows and the groups, "" to skip them. In the flows, the numbers of flows that the audit has
--          found held, open and half-open follow, if there are any
-- ARGV[5]  latest: the latest time that is possible, microseconds: if it is later, the clock stepped forwards
--          and no lease is named; 0 unknown
-- ARGV[6]  member: the bucket's name if it is in a pool, else ''
-- ARGV[7]  channel: to wake dispatchers on
-- Returns  {now; repaired; next cursor (a string); next cursor in the flows (a string); jobs without a place: an estimate by counts, which
--          should be 0, and always is in a bucket with flows (see take_back.lua); entries that a purge has left, 0 while it is running}.
--          Then four numbers: the jobs with expired leases, the waiting retries, the flows, and the flows
--          of the audit with jobs in their lists. Then the ids and names of these four. In a bucket with groups, more flows follow:
--          they only count if they are not in the turn queue of their group.
--          For a bucket that is not configured it names nothing: the bucket gets another tag, or the next claim configures it
-- Stores   nothing new
-- Needs    Redis 7.0

--#include lib/batch.lua
--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/dedupe.lua
--#include lib/dlq.lua
--#include lib/downstream.lua
--#include lib/encoding.lua
--#include lib/flow.lua
--#include lib/flow_owners.lua
--#include lib/group.lua
--#include lib/idle.lua
--#include lib/in_chunks.lua
--#include lib/pacer.lua
--#include lib/pool.lua
--#include lib/server_time.lua
--#include lib/text.lua

local body, meta, conf, pace, count = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, dead, seen, seen_window, seen_minute, claims = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local flows, flow_settings, due_flows, groups, group_settings, idle_key = KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local tried, followers_key, flow_owners_key = KEYS[18], KEYS[19], KEYS[20]
local has_flows, in_groups = ARGV[1] ~= codes.NO_FLOWS, ARGV[1] == codes.GROUPS
local at_most, cursor, flow_cursor, bound = tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])
local member, channel = ARGV[6], ARGV[7]
local GROUPS = 14 -- number of keys before the keys of groups
local PURGED = 20 -- number of keys before the keys of a purge
local PLACES = PURGED + flow.PLACES
local MAX_HORIZON = 200000
local CLAIM_KEPT = 60000000
local PURGE_PAUSE = 10000000 -- after this time without progress, the process of a purge counts as lost
local CHUNK = 500
local MOST_BYTES = 1048576 -- of bodies to read

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', leases, '')

local now = server_time()
if redis.call('HEXISTS', conf, 'rate_count') == 0 then return { now, 0, '0', '0', 0, 0, 0, 0, 0, 0 } end

-- Deadlines beyond the length of a lease mean that the clock stepped back.
local lease, offset = unpack(redis.call('HMGET', pace, 'lease', 'offset'))
local longest, clock = tonumber(lease or 0), now + tonumber(offset or 0)
if longest > 0 then
  local too_far = text(now + longest + MAX_HORIZON)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', leases, '(' .. too_far, '+inf', 'LIMIT', 0, CHUNK)) do
    redis.call('ZADD', leases, text(now + longest), id)
  end
end

local expired, retries, astray, in_lists, suspects, claimed, repaired = {}, {}, {}, {}, {}, {}, 0
if at_most > 0 and (bound == 0 or now <= bound) then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', text(now), 'LIMIT', 0, at_most)) do
    local stored = redis.call('HGET', meta, id)
    if stored and string.sub(stored, 1, 1) == codec.IN_FLIGHT and redis.call('HEXISTS', body, id) == 1 then
      expired[#expired + 1] = id
    else
      redis.call('ZREM', leases, id)
    end
  end
end

dedupe.forget(dedupe.open(0, 0, now, seen, seen_window, seen_minute, count), CHUNK)

-- A server that has loaded its data from a file stores small hashes and sorted sets as lists again.
if cursor == '0' then
  for _, key in ipairs({ meta, flows, groups }) do encoding.hash(key, 0, redis.call('HLEN', key)) end
  for _, key in ipairs({ leases, due_flows }) do encoding.zset(key, 0, redis.call('ZCARD', key)) end
end

-- The comparison: is every claimed job where its state says?
local next_cursor = ''
if cursor ~= '' then
  local pairs_of
  next_cursor, pairs_of = unpack(redis.call('HSCAN', meta, cursor, 'COUNT', 200))
  for i = 1, #pairs_of, 2 do
    local id, state = pairs_of[i], string.sub(pairs_of[i + 1], 1, 1)
    if redis.call('HEXISTS', body, id) == 0 then
      redis.call('HDEL', meta, id)
      redis.call('HDEL', tried, id)
      redis.call('ZREM', leases, id)
      -- In the later of a flow the id stays until its time comes: claim finds no job for it.
      if not has_flows then redis.call('ZREM', KEYS[PLACES + flow.PLACES], id) end
      redis.call('ZREM', dead, id)
      repaired = repaired + 1
    elseif state == codec.IN_FLIGHT and not redis.call('ZSCORE', leases, id) then
      redis.call('ZADD', leases, text(now + longest), id)
      repaired = repaired + 1
    elseif state == codec.RETRYING then
      retries[#retries + 1] = id
    elseif state == codec.DEAD and not redis.call('ZSCORE', dead, id) then
      dlq.add(dead, body, meta, tried, count, now, { id }, { codec.mark(redis.call('HGET', body, id)) })
      repaired = repaired + 1
    end
    if state ~= codec.DEAD then claimed[#claimed + 1] = id end
  end
  dlq.audit(dead, body, meta, tried, count)
  local answers = redis.call('HGETALL', claims)
  for i = 1, #answers, 2 do
    local made = tonumber(string.match(answers[i + 1], '^%S+ (%d+) '))
    if not made or made < now - CLAIM_KEPT or made > now + CLAIM_KEPT then
      redis.call('HDEL', claims, answers[i])
    end
  end
end

local function in_places(before)
  local n = redis.call('ZCARD', KEYS[before + flow.PLACES])
  for i = before + 1, before + flow.PLACES - 1 do n = n + redis.call('LLEN', KEYS[i]) end
  return n
end
local unpurged, missing = in_places(PURGED), 0
local purge_at, purge_flow = unpack(redis.call('HMGET', count, 'purge_at', 'purge_flow'))
if not has_flows then
  missing = redis.call('HLEN', body) - in_places(PLACES) - redis.call('ZCARD', leases) - redis.call('ZCARD', dead) - unpurged
  if missing < 0 then missing = 0 end
end

local none_leased, jobs = redis.call('ZCARD', leases) == 0, redis.call('HLEN', body) - redis.call('ZCARD', dead)
local function forget(key, gone)
  in_chunks('HDEL', key, gone)
end
-- Goes through the names of a scan, a chunk at a time, with their states and their turns in the turn queue.
local function each(names, states, own, fields, look)
  for from = 1, #names, CHUNK do
    local some = { unpack(names, from, math.min(from + CHUNK - 1, #names)) }
    local turns = redis.call('ZMSCORE', due_flows, unpack(some))
    for n, f in ipairs(flow.load(conf, states, own, some, fields)) do look(f, turns[n]) end
  end
end
local function is_idle(f) return flow.is_idle(f.state, f.settings, clock) end
local function should_go(f) return f.state.unfinished + f.state.scheduled > f.state.in_flight and not pacer.is_held(f) end

-- Returns whether jobs may wait in the lists of a flow.
local function has_listed(state)
  return state.unfinished + state.scheduled > state.in_flight and string.find(state.filled, '[khnl]') ~= nil
end

-- Numbers of flows that are held, open and half-open.
local in_trouble = { 0, 0, 0 }
local function count_trouble(down)
  local kind = down.breaker + 1
  if down.breaker ~= downstream.CLOSED or down.till > clock then in_trouble[kind] = in_trouble[kind] + 1 end
end

local function keep_trouble()
  redis.call('HDEL', count, 'held', 'open', 'half_open', 'oldest')
  for i, field in ipairs({ 'held', 'open', 'half_open' }) do
    if in_trouble[i] > 0 then redis.call('HSET', count, field, text(in_trouble[i])) end
  end
end

-- Removes the state of idle flows. A flow with jobs to send, by its counters, must be
-- in the turn queue or held back. Without leases, no job of it is in flight. The turn queue of a
-- group is not among the keys.
local function audit_flows(names)
  local gone = {}
  each(names, flows, flow_settings, flow.OF_ALL, function(f, turn)
    if f.state.down then count_trouble(f.state.down) end
    if has_listed(f.state) then in_lists[#in_lists + 1] = f.name end
    if is_idle(f) then
      gone[#gone + 1] = f.name
    elseif none_leased and f.state.in_flight > 0 then
      astray[#astray + 1] = f.name
    elseif not turn and should_go(f) and (unpurged == 0 or f.name ~= purge_flow) then
      local list = in_groups and suspects or astray
      list[#list + 1] = f.name
    end
  end)
  forget(flows, gone)
end

-- Returns the sums of the counters of all flows by group, if the flows are few; else nil.
local function sums_by_group()
  if redis.call('HLEN', flows) > CHUNK then return nil end
  local sums, all = {}, redis.call('HGETALL', flows)
  for i = 1, #all, 2 do
    local name, state = flow.group_of(all[i]), flow.read(all[i + 1])
    sums[name] = sums[name] or { state = { unfinished = 0, scheduled = 0, in_flight = 0, followers = 0 } }
    flow.count(sums[name], state.unfinished, state.scheduled, state.in_flight, state.followers)
  end
  return sums
end

-- Returns how many jobs of a bucket without flows were enqueued with a delay: jobs in later that were never claimed, and,
-- by their bodies, claimed jobs (`ids` has all of them). Nil if that is too much to read.
local function came_delayed(ids)
  local later, bytes = KEYS[PLACES + flow.PLACES], 0
  local n = redis.call('ZCARD', later)
  for _, id in ipairs(ids) do
    bytes = bytes + redis.call('HSTRLEN', body, id)
    if bytes > MOST_BYTES then return nil end
    if redis.call('ZSCORE', later, id) then n = n - 1 end
    if string.match(redis.call('HGET', body, id) or '', '^%-?%d+ %d+ ...........%u') then n = n + 1 end
  end
  return n
end

-- Returns bounds for the number of jobs enqueued with a delay. In a small bucket they are equal; in a bucket
-- with flows they are equal if the flows' counters have as many jobs as the bucket.
local function scheduled_bounds()
  if has_flows then
    local unfinished, scheduled, all = 0, 0, redis.call('HLEN', flows) <= 2 * CHUNK and redis.call('HGETALL', flows) or {}
    for i = 2, #all, 2 do
      local plain, delayed = string.match(all[i], '(%d+) (%d+) %d+ %S+$')
      unfinished, scheduled = unfinished + (plain or 0), scheduled + (delayed or 0)
    end
    if unfinished + scheduled == jobs then return scheduled, scheduled end
    return 0, jobs
  end
  local exact = cursor == '0' and next_cursor == '0' and unpurged == 0 and came_delayed(claimed)
  if exact then return exact, exact end
  local were_claimed = math.max(redis.call('HLEN', meta) - redis.call('ZCARD', dead), 0)
  local waiting = redis.call('ZCARD', KEYS[PLACES + flow.PLACES]) + redis.call('ZCARD', KEYS[PURGED + flow.PLACES])
  return math.max(waiting - were_claimed, 0), math.min(waiting + were_claimed, jobs)
end

-- A wrong count, after a deletion by hand, would lower the capacity for ever.
if cursor == '0' then
  local least, most = scheduled_bounds()
  local kept = tonumber(redis.call('HGET', count, 'scheduled') or 0)
  local scheduled = math.max(math.min(kept, most), least)
  if scheduled ~= kept then
    redis.call('HSET', count, 'scheduled', text(scheduled))
    repaired = repaired + 1
  end
end

-- Does the same for groups. If it is cheap, their counters become the sums of their flows' counters;
-- in an empty bucket they are 0, and without leases none is in flight.
local function audit_groups(names)
  local gone, listed, sums = {}, {}, sums_by_group()
  local none_unfinished = jobs == 0
  for _, name in ipairs(names) do listed[name] = true end
  for name in pairs(sums or {}) do
    if not listed[name] then names[#names + 1] = name end
  end
  each(names, groups, group_settings, group.OF_ALL, function(g, turn)
    local state = g.state
    local sum = sums and (sums[g.name] or { state = { unfinished = 0, scheduled = 0, in_flight = 0, followers = 0 } }).state or
      { unfinished = none_unfinished and 0 or state.unfinished, scheduled = none_unfinished and 0 or state.scheduled,
        in_flight = none_leased and 0 or state.in_flight, followers = none_leased and 0 or state.followers }
    if sum.unfinished ~= state.unfinished or sum.scheduled ~= state.scheduled or sum.in_flight ~= state.in_flight
      or sum.followers ~= state.followers then
      repaired = repaired + 1
      state.unfinished, state.scheduled, state.in_flight, state.followers = sum.unfinished, sum.scheduled, sum.in_flight, sum.followers
      redis.call('HSET', groups, g.name, flow.write(state))
    end
    if is_idle(g) then
      gone[#gone + 1] = g.name
    elseif not turn and should_go(g) then
      astray[#astray + 1] = flow.path(g.name, '') -- for the group's sake; all its flows may be held back
    end
  end)
  forget(groups, gone)
end

-- The flows come first, then the groups, whose cursor starts with g, then the entries of idle.lua.
local next_flow_cursor = ''
if flow_cursor ~= '' and has_flows then flow_owners.trim(flow_owners_key, flows, now) end
if flow_cursor == 'i' then
  local found = idle.find(idle_key, clock, CHUNK, conf, flows, flow_settings, KEYS, GROUPS, {})
  if found then idle.forget(found, idle_key, flows, groups) end
  next_flow_cursor = '0'
elseif flow_cursor ~= '' then
  local of_groups = string.sub(flow_cursor, 1, 1) == 'g'
  local states
  next_flow_cursor, states = unpack(redis.call('HSCAN', of_groups and groups or flows, string.match(flow_cursor, '%d+'), 'COUNT', CHUNK))
  local held, open, half_open = string.match(flow_cursor, ' (%d+) (%d+) (%d+)$')
  if held then in_trouble = { held + 0, open + 0, half_open + 0 } end
  local names = {}
  for i = 1, #states, 2 do names[#names + 1] = states[i] end
  if of_groups then
    audit_groups(names)
    if next_flow_cursor ~= '0' then next_flow_cursor = 'g' .. next_flow_cursor end
  else
    audit_flows(names)
    if next_flow_cursor == '0' then
      keep_trouble()
    elseif math.max(unpack(in_trouble)) > 0 then
      next_flow_cursor = string.format('%s %d %d %d', next_flow_cursor, unpack(in_trouble))
    end
    if in_groups and next_flow_cursor == '0' then next_flow_cursor = 'g0' end
  end
end
if next_flow_cursor == '0' and redis.call('ZCOUNT', idle_key, '-inf', text(clock)) > 0 then next_flow_cursor = 'i' end

pool.heal(member, KEYS, now)
repaired = repaired + batch.repair(leases, followers_key)
pool.note(member, KEYS, batch.in_flight(leases, followers_key), now, channel)
if unpurged > 0 and math.abs(now - tonumber(purge_at or 0)) < PURGE_PAUSE then unpurged = 0 end
local reply = { now, repaired, next_cursor, next_flow_cursor, missing, unpurged, #expired, #retries, #astray, #in_lists }
for _, list in ipairs({ expired, retries, astray, in_lists, suspects }) do
  for _, name in ipairs(list) do reply[#reply + 1] = name end
end
return reply
