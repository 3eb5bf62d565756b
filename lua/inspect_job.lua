-- inspect_job.lua: the state and place of a job, and the bounds that hold it back.
-- Writes nothing.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:settings    hash  settings of the bucket
-- KEYS[4]  …:pace    hash  last slot; offset: of the engine's clock; down: see downstream.lua; window, drain: see timetable.lua
-- KEYS[5]  …:count   hash  purge_mark, purge_flow: sequence number up to which the last purge went, and of which flow
-- KEYS[6]  …:leases  zset  id -> deadline, microseconds
-- KEYS[7]  …:dead    zset  id -> time of death
-- KEYS[8]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[9]  …:flows   hash  flow -> its state (see flow.lua)
-- KEYS[10] …:flow_settings  hash  flow -> its own settings
-- KEYS[11] …:departed  list  times of departures from the bucket, the newest first
-- KEYS[12] …:departed:<flow>  list  the same of the flow
-- KEYS[13] …:attempts  hash  id -> its first attempt and the last ones (see outcomes.lua)
-- KEYS[14] …:riders  zset  jobs that are in flight with another one -> number of their batch (see batch.lua)
-- KEYS[15...]  jobs that a purge moved aside and has not removed yet: …:purged:<priority>:, four lists,
--          and …:purged_later:, a zset; then the five places of the job's flow: …:q:<priority>:<flow>, four lists,
--          the most important first, then …:later:<flow>, a zset; where flows are in groups then what group.load
--          wants, and …:departed_group:<group>, a list; in a pool then the pool's seven (see pool.lua)
-- ARGV[1]  id
-- ARGV[2]  flow of the job
-- ARGV[3]  levels: 1, 2 if they are in groups, or 0 of a bucket that has the flow "" only
-- ARGV[4]  member: the name of the bucket if it is in a pool, else ''
-- Returns  {} unknown; {state's code, -1, 0, '', '', digits of its caller ("" none), 1 if it is everybody's (see callers.lua)} it is
--          settled; else {state's code, position (jobs ahead in its flow, -1 not in a list; exact among the first
--          thousand of its list, beyond them an estimate), instant (due, deadline, time of death, or eta; 0 none is
--          known, as while the bucket is paused), meta ("" none), body}, and then: now,
--          paused since (0 it is not), author and reason of the pause, requests in flight, max_in_flight, next slot
--          of the bucket, when the bucket's quotas let one leave (0 at once), 1 if the bucket has flows, 2 if they are in
--          groups; and of the flow: paused since, the note of its pause, requests in flight, max_in_flight (0 none), when its rate
--          and when its quotas let it depart (0 at once); then the same of its group; and of the bucket's pool: requests in flight,
--          max_in_flight (0 none), when its rate and when its quotas let one leave (0 at once); its attempts ("" none kept); the
--          offset of the engine's clock; and of the bucket, the flow and the pool each: the text of its downstream ("" none, see
--          downstream.lua), and rate_count and rate_per without that; 1 if the timetable of the bucket has it closed now, and when it is
--          open, from now or from the time of the job on (0 nobody knows); 1 if the job is everybody's (see
--          callers.lua); instants in microseconds
-- Stores   nothing
-- Needs    Redis 7.0

--#include lib/batch.lua
--#include lib/callers.lua
--#include lib/downstream.lua
--#include lib/flow.lua
--#include lib/group.lua
--#include lib/pacer.lua
--#include lib/pool.lua
--#include lib/timetable.lua

local body, meta, conf, pace, count = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, dead, seen, flows, flow_settings = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local departed, flow_departed, tried, riders = KEYS[11], KEYS[12], KEYS[13], KEYS[14]
local id, name = ARGV[1], ARGV[2]
local levels, member = ARGV[3], ARGV[4]
local PURGED = 14 -- the keys before those of a purge
local PLACES = PURGED + flow.PLACES
local later = KEYS[PLACES + flow.PLACES]
local QUEUED, SCHEDULED, IN_FLIGHT, RETRYING, DEAD, CANCELLED = 1, 2, 3, 4, 5, 7
local LOOKED_AT = 1000

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function sequence(stored)
  local base, index = string.match(stored or '', '^(%-?%d+) %d+ .............(%d+)')
  return tonumber(base or 0) + tonumber(index or 0)
end

local job = redis.call('HGET', body, id)
if not job then
  local settled = redis.call('HGET', seen, id)
  if not settled then return {} end
  local state, expires = string.match(settled, '^...........(%d)(%d+)$')
  if tonumber(expires) <= now or state == callers.NAMED then return {} end
  return { tonumber(state), -1, 0, '', '', callers.ended(settled), now < callers.times(conf) and 1 or 0 }
end

local came_before = tonumber(string.match(job, '^%S+ (%d+)') or 0) < callers.times(conf)
local stored = redis.call('HGET', meta, id)
local due = redis.call('ZSCORE', later, id)
local state = QUEUED
if stored then
  state = tonumber(string.sub(stored, 1, 1))
elseif due then
  state = SCHEDULED
end
-- One that a purge has taken and not removed yet is as good as gone.
if not due and (state == QUEUED or state == SCHEDULED or state == RETRYING)
  and redis.call('EXISTS', KEYS[PURGED + 1], KEYS[PURGED + 2], KEYS[PURGED + 3], KEYS[PURGED + 4], KEYS[PURGED + 5]) > 0 then
  local purge = redis.call('HMGET', count, 'purge_mark', 'purge_flow')
  if sequence(job) <= tonumber(purge[1] or 0) and (purge[2] or '') == name then
    local letters = callers.of(string.match(job, '^%S+ %S+ (.*)') or '')
    return { CANCELLED, -1, 0, '', '', letters == '' and '' or callers.digits(letters), came_before and 1 or 0 }
  end
end

local settings = redis.call('HMGET', conf, 'rate_count', 'rate_per', 'max_in_flight', 'paused', 'paused_by', 'paused_reason',
  'flows', 'quotas', 'flow_quotas', 'group_quotas', 'timetable', 'batch')
local paused = tonumber(settings[4] or 0)
local rules = batch.rules(settings[12])
local at_once = rules and rules.size or 1 -- jobs that leave together, if all go well
local has_flows = levels ~= '0' and settings[7] == levels
-- What the answers of a downstream say of a scope, by its text or as flow.load reads it: it may be slower than its rate.
local function scope_of(said, rate_count, rate_per, said_offset)
  local text = type(said) == 'table' and downstream.write(said) or said or ''
  local down = downstream.read(text)
  local rate = { rate_count = tonumber(rate_count or 0), rate_per = tonumber(rate_per or 0), burst = 1 }
  local s = down and downstream.adapted(down, rate, pacer.prepare) or rate
  return { text = text, rate = rate, till = down and down.till - said_offset or 0,
    interval = s.rate_count > 0 and s.rate_per / s.rate_count or 0 }
end

local of_pace = redis.call('HMGET', pace, 'slot', 'offset', 'down', 'window', 'drain', 'rate')
local offset = tonumber(of_pace[2] or 0)
local clock = now + offset
local bucket_scope = scope_of(of_pace[3], settings[1], settings[2], offset)
local flow_scope, pool_scope = scope_of(nil, 0, 0, 0), scope_of(nil, 0, 0, 0)
local interval = bucket_scope.interval
local next_slot = math.max(tonumber(of_pace[1] or clock) + interval, clock) - offset
local times = settings[1] and timetable.open(conf, settings[11], of_pace[4], of_pace[5])
if times then
  next_slot = timetable.slot_after(of_pace[1], of_pace[6], clock) - offset
  if bucket_scope.text == '' then interval = 0 end -- the timetable has the rates
end
local in_force = times and timetable.rate_at(times, bucket_scope.rate, now) or bucket_scope.rate

-- When quotas let one leave, of departures that are remembered in a list; 0 at once.
local function free_again(list, quotas, list_offset)
  local latest = 0
  for most, window in string.gmatch(quotas or '', '(%d+) (%d+);') do
    local left = tonumber(redis.call('LINDEX', list, tonumber(most) - 1))
    left = left and left - (list_offset or offset)
    if left and left + tonumber(window) > now then latest = math.max(latest, left + tonumber(window)) end
  end
  return latest
end
local quota = free_again(departed, settings[8])
-- What holds for a flow or a group.
local function bounds_of(f, ready, own_text, list, quotas)
  return { paused = f.settings.paused, note = string.match(own_text or '', '^[^\n]*\n([^\n]*)') or '',
    in_flight = f.state.in_flight - f.state.riders, most = f.settings.max_in_flight, ready = ready > now and math.ceil(ready) or 0,
    quota = free_again(list, quotas), disabled = string.match(own_text or '', '^%S+ %S+ %S+ %S+ %S+ %S+ %S+ (%S+)') or '' }
end
local none = { paused = 0, note = '', in_flight = 0, most = 0, ready = 0, quota = 0, disabled = '' }
local of_flow, of_group = none, none
if has_flows then
  local loaded = flow.load(conf, flows, flow_settings, { name })
  local f = loaded[1]
  local own, configured = f.settings, f.configured.rate_count > 0 and f.configured or in_force
  flow_scope = scope_of(f.state.down, configured.rate_count, configured.rate_per, offset)
  f.state.down = nil -- what is asked for here is its rate
  of_flow = bounds_of(f, flow.ready(f.state, own, clock) - offset,
    redis.call('HGET', flow_settings, name), flow_departed, settings[9])
  if own.rate_count > 0 then interval = math.max(interval, own.rate_per / own.rate_count) end
  if levels == '2' then
    local first = PLACES + flow.PLACES
    local g = group.load(conf, KEYS, first, loaded)[1]
    local all = g.settings
    -- Its last departure, after which the next group goes first, is no bound of its own.
    local ready = all.rate_count > 0 and group.ready(g, clock) - offset or 0
    of_group = bounds_of(g, ready, redis.call('HGET', KEYS[first + 2], g.name), KEYS[first + 4], settings[10])
    if all.rate_count > 0 then interval = math.max(interval, all.rate_per / all.rate_count) end
  end
end

local of_pool = { 0, 0, 0, 0 }
if member ~= '' then
  local k = pool.keys(KEYS)
  local p = redis.call('HMGET', k.conf, 'rate_count', 'rate_per', 'burst', 'max_in_flight', 'quotas')
  local in_all = pool.in_flight(KEYS, member, batch.in_flight(leases, riders))
  local ready = 0
  if p[1] then
    pool_scope = scope_of(redis.call('HGET', k.pace, 'down'), p[1], p[2], 0)
    local each = pool_scope.interval
    interval = math.max(interval, each)
    ready = math.ceil(tonumber(redis.call('HGET', k.pace, 'slot') or now) + (2 - tonumber(p[3])) * each)
  end
  of_pool = { in_all, tonumber(p[4] or 0), ready > now and ready or 0, free_again(k.departed, p[5], 0) }
end

-- How many are ahead of the job in its list. Ids of cancelled jobs keep their places, which is
-- why the numbers of the jobs at both ends tell about where it is; those of other flows and
-- priorities lie between them.
local function place_in(list)
  local nth = redis.call('LPOS', list, id, 'MAXLEN', LOOKED_AT)
  if nth then return nth end
  local length = redis.call('LLEN', list)
  if length == 0 then return 0 end
  local ends = redis.call('HMGET', body, redis.call('LINDEX', list, 0), redis.call('LINDEX', list, -1))
  local first, last, own = sequence(ends[1]), sequence(ends[2]), sequence(job)
  local place = own - first
  if last > first then place = math.floor((own - first) / (last - first) * (length - 1) + 0.5) end
  return math.max(math.min(place, length - 1), 0)
end

local position, instant = -1, 0
if state == QUEUED then
  local letter = string.match(job, '^%-?%d+ %d+ ............(.)')
  local list = flow.PRIORITY_OF[letter or ''] or 3
  position = place_in(KEYS[PLACES + list])
  for i = 1, list - 1 do position = position + redis.call('LLEN', KEYS[PLACES + i]) end
  if settings[1] and paused == 0 and of_flow.paused == 0 and of_group.paused == 0 then
    local at = math.max(next_slot, of_flow.ready, of_group.ready, quota, of_flow.quota, of_group.quota, of_pool[3], of_pool[4],
      bucket_scope.till, flow_scope.till, pool_scope.till)
    local ahead = math.floor(position / at_once)
    if times then
      local jobs = redis.call('HLEN', body) - redis.call('ZCARD', dead)
      instant = math.floor(timetable.leaves(times, bucket_scope.rate, at, ahead, interval, jobs))
    else
      instant = math.floor(at + ahead * interval)
    end
  end
elseif state == SCHEDULED or state == RETRYING then
  instant = tonumber(due or now)
elseif state == IN_FLIGHT then
  instant = tonumber(redis.call('ZSCORE', leases, id) or now)
elseif state == DEAD then
  instant = tonumber(redis.call('ZSCORE', dead, id) or now)
end
local reply = { state, position, instant, stored or '', job, now, paused, settings[5] or '', settings[6] or '',
  batch.in_flight(leases, riders), tonumber(settings[3] or 0), math.floor(next_slot), quota, has_flows and tonumber(levels) or 0 }
for _, of in ipairs({ of_flow, of_group }) do
  for _, value in ipairs({ of.paused, of.note, of.in_flight, of.most, of.ready, of.quota, of.disabled }) do reply[#reply + 1] = value end
end
for i = 1, 4 do reply[#reply + 1] = of_pool[i] end
reply[#reply + 1] = redis.call('HGET', tried, id) or ''
reply[#reply + 1] = offset
bucket_scope.rate = in_force
for _, scope in ipairs({ bucket_scope, flow_scope, pool_scope }) do
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = scope.text, scope.rate.rate_count, scope.rate.rate_per
end
reply[#reply + 1] = times and timetable.opens(times, now) ~= now and 1 or 0
reply[#reply + 1] = times and timetable.opens(times, math.max(now, tonumber(due or 0))) or now
reply[#reply + 1] = came_before and 1 or 0
return reply
