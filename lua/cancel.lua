-- cancel.lua: cancels a job that is not in flight, or drops a dead letter. Sent twice, it
-- returns the same. It searches a list for the id only near its two ends, because the time of a search
-- grows with the list. An id beyond them stays as a leftover, which claim pops without a slot. With more
-- leftovers than the bucket has capacity, it searches the whole list.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:settings    hash  settings of the bucket; leftovers: whether lists may have ids of ended jobs
-- KEYS[4]  …:count   hash  jobs enqueued with a delay, ids forgotten early, bytes of dead letters
-- KEYS[5]  …:leases  zset  id -> deadline, microseconds
-- KEYS[6]  …:dead    zset  id -> time of death
-- KEYS[7]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[8]  …:seen_window  list  settled ids, oldest first (see dedupe.lua)
-- KEYS[9]  …:seen_minute  list  the same for ids that the client made
-- KEYS[10]  …:flows   hash  flow -> its state (see flow.lua)
-- KEYS[11] …:flow_settings  hash  flow -> its own settings
-- KEYS[12] …:attempts  hash  id -> its first attempt and the last ones (see outcomes.lua)
-- KEYS[13] …:expiries  zset  id -> when the job expires (see expiries.lua)
-- KEYS[14] …:callbacks  zset  callbacks -> when to hand them out (see callbacks.lua)
-- KEYS[15] …:callback_texts  hash  their texts
-- KEYS[16] …:callback_counts  hash  number of callbacks of each flow and group (see callbacks.lua)
-- KEYS[17...]  the five places of the job's flow: …:q:<priority>:<flow>, four lists, the most important first,
--          then …:later:<flow>, a zset; where flows are in groups then what group.load wants
-- ARGV[1]  id
-- ARGV[2]  state: required state: "" any waiting one, "5" dead (drop a dead letter)
-- ARGV[3]  levels: 1 if the bucket has flows, 2 if they are in groups, 0 if it has only the flow ""
-- ARGV[4]  flow of the job
-- Returns  the code of the job's present state: 7 cancelled, 8 dropped; 3 in flight, 5 dead, 6 done
--          (nothing changed); 1, 2 or 4 if it waits but a dead letter was required; 0 unknown;
--          -1 the bucket is not configured, or has no flows although levels says so, or the reverse; -2 the job is
--          of another flow
-- Stores   the id until its dedupe window ends, or a minute if our client made it; for a job of a bundle a callback, until it is moved on
-- Needs    Redis 7.0

--#include lib/callbacks.lua
--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/dedupe.lua
--#include lib/dlq.lua
--#include lib/flow.lua
--#include lib/group.lua
--#include lib/server_time.lua

local body, meta, conf, count = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local leases, dead, seen, seen_window, seen_minute = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local flows, flow_settings, tried, expiries_key = KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local callbacks_key, callback_texts, callback_counts = KEYS[14], KEYS[15], KEYS[16]
local id, wanted, levels, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local FIRST_PLACE, in_groups = 16, levels == codes.GROUPS
local later = KEYS[FIRST_PLACE + flow.PLACES]
local REACH = 10000 -- entries from either end of a list: some 20 ns each

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', leases, '')

local dedupe_window, stored_levels, dedupe_max, capacity =
  unpack(redis.call('HMGET', conf, 'dedupe_window', 'flows', 'dedupe_max', 'capacity'))
if not dedupe_window or (stored_levels or codes.NO_FLOWS) ~= levels then return -1 end
local now = server_time()

local job = redis.call('HGET', body, id)
if not job then
  local settled = redis.call('HGET', seen, id)
  if not settled then return 0 end
  local _, state, expires = codec.seen(settled)
  if expires <= now then return 0 end
  return tonumber(state)
end
if levels ~= codes.NO_FLOWS and flow.from_job(job, in_groups) ~= name then return -2 end

local stored = redis.call('HGET', meta, id)
local state
if stored then
  state = string.sub(stored, 1, 1)
elseif redis.call('ZSCORE', later, id) then
  state = codec.SCHEDULED
else
  state = codec.QUEUED
end
if state == codec.IN_FLIGHT or (state == codec.DEAD) ~= (wanted == codec.DEAD) then return tonumber(state) end

-- Returns how many entries of the flow's lists belong to no waiting job, after this one is removed; fewer during a purge.
local function leftovers()
  local waiting, n = redis.call('HLEN', body) - redis.call('ZCARD', dead) - redis.call('ZCARD', leases), redis.call('ZCARD', later)
  if levels ~= codes.NO_FLOWS then
    local counted = flow.load(conf, flows, flow_settings, { name })[1].state
    waiting = counted.unfinished + counted.scheduled - counted.in_flight
  end
  for i = FIRST_PLACE + 1, FIRST_PLACE + flow.PLACES - 1 do n = n + redis.call('LLEN', KEYS[i]) end
  return n - waiting
end

local code = state == codec.DEAD and codec.DROPPED or codec.CANCELLED
local mark = codec.mark(job)
local _, scheduled = codec.times(job)
dlq.remove(dead, body, meta, tried, count, id, mark)
redis.call('HDEL', body, id)
redis.call('HDEL', meta, id)
redis.call('HDEL', tried, id)
redis.call('ZREM', later, id)
redis.call('ZREM', expiries_key, id)
if state ~= codec.DEAD then
  local noted = callbacks.open(callbacks_key, callback_texts, now, callback_counts, levels)
  callbacks.note_cancelled(noted, id, job, stored)
  callbacks.write(noted)
  flow.unschedule(count, scheduled and 1 or 0)
  if levels ~= codes.NO_FLOWS then
    local loaded = flow.load(conf, flows, flow_settings, { name })
    local groups = in_groups and group.load(conf, KEYS, FIRST_PLACE + flow.PLACES, loaded)
    flow.count(loaded[1], scheduled and 0 or -1, scheduled and -1 or 0, 0)
    flow.save(flows, loaded[1])
    group.close(groups, now)
  end
end
if state == codec.QUEUED then
  local list = KEYS[FIRST_PLACE + flow.list_of(mark)]
  if redis.call('LPOS', list, id, 'MAXLEN', REACH) then
    redis.call('LREM', list, 1, id)
  elseif redis.call('LPOS', list, id, 'RANK', -1, 'MAXLEN', REACH) or leftovers() > tonumber(capacity) then
    redis.call('LREM', list, -1, id)
  else
    redis.call('HSET', conf, 'leftovers', '1')
  end
end
local memory = dedupe.open(tonumber(dedupe_window), tonumber(dedupe_max), now, seen, seen_window, seen_minute, count)
if mark then dedupe.add(memory, id, mark, code) end
dedupe.write(memory)
return tonumber(code)
