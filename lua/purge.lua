-- purge.lua: drops all waiting jobs of a flow; in a bucket without flows, all waiting jobs.
-- The first call moves them out: from then on none of them departs, while new jobs depart as
-- usual. Each call removes a chunk of them. Jobs in flight stay, even if they come back.
-- Repeated with the same id, it continues, or returns the result. A bucket purges one flow at a
-- time. Jobs that are moved out and not removed yet count against the bounds of bucket and flow.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:settings    hash  settings of the bucket
-- KEYS[4]  …:count   hash  last sequence number; purge_id, purge_flow, purge_mark, purge_done, purge_at: of the last purge;
--          purged: of all
-- KEYS[5]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[6]  …:seen_window  list  settled ids, oldest first (see dedupe.lua)
-- KEYS[7]  …:seen_minute  list  the same for ids that the client made
-- KEYS[8]  …:flows   hash  flow -> its state (see flow.lua)
-- KEYS[9]  …:flow_settings  hash  flow -> its own settings
-- KEYS[10] …:attempts  hash  id -> its first attempt and the last ones (see outcomes.lua)
-- KEYS[11] …:expiries  zset  id -> when the job expires (see expiries.lua)
-- KEYS[12] …:callbacks  zset  callbacks -> when to hand them out (see callbacks.lua)
-- KEYS[13] …:callback_texts  hash  their texts
-- KEYS[14] …:callback_counts  hash  number of callbacks of each flow and group (see callbacks.lua)
-- KEYS[15...]  jobs that were moved from the places of the flow and are not removed yet: …:purged:<priority>:, four lists,
--          and …:purged_later:, a zset; then the five places of the flow that is to be purged:
--          …:q:<priority>:<flow>, four lists, the most important first, then …:later:<flow>, a zset; where flows are
--          in groups then what group.load wants
-- ARGV[1]  purge: its id; "" continues the running purge and begins none
-- ARGV[2]  keep_later: 1 keeps delayed jobs and retries, else 0
-- ARGV[3]  at_most: entries to remove in this call, 1 to 500
-- ARGV[4]  most_bytes: of bodies to read in this call
-- ARGV[5]  levels: 1 if the bucket has flows, 2 if they are in groups, 0 if it has only the flow ""
-- ARGV[6]  flow: the flow to purge
-- Returns  {1} the bucket is not configured, or has no flows although levels says so, or the reverse; else {0, the purge
--          of this call (1 the caller's, 0 another one or none), jobs removed by this call, jobs removed by
--          that purge so far, entries left}
-- Stores   ids of purged jobs, as cancelled, until their dedupe window ends; callbacks of jobs in bundles, until they are moved on
-- Needs    Redis 7.0

--#include lib/callbacks.lua
--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/dedupe.lua
--#include lib/flow.lua
--#include lib/group.lua
--#include lib/server_time.lua
--#include lib/text.lua
--#include lib/waiting.lua

local body, meta, conf, count, seen, seen_window, seen_minute = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local flows, flow_settings, tried, expiries_key = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local callbacks_key, callback_texts, callback_counts = KEYS[12], KEYS[13], KEYS[14]
local purge, keep_later, at_most, most_bytes = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3]), tonumber(ARGV[4])
local levels, name = ARGV[5], ARGV[6]
local PURGED = 14 -- number of keys before the keys of the purge
local LATER = flow.PLACES
local PLACES = PURGED + flow.PLACES

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', seen, '')

local dedupe_window, dedupe_max, stored_levels = unpack(redis.call('HMGET', conf, 'dedupe_window', 'dedupe_max', 'flows'))
if not dedupe_window or (stored_levels or codes.NO_FLOWS) ~= levels then return { 1 } end
local now = server_time()

local seq, purge_id, purge_mark, purge_done, purge_flow =
  unpack(redis.call('HMGET', count, 'seq', 'purge_id', 'purge_mark', 'purge_done', 'purge_flow'))
local mark, done, purged_flow = tonumber(purge_mark or 0), tonumber(purge_done or 0), purge_flow or ''
local own = purge ~= '' and purge_id == purge

if waiting.left(KEYS, PURGED) == 0 then
  if own or purge == '' then return { 0, own and 1 or 0, 0, done, 0 } end
  -- Begin. Every later job has a number above the mark, so
  -- the id of a cancelled job that is still in a list can be used again.
  mark, done, own, purged_flow = tonumber(seq or 0), 0, true, name
  redis.call('HSET', count, 'seq', text(mark + 1), 'purge_id', purge, 'purge_mark', text(mark), 'purge_flow', name)
  for i = 1, keep_later and LATER - 1 or LATER do
    if redis.call('EXISTS', KEYS[PLACES + i]) == 1 then redis.call('RENAME', KEYS[PLACES + i], KEYS[PURGED + i]) end
  end
end

local ids, from = waiting.read(KEYS, PURGED, at_most, body, most_bytes)
local removed, unscheduled, gone = 0, 0, {}
local noted = callbacks.open(callbacks_key, callback_texts, now, callback_counts, levels)
local memory = dedupe.open(tonumber(dedupe_window), tonumber(dedupe_max), now, seen, seen_window, seen_minute, count)
if #ids > 0 then
  local jobs, metas, handled = redis.call('HMGET', body, unpack(ids)), redis.call('HMGET', meta, unpack(ids)), {}
  for i, id in ipairs(ids) do
    local job = not handled[id] and waiting.job(jobs[i], metas[i], from[i], levels, purged_flow)
    if job and not (job.number and job.number > mark) then
      handled[id] = true
      removed = removed + 1
      gone[removed] = id
      if jobs[i] then callbacks.note_cancelled(noted, id, jobs[i], metas[i] or nil) end
      if job.number then
        if job.delayed then unscheduled = unscheduled + 1 end
        dedupe.add(memory, id, job.mark, codec.CANCELLED)
      end
    end
  end
end

-- Everything is decided. From here on the script writes; what it still reads decides nothing about jobs.
waiting.take(KEYS, PURGED, ids, from)
callbacks.write(noted)
if removed > 0 then
  redis.call('HDEL', body, unpack(gone))
  redis.call('HDEL', meta, unpack(gone))
  redis.call('HDEL', tried, unpack(gone))
  redis.call('ZREM', expiries_key, unpack(gone))
  if levels ~= codes.NO_FLOWS then
    local loaded = flow.load(conf, flows, flow_settings, { purged_flow })
    local groups = levels == codes.GROUPS and group.load(conf, KEYS, PLACES + flow.PLACES, loaded)
    flow.count(loaded[1], unscheduled - removed, -unscheduled, 0)
    flow.save(flows, loaded[1])
    group.close(groups, now)
  end
end
flow.unschedule(count, unscheduled)
dedupe.write(memory)
if removed > 0 then redis.call('HINCRBY', count, 'purged', removed) end
redis.call('HSET', count, 'purge_done', text(done + removed), 'purge_at', text(now))
return { 0, own and 1 or 0, removed, done + removed, waiting.left(KEYS, PURGED) }
