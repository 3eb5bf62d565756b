-- redrive.lua: puts dead letters back at the end of their list, as new jobs
-- with the same id. It never exceeds the bound of the bucket, the group or the flow. With `spare` it leaves a part of each bound to
-- producers. The records of their attempts stay, and max_age counts from the next attempt. May be sent twice.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:settings    hash  settings of the bucket
-- KEYS[4]  …:pace    hash  offset: of the engine's clock
-- KEYS[5]  …:count   hash  last sequence number, jobs enqueued with a delay, bytes of dead letters
-- KEYS[6]  …:dead    zset  id -> time of death
-- KEYS[7]  …:flows   hash  flow -> its state (see flow.lua)
-- KEYS[8]  …:flow_settings  hash  flow -> its own settings
-- KEYS[9]  …:due:    zset  flow -> its turn, by the engine's clock; where flows are in groups …:due_groups, group -> its turn
-- KEYS[10] …:attempts  hash  id -> its first attempt and the last ones (see outcomes.lua)
-- KEYS[11] …:callback_texts  hash  callbacks, which count against the capacity (see callbacks.lua)
-- KEYS[12] …:callback_counts  hash  number of callbacks of each flow and group (see callbacks.lua)
-- KEYS[13] …:expiries  zset  id -> when the job expires (see expiries.lua)
-- KEYS[14...]  for each flow its five places: …:q:<priority>:<flow>, four lists, the most important first, then
--          …:later:<flow>, a zset; where flows are in groups then what group.load wants
-- ARGV[1]  channel: to wake dispatchers on
-- ARGV[2]  bucket: the message to publish
-- ARGV[3]  levels: 1 if the bucket has flows, 2 if they are in groups, 0 if it has only the flow ""
-- ARGV[4]  flow_count: number of flows
-- ARGV[5]  spare: one of this many places of a bound stays free, such as 10 for 10 %; in the bucket, of the places that jobs of
--          priority low may fill, so that no producer is shed. 0 for none
-- ARGV[6...]  the flows, in the order of their places, 256 at most; then for each job: id, the number of its flow, from 1
-- Returns  {1} the bucket is not configured, or has no flows although levels says so, or the reverse; else {0, and for
--          each id a code. 1 back in the list. 2 the bucket is full. 3 waits already. 4 its flow is full, or there would
--          be too many flows. 5 the same for its group. 6 its flow is disabled. 0 not a dead letter, or not in these flows}
-- Stores   nothing new
-- Needs    Redis 7.0

--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/dlq.lua
--#include lib/expiries.lua
--#include lib/flow.lua
--#include lib/group.lua
--#include lib/outcomes.lua
--#include lib/server_time.lua

local body, meta, conf, pace, count, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local flows, flow_settings, due_flows, tried, callback_texts = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local callback_counts, expiries_key = KEYS[12], KEYS[13]
local channel, bucket, levels, in_groups = ARGV[1], ARGV[2], ARGV[3], ARGV[3] == codes.GROUPS
local FIRST_PLACE, FIRST_FLOW, WIDTH = 13, 5, 2
local flow_count, spare = tonumber(ARGV[4]), tonumber(ARGV[5])
local first_arg = FIRST_FLOW + flow_count

-- Returns the part of a capacity that redriven jobs may fill.
local function fillable(bound) return spare > 0 and bound - math.floor(bound / spare) or bound end

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', dead, '')

local capacity_text, stored_levels, max_flows, shed_low, expires =
  unpack(redis.call('HMGET', conf, 'capacity', 'flows', 'max_flows', 'shed_low', 'expires'))
local capacity = tonumber(capacity_text)
if not capacity or (stored_levels or codes.NO_FLOWS) ~= levels then return { 1 } end
local seq, scheduled = unpack(redis.call('HMGET', count, 'seq', 'scheduled'))
seq, scheduled = tonumber(seq or 0), math.max(tonumber(scheduled or 0), 0)
local room = fillable(spare > 0 and math.ceil(capacity * tonumber(shed_low or 100) / 100) or capacity)
local unfinished = redis.call('HLEN', body) - redis.call('ZCARD', dead) - scheduled + redis.call('HLEN', callback_texts)
local micros = server_time()
local now = string.format('%d', micros)
local function before(n) return FIRST_PLACE + (n - 1) * flow.PLACES end

local loaded, turn_queue, more_flows, changed, groups, more_groups = nil, nil, 0, {}, nil, 0
if levels ~= codes.NO_FLOWS then
  local names = {}
  for n = 1, flow_count do names[n] = ARGV[FIRST_FLOW + n] end
  loaded, turn_queue = flow.load(conf, flows, flow_settings, names), flow.turn_queue(due_flows, pace)
  more_flows = tonumber(max_flows or 0) - redis.call('HLEN', flows)
end
if in_groups then
  groups = group.load(conf, KEYS, before(flow_count + 1), loaded)
  more_groups = tonumber(max_flows or 0) - redis.call('HLEN', groups.key)
end
for kind, some in pairs({ f = loaded or {}, g = groups or {} }) do
  for _, f in ipairs(some) do f.callbacks = tonumber(redis.call('HGET', callback_counts, kind .. f.name) or 0) end
end

local function is_full(f) return f.settings.capacity > 0 and f.state.unfinished + f.callbacks >= fillable(f.settings.capacity) end

-- Counts the job in its flow and group. Returns 1, or the code of the level that is full.
local function enter(n)
  if not loaded then return 1 end
  local f = loaded[n]
  local g = f.group
  if f.configured.disabled > 0 then return codes.REDRIVE_DISABLED end
  if g and (is_full(g) or (g.state.new and more_groups <= 0)) then return codes.REDRIVE_GROUP_FULL end
  if is_full(f) or (f.state.new and more_flows <= 0) then return codes.REDRIVE_FLOW_FULL end
  if f.state.new then more_flows, f.state.new = more_flows - 1, false end
  if g and g.state.new then more_groups, g.state.new = more_groups - 1, false end
  if not changed[n] then
    f.were_empty = redis.call('EXISTS', KEYS[before(n) + 1], KEYS[before(n) + 2], KEYS[before(n) + 3], KEYS[before(n) + 4]) == 0
  end
  flow.count(f, 1, 0, 0)
  changed[n] = true
  return codes.REDRIVE_MOVED
end

local reply, moved, expire = { 0 }, 0, {}
for i = first_arg + 1, #ARGV, WIDTH do
  local id, n = ARGV[i], tonumber(ARGV[i + 1])
  local job, stored = redis.call('HGET', body, id), redis.call('HGET', meta, id)
  local state, epoch, attempts, lost, _, claim, last, fingerprint, kind, index, rest
  if job and stored then
    state, epoch, attempts, lost, _, claim, last = string.match(stored, codec.META)
    fingerprint, kind, index, rest = string.match(job, '^%-?%d+ %d+ (...........)(.)(.%d+)(.*)$')
  end
  local code
  if state == codec.QUEUED then
    code = codes.REDRIVE_THERE
  elseif state ~= codec.DEAD or not fingerprint or (loaded and flow.from_job(job, in_groups) ~= loaded[n].name) then
    code = codes.REDRIVE_NONE
  elseif unfinished >= room then
    code = codes.REDRIVE_FULL
  else
    code = enter(n)
  end
  if code == codes.REDRIVE_MOVED then
    moved, seq, unfinished = moved + 1, seq + 1, unfinished + 1
    dlq.remove(dead, body, meta, tried, count, id, codec.mark(job))
    rest = string.gsub(rest, '^([^ &]*)&%^ ', '%1&&^ ') -- it was counted as dead: see bundle.lua
    redis.call('HSET', body, id, string.format('%d', seq - tonumber(string.sub(index, 2))) .. ' ' .. now .. ' '
      .. fingerprint .. string.lower(kind) .. index .. rest)
    if string.match(rest, '^~%d') then expiries.note(expire, id, micros, rest, 1) end
    -- The attempts start again from 0; delivery numbers continue.
    redis.call('HSET', meta, id, string.format('1 %s 0 %d 0 %s ', epoch, attempts + lost, claim) .. last)
    local text = redis.call('HGET', tried, id)
    local lines = text and outcomes.restart(text) or ''
    if lines ~= '' then redis.call('HSET', tried, id, lines) elseif text then redis.call('HDEL', tried, id) end
    local list = flow.PRIORITY_OF[string.sub(index, 1, 1)] or 3
    redis.call('RPUSH', KEYS[before(n) + list], id)
    if loaded then flow.fill(loaded[n].state, flow.LETTERS[list]) end
  end
  reply[#reply + 1] = code
end
if moved > 0 then
  redis.call('HSET', count, 'seq', string.format('%d', seq))
  expiries.write(expiries_key, conf, expire, expires)
  for n in pairs(changed) do
    local f = loaded[n]
    flow.save(flows, f, micros + turn_queue.offset)
    flow.recall(turn_queue, f, KEYS, before(n), micros, f.were_empty and micros or nil)
  end
  group.close(groups, micros, turn_queue)
  if not turn_queue or turn_queue.sooner then redis.pcall('PUBLISH', channel, bucket) end
end
return reply
