-- configure.lua: writes the settings that the scripts obey. A caller that owns them (a dispatcher; for a separate limit, a limiter)
-- replaces the stored ones. Any other caller creates missing settings, and replaces settings of an older schema. The higher revision wins.
-- At equal revisions the authoritative process that started last wins: each start and each reload gets a number from this script, and a
-- later write of the same process carries that number. Settings by a read-only process are marked: an authoritative process replaces
-- them, whatever their revision. A setting with an override does not change: its configured value is stored until control.lua removes the
-- override. May be sent twice.
--
-- KEYS[1]  …:settings  hash  settings of a bucket; for a pool or a separate limit its hash conf
-- KEYS[2]  …:body  hash  of a bucket only: its jobs
-- KEYS[3]  …:dead  zset  of a bucket only: its dead letters
-- KEYS[4]  …:parked_settings  hash  of a bucket only: its settings after a change of its pool (see relocate.lua)
-- ARGV[1]  schema: version of this program
-- ARGV[2]  revision: of the configuration
-- ARGV[3]  channel: to wake dispatchers on; "" for none, as for a limit
-- ARGV[4]  bucket: the message to publish
-- ARGV[5]  owns: 1 the caller owns the settings; 0 it only creates missing ones
-- ARGV[6]  by: names the process
-- ARGV[7]  started: the number that the first write since its start or reload got; 0 this is the first
-- ARGV[8...]  field, value, ...; the first field of a bucket is "generation", with the index's value (see assign.lua)
-- Returns  {0 written or equal, 1 a higher revision or a later start of an authoritative process, 2 a newer schema is effective, 3 the
--          bucket holds jobs and the field "flows" would change (0 none, 1 flows, 2 flows in groups), 5 they exist, and the
--          caller does not own them; the stored schema; the
--          stored revision; with 0 the number for `started`, and how many fields changed (0 also if they are new); with 3 the number
--          of jobs, and the stored field; 4 the bucket has moved away, or the index is behind: then the lowest
--          valid generation at this place, and the tag of the bucket's new place, '' if none}
-- Stores   created: when the settings of a bucket were first written; another value later means that they were lost meanwhile;
--          the fields, overridden ones as "own:" and their name; owned, by, started: the writer; changes: see
--          changes.lua; if batches, or rate, burst, quotas or budgets of flows or groups change,
--          recheck: flows that wait for a turn are checked again (see
--          reserve.lua); if the field "limits" or a setting for producers changes, a higher "limits_rev" (see admission/stored.go);
--          no expiry: they are effective for as long as the bucket, pool or limit is used
-- Needs    Redis 7.0

--#include lib/bits.lua
--#include lib/changes.lua
--#include lib/codes.lua
--#include lib/encoding.lua
--#include lib/in_flight.lua
--#include lib/server_time.lua

local conf, body, dead, parked = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local schema, revision, channel, bucket = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local owns, by, started = ARGV[5] == '1', ARGV[6], tonumber(ARGV[7])
local schema_text, revision_text = ARGV[1], ARGV[2]
local FIRST_FIELD = 8
local OF_TURNS = { flow_rate_count = true, flow_rate_per = true, flow_burst = true, flow_quotas = true, group_rate_count = true,
  group_rate_per = true, group_burst = true, group_quotas = true, flow_budgets = true, group_budgets = true, budget_burst = true,
  batch = true } -- the settings that decide when flows and groups may go next

bits.check()

local OF_PRODUCERS = { 'flow_key', 'group_key', 'default_url', 'max_payload', 'callback_bucket', 'callback_url',
  'callback_failure_url', 'callback_origins' }

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', conf, '')

local now = server_time()

local is_bucket = ARGV[FIRST_FIELD] == 'generation'
if is_bucket then
  local stored_generation, left_for, lives = unpack(redis.call('HMGET', conf, 'generation', 'left_for', 'schema'))
  local generation, lowest = tonumber(ARGV[FIRST_FIELD + 1]), tonumber(stored_generation or 0)
  -- A process with an older generation would admit jobs where no dispatcher claims them.
  if generation < lowest then return { codes.CONFIGURE_LEFT, 0, 0, lowest, left_for or '' } end
  if not lives then
    if redis.call('EXISTS', parked) == 1 then redis.call('RENAME', parked, conf) end
    redis.call('HDEL', conf, 'left_for', 'carried')
    redis.call('HSET', conf, 'generation', string.format('%d', generation))
  end
end
local stored_schema, stored_revision, stored_levels, stored_owned, stored_start =
  unpack(redis.call('HMGET', conf, 'schema', 'revision', 'flows', 'owned', 'started'))
local was_there, has_revision = stored_schema, stored_revision
stored_schema, stored_revision, stored_start = tonumber(stored_schema or 0), tonumber(stored_revision or 0), tonumber(stored_start or 0)
if stored_schema > schema then return { codes.CONFIGURE_NEWER_SCHEMA, stored_schema, stored_revision } end
if not owns and was_there and stored_schema == schema then return { codes.CONFIGURE_EXISTS, stored_schema, stored_revision } end
-- If no authoritative process has written, no revision counts.
if stored_owned ~= '0' then
  local is_later = stored_revision == revision and started > 0 and stored_start > started
  if stored_revision > revision or is_later then return { codes.CONFIGURE_OBEYS, stored_schema, stored_revision } end
end
if started == 0 then started = math.max(now, stored_start + 1) end

-- Jobs are in the lists of their flows, or in one list: with the other setting no script finds them.
for i = FIRST_FIELD, #ARGV, 2 do
  if ARGV[i] == 'flows' and ARGV[i + 1] ~= (stored_levels or codes.NO_FLOWS) then
    local jobs = redis.call('HLEN', body) - redis.call('ZCARD', dead)
    if jobs > 0 then return { codes.CONFIGURE_OTHER_FLOWS, stored_schema, stored_revision, jobs, tonumber(stored_levels or 0) } end
  end
end

-- The previous configured value of each field: an overridden field has it under "own:".
local names, own = {}, {}
for i = FIRST_FIELD, #ARGV, 2 do names[#names + 1], own[#own + 1] = ARGV[i], 'own:' .. ARGV[i] end
local before, overridden = redis.call('HMGET', conf, unpack(names)), redis.call('HMGET', conf, unpack(own))
local fields, values, differs, is_new = {}, {}, {}, false
for n, name in ipairs(names) do
  local value, was = ARGV[FIRST_FIELD + 2 * n - 1], overridden[n] or before[n]
  fields[2 * n - 1], fields[2 * n] = overridden[n] and own[n] or name, value
  values[name] = { was or '', value }
  differs[name] = was ~= value
  is_new = is_new or was ~= value
end

local is_announced = differs.limits -- producers read limits and these again when the number changes
for _, name in ipairs(OF_PRODUCERS) do is_announced = is_announced or differs[name] end
if is_announced then
  -- A time, so that the number is new even if the settings were lost.
  redis.call('HSET', conf, 'limits_rev', string.format('%d', math.max(tonumber(redis.call('HGET', conf, 'limits_rev') or 0) + 1, now)))
end
-- Flows that wait for a turn under the previous settings are checked again.
for name in pairs(OF_TURNS) do
  if has_revision and values[name] and values[name][1] ~= values[name][2] then redis.call('HSET', conf, 'recheck', '0') end
end

redis.call('HSET', conf, 'schema', schema_text, 'revision', revision_text, 'owned', owns and '1' or '0', 'by', by,
  'started', string.format('%d', started), unpack(fields))
local was, is = in_flight.follow(conf)
if is and not differs.max_in_flight then
  values.max_in_flight, differs.max_in_flight = { was, is }, true
end
local noted = was_there and changes.note(conf, now, by, nil, names, values, differs) or 0
if is_bucket and not was_there then redis.call('HSET', conf, 'created', string.format('%d', now)) end
encoding.hash(conf, 0, #fields / 2)
-- A dispatcher that sleeps until a slot of the previous rate asks again. Of many processes with one configuration, one wakes them.
if is_new and channel ~= '' then redis.pcall('PUBLISH', channel, bucket) end
return { codes.CONFIGURE_WRITTEN, schema, revision, started, noted }
