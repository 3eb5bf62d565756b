-- What wrote the settings before owners were marked: a program of version 2.0 runs this beside a new one. Kept for tests.
local bits = (function()
-- bits.lua: refuses a server that is built for 32 bits.
-- Whole numbers become text by string.format('%d'), in half the time of '%.0f'. On such a server it loses digits of a time.

local bits = {}

function bits.check()
  if string.format('%d', 9007199254740991) == '9007199254740991' then return end
  error('this Redis is built for 32 bits, which is too few for times in microseconds: use one that is built for 64', 0)
end

return bits
end)()
local encoding = (function()
-- encoding.lua: has Redis keep a hash or a sorted set so that it finds a member at once.
--
-- Redis keeps a small one as a list, and looks for a member from the beginning: a hash of up to 512 fields, a sorted set of up to 128
-- members. With 300 jobs in flight, more than half of the time of a claim and of a settle went there. A member of more than
-- 64 bytes has Redis make a table of it, and it stays one until it is empty. So such a member is put in before it grows beyond a few,
-- and taken out after. Where the server is configured with other bounds, this changes nothing. A table needs more memory: this is for
-- what each claim and each settle looks up, not for remembered ids.

local encoding = {
  FEW = 32,
  LONG = '-----------------------------------------------------------------', -- 65 bytes
}

local function grows(before, after) return before < encoding.FEW and after >= encoding.FEW end

-- A hash that grows from so many fields to so many. `write` writes these; nil if they are written.
function encoding.hash(key, before, after, write)
  local is_table = grows(before, after)
  if is_table then redis.call('HSET', key, encoding.LONG, '') end
  if write then write() end
  if is_table then redis.call('HDEL', key, encoding.LONG) end
end

-- The same of a sorted set.
function encoding.zset(key, before, after, write)
  local is_table = grows(before, after)
  if is_table then redis.call('ZADD', key, 0, encoding.LONG) end
  if write then write() end
  if is_table then redis.call('ZREM', key, encoding.LONG) end
end

return encoding
end)()
-- configure.lua: writes the settings that the scripts obey. A configuration with a lower
-- revision than the stored one changes nothing, and the reply says so. A setting with an override
-- does not change either: its configured value is kept aside until control.lua removes the override.
-- May be sent twice.
--
-- KEYS[1]  …:settings  hash  settings of a bucket; of a pool, and of a limit that is asked on its own, …:conf
-- KEYS[2]  …:body  hash  of a bucket only: its jobs
-- KEYS[3]  …:dead  zset  of a bucket only: its dead letters
-- KEYS[4]  …:conf_aside  hash  of a bucket only: its settings after a change of its pool (see relocate.lua)
-- KEYS[5]  …:conf  hash  of a bucket only: its settings when its data had schema 1. Since then it holds the schema alone: an
--          older program finds that the bucket is not configured, and may not configure it
-- KEYS[6]  …:leases  zset  of a bucket only: id -> deadline
-- ARGV[1]  schema: version of this program
-- ARGV[2]  revision: of the configuration
-- ARGV[3]  channel: to wake dispatchers on; "" for none, as of a limit
-- ARGV[4]  bucket: the message to publish
-- ARGV[5...]  field, value, ...; the first field of a bucket is "generation", with what the index says (see assign.lua)
-- Returns  {0 written or equal, 1 a higher revision is in force, 2 a newer schema is in force, 3 the bucket
--          holds jobs and is to have flows, or groups of them, where it had none, or the other way round (the field
--          "flows": 0 none, 1 flows, 2 flows in groups); the stored schema; the stored revision; with 3 how many
--          jobs, and what the field is; 4 the bucket has left this place, or the index is behind: then the lowest
--          generation that is obeyed here, and the tag that the bucket has left for, '' if none; 5 the data has schema
--          1 and is not empty: then jobs that wait, dead letters, leases, 0, 0, 0}
-- Stores   the fields, those that are overridden as "own:" and their name; where rate, burst or quotas of flows or groups change,
--          or batches change, recheck: those that wait for a turn are looked at again (see
--          reserve.lua); where the field "limits" changes, a higher "limits_rev" (see admission/stored.go);
--          no expiry: they are obeyed for as long as there is something to obey
-- Needs    Redis 7.0


local conf, body, dead, aside, before, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local schema, revision, channel, bucket = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local FIRST_FIELD = 5
local OF_TURNS = { flow_rate_count = true, flow_rate_per = true, flow_burst = true, flow_quotas = true, group_rate_count = true,
  group_rate_per = true, group_burst = true, group_quotas = true, batch = true } -- what says when flows and groups may go next

bits.check()

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('HDEL', conf, '')

-- A bucket with data of schema 1 is taken over while it is empty, with what operators have set.
if before then
  local old = redis.call('HMGET', before, 'schema', 'rate_count')
  if old[2] then
    local jobs, leased, died = redis.call('HLEN', body), redis.call('ZCARD', leases), redis.call('ZCARD', dead)
    if jobs + leased > 0 then return { 5, tonumber(old[1] or 0), 0, math.max(jobs - leased - died, 0), died, leased, 0, 0, 0 } end
    if redis.call('EXISTS', conf) == 0 then redis.call('RENAME', before, conf) else redis.call('DEL', before) end
  end
  if tonumber(old[1] or 0) > schema then return { 2, tonumber(old[1]), 0 } end
  if old[2] or not old[1] then redis.call('HSET', before, 'schema', string.format('%d', schema)) end
end

if ARGV[FIRST_FIELD] == 'generation' then
  local place = redis.call('HMGET', conf, 'generation', 'left_for', 'schema')
  local generation, lowest = tonumber(ARGV[FIRST_FIELD + 1]), tonumber(place[1] or 0)
  -- A process that knows an older generation would let jobs in where no dispatcher looks for them.
  if generation < lowest then return { 4, 0, 0, lowest, place[2] or '' } end
  if not place[3] then
    if redis.call('EXISTS', aside) == 1 then redis.call('RENAME', aside, conf) end
    redis.call('HDEL', conf, 'left_for')
    redis.call('HSET', conf, 'generation', string.format('%d', generation))
  end
end
local stored = redis.call('HMGET', conf, 'schema', 'revision', 'flows')
local stored_schema, stored_revision = tonumber(stored[1] or 0), tonumber(stored[2] or 0)
if stored_schema > schema then return { 2, stored_schema, stored_revision } end
if stored_revision > revision then return { 1, stored_schema, stored_revision } end

-- Jobs lie in the lists of their flows, or in one list: with the other setting no script finds them.
for i = FIRST_FIELD, #ARGV, 2 do
  if ARGV[i] == 'flows' and ARGV[i + 1] ~= (stored[3] or '0') then
    local jobs = redis.call('HLEN', body) - redis.call('ZCARD', dead)
    if jobs > 0 then return { 3, stored_schema, stored_revision, jobs, tonumber(stored[3] or 0) } end
  end
end

local own = {}
for i = FIRST_FIELD, #ARGV, 2 do own[#own + 1] = 'own:' .. ARGV[i] end
local overridden, fields = redis.call('HMGET', conf, unpack(own)), {}
for n, name in ipairs(own) do
  local i = FIRST_FIELD + 2 * (n - 1)
  fields[2 * n - 1], fields[2 * n] = overridden[n] and name or ARGV[i], ARGV[i + 1]
end

for i = FIRST_FIELD, #ARGV, 2 do
  if ARGV[i] == 'limits' and redis.call('HGET', conf, 'limits') ~= ARGV[i + 1] then
    -- A time, so that the number is a new one also when the conf was lost.
    local time = redis.call('TIME')
    local rev = math.max(tonumber(redis.call('HGET', conf, 'limits_rev') or 0) + 1, time[1] * 1000000 + time[2])
    redis.call('HSET', conf, 'limits_rev', string.format('%d', rev))
  end
end
-- Those that wait for a turn by the settings of before are looked at again.
for i = FIRST_FIELD, stored[2] and #ARGV or 0, 2 do
  if OF_TURNS[ARGV[i]] and (redis.call('HGET', conf, ARGV[i]) or '') ~= ARGV[i + 1] then redis.call('HSET', conf, 'recheck', '0') end
end
local is_new = false
for i = 1, #fields, 2 do is_new = is_new or redis.call('HGET', conf, fields[i]) ~= fields[i + 1] end
redis.call('HSET', conf, 'schema', ARGV[1], 'revision', ARGV[2], unpack(fields))
encoding.hash(conf, 0, #fields / 2)
-- A dispatcher that sleeps until a slot of an older rate looks again. Of many processes with one configuration, one wakes them.
if is_new and channel ~= '' then redis.call('PUBLISH', channel, bucket) end
return { 0, schema, revision }
