-- empty_disabled.lua: makes dead letters of the jobs that wait in a disabled flow, a chunk at a time, so that they take no place from
-- others. It repeats that while jobs of the flow are in flight: these may come back. New jobs are refused (see enqueue.lua,
-- redrive.lua). In a bucket that keeps jobs of disabled flows it does nothing, and checks again in an hour: the setting may change.
-- May be sent twice.
--
-- KEYS[1]  …:body    hash  id -> see codec.lua
-- KEYS[2]  …:meta    hash  id -> see codec.lua
-- KEYS[3]  …:settings    hash  settings of the bucket
-- KEYS[4]  …:count   hash  jobs enqueued with a delay, bytes of dead letters
-- KEYS[5]  …:dead    zset  id -> time of death
-- KEYS[6]  …:flows   hash  flow -> its state (see flow.lua)
-- KEYS[7]  …:flow_settings  hash  flow -> its own settings
-- KEYS[8]  …:attempts  hash  id -> its first attempt and the last ones (see outcomes.lua)
-- KEYS[9]  …:disabled  zset  disabled flow -> when this script checks it next, by the server's clock, microseconds; +inf: it is empty
-- KEYS[10] …:outbox  zset  events -> when to move them on (see outbox.lua)
-- KEYS[11] …:outbox_texts  hash  their texts
-- KEYS[12] …:callbacks  zset  callbacks -> when to hand them out (see callbacks.lua)
-- KEYS[13] …:callback_texts  hash  their texts
-- KEYS[14] …:callback_counts  hash  number of callbacks of each flow and group (see callbacks.lua)
-- KEYS[15...]  the five places of the flow: …:q:<priority>:<flow>, four lists, the most important first, then …:later:<flow>, a
--          zset; where flows are in groups then what group.load wants
-- ARGV[1]  levels: 1, or 2 if they are in groups
-- ARGV[2]  flow: the flow
-- ARGV[3]  at_most: entries to read in this call, 1 to 500
-- ARGV[4]  most_bytes: of bodies to read in this call
-- ARGV[5]  again: microseconds until the next check if jobs are in flight
-- ARGV[6]  cause: of the dead letters, a word
-- Returns  {dead letters made by this call, entries left in the places}; zeros for a flow that is not disabled or whose jobs are kept, or
--          a bucket that is not configured, or has no flows although levels says so, or the reverse
-- Stores   the dead letters, until they are redriven or dropped; their callbacks, until they are moved on
-- Needs    Redis 7.0

--#include lib/callbacks.lua
--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/dlq.lua
--#include lib/flow.lua
--#include lib/group.lua
--#include lib/outbox.lua
--#include lib/outcomes.lua
--#include lib/server_time.lua
--#include lib/waiting.lua

local body, meta, conf, count, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local flows, flow_settings, tried, disabled, outbox_key, outbox_texts = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local callbacks_key, callback_texts, callback_counts = KEYS[12], KEYS[13], KEYS[14]
local levels, name, at_most, most_bytes, again, cause = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local PLACES = 14 -- number of keys before the keys of the flow
local KEPT = 3600000000 -- microseconds until the next check of a flow whose jobs are kept

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', dead, '')

local stored_levels, events, keep = unpack(redis.call('HMGET', conf, 'flows', 'events', 'flow_keep'))
if (stored_levels or codes.NO_FLOWS) ~= levels then return { 0, 0 } end
local loaded = flow.load(conf, flows, flow_settings, { name })
local f = loaded[1]
if f.configured.disabled == 0 then
  redis.call('ZREM', disabled, name)
  return { 0, 0 }
end
local now = server_time()
if keep == '1' then
  redis.call('ZADD', disabled, string.format('%d', now + KEPT), name)
  return { 0, 0 }
end

local ids, from = waiting.read(KEYS, PLACES, at_most, body, most_bytes)
local deaths, marks, metas, delayed, handled = {}, {}, {}, 0, {}
local noted = callbacks.open(callbacks_key, callback_texts, now, callback_counts, levels)
if #ids > 0 then
  local jobs, stored = redis.call('HMGET', body, unpack(ids)), redis.call('HMGET', meta, unpack(ids))
  for i, id in ipairs(ids) do
    local job = not handled[id] and waiting.job(jobs[i], stored[i], from[i], levels, name)
    if job then
      handled[id] = true
      deaths[#deaths + 1], marks[#deaths + 1] = id, codec.mark(jobs[i])
      if job.delayed then delayed = delayed + 1 end
      local epoch, attempts, lost, crashes, owner, last = codec.numbers(stored[i])
      local died = codec.meta(codec.DEAD, epoch, attempts, lost, crashes, owner, outcomes.with_cause(last, cause))
      metas[#metas + 1], metas[#metas + 2] = id, died
      callbacks.note_dead(noted, id, jobs[i], died)
    end
  end
end

-- Everything is decided. From here on the script writes; what it still reads decides nothing about jobs.
waiting.take(KEYS, PLACES, ids, from)
if #deaths > 0 then
  redis.call('HSET', meta, unpack(metas))
  dlq.add(dead, body, meta, tried, count, now, deaths, marks)
  callbacks.write(noted)
  local groups = levels == codes.GROUPS and group.load(conf, KEYS, PLACES + flow.PLACES, loaded)
  flow.count(f, delayed - #deaths, -delayed, 0)
  flow.save(flows, f)
  group.close(groups, now)
  flow.unschedule(count, delayed)
  local box = outbox.open(events, outbox_key, outbox_texts, count, now)
  outbox.note_dead(box, name, deaths, cause, marks[#deaths])
  outbox.write(box)
end
local left = waiting.left(KEYS, PLACES)
local at = left > 0 and string.format('%d', now) or f.state.in_flight > 0 and string.format('%d', now + again) or '+inf'
redis.call('ZADD', disabled, at, name)
return { #deaths, left }
