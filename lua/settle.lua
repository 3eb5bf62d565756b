-- settle.lua: ends leases, each with its outcome: done, dropped, retry, dead, returned
-- unused, held, or dead because its receiver is gone. An outcome counts only with the epoch and the claim of the lease; a
-- late writer changes nothing. Sent twice, the second time answers 0 for all.
--
-- What the answers say of the downstream changes the pace of their scope: the flow, the bucket or the pool (see downstream.lua). A
-- held job goes back to the head of its list and spends no attempt: it leaves when the hold of its scope is over. A job that is
-- held alone waits without one. The probe of a breaker is held too if it fails: it is no attempt of the job. A flow whose receiver is
-- gone, or whose breaker has been open for too long, is disabled: empty_disabled.lua makes dead letters of what waits in it.
--
-- KEYS[1]  …:body    hash  id -> see codec.lua
-- KEYS[2]  …:meta    hash  id -> see codec.lua
-- KEYS[3]  …:settings    hash  what the bucket obeys
-- KEYS[4]  …:pace    hash  offset: of the engine's clock; down: see downstream.lua
-- KEYS[5]  …:count   hash  jobs that came as scheduled, ids forgotten early, bytes of dead letters
-- KEYS[6]  …:leases  zset  id -> deadline, microseconds
-- KEYS[7]  …:dead    zset  id -> time of death
-- KEYS[8]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[9]  …:seen_window  list  settled ids, oldest first (see dedupe.lua)
-- KEYS[10] …:seen_minute  list  the same of ids that our client made
-- KEYS[11] …:flows   hash  flow -> its state (see flow.lua)
-- KEYS[12] …:flow_settings  hash  flow -> its own settings
-- KEYS[13] …:due:    zset  flow -> its turn, by the engine's clock; where flows are in groups …:due_groups, group -> its turn
-- KEYS[14] …:idle   zset  flow or group -> when it can be forgotten (see idle.lua)
-- KEYS[15] …:attempts  hash  id -> its first attempt and the last ones (see outcomes.lua)
-- KEYS[16] …:disabled  zset  disabled flow -> when empty_disabled.lua is to look at it
-- KEYS[17] …:outbox  zset  events -> when they are to be moved on (see outbox.lua)
-- KEYS[18] …:outbox_texts  hash  their texts
-- KEYS[19] …:results  hash  id -> what was answered (see results.lua)
-- KEYS[20] …:result_ends  zset  id -> when its result is dropped
-- KEYS[21] …:callbacks  zset  callbacks -> when they are to be handed out (see callbacks.lua)
-- KEYS[22] …:callback_texts  hash  their texts
-- KEYS[23] …:riders  zset  jobs that are in flight with another one -> number of their batch (see batch.lua)
-- KEYS[24...]  for each outcome that somebody waits for …:answer:<id>, a list; then for each flow its five places:
--          …:q:<priority>:<flow>, four lists, the most important first, then …:later:<flow>, a zset; where flows are in
--          groups then what group.load wants; in a pool then the
--          pool's seven (see pool.lua)
-- ARGV[1]  channel: to wake dispatchers on
-- ARGV[2]  bucket: what to publish there
-- ARGV[3]  levels: 1, 2 if they are in groups, or 0 of a bucket that has the flow "" only
-- ARGV[4]  member: the bucket's name where it is in a pool, '' if in none
-- ARGV[5]  flow_count: number of flows
-- ARGV[6]  answer_count: number of answers that somebody waits for
-- ARGV[7...]  the flows, in the order of their places, 256 at most; then the outcomes in groups that have all but the job in
--          common: how many jobs, epoch, claim (of a batch with "#" and its number), result (1 done, 2 retry, 3 dead, 4 returned, 5 held,
--          6 held alone, 7 dead
--          after the last attempt, 8 dead, and its flow is disabled for the reason, 9 dropped), delay in microseconds
--          (retry, held; of done, how long the downstream is to be left alone), last response (JSON, "" none), signal (see
--          downstream.note; 4: failed, and another job of the batch tells it), a word for its reason, when they were
--          claimed, microseconds, the attempt (a line of outcomes.lua; "" of done and returned); where the job may have ended with a result
--          its head ("" none), its body, 1 if the bucket is to keep it (else 0), the number of its list among the answers (0 nobody waits),
--          the channel of who waits, and of a job with a callback the first line of its body (else ""); then for each
--          job: id, its mark, which of the flows it is of, counted from 1
-- Returns  {1} the bucket is not configured, or not with flows or without as levels says; else {0, and for
--          each job, in the order in which they came, 1 settled, 2 held because it was the probe of a breaker, or 0 stale; then the
--          flows that were disabled, counted from 1}
-- Stores   ids of settled jobs until their dedupe window ends, dead letters until dropped, attempts until their job is gone;
--          callbacks until they are moved on; results until their retention ends, answers for 30 s; what is kept of a flow until it is idle
-- Needs    Redis 7.0

--#include lib/batch.lua
--#include lib/callbacks.lua
--#include lib/codec.lua
--#include lib/dedupe.lua
--#include lib/dlq.lua
--#include lib/downstream.lua
--#include lib/flow.lua
--#include lib/group.lua
--#include lib/idle.lua
--#include lib/outbox.lua
--#include lib/outcomes.lua
--#include lib/own_settings.lua
--#include lib/pacer.lua
--#include lib/pool.lua
--#include lib/results.lua

local body, meta, conf, pace, count = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, dead, seen, seen_window, seen_minute = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local flows, flow_settings, due_flows, idle_key, tried, disabled = KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16]
local outbox_key, outbox_texts, results_key, result_ends = KEYS[17], KEYS[18], KEYS[19], KEYS[20]
local callbacks_key, callback_texts, riders_key = KEYS[21], KEYS[22], KEYS[23]
local channel, bucket, levels, member, flow_count = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local FIRST_ANSWER, FIRST_FLOW, HEAD, WIDTH = 23, 6, 16, 3
local FIRST_PLACE = FIRST_ANSWER + tonumber(ARGV[6])
local DONE, RETRY, DEAD_NOW, RETURNED, HELD, HELD_ALONE, EXHAUSTED, GONE, DROPPED = '1', '2', '3', '4', '5', '6', '7', '8', '9'
local CHUNK = 500
local ACCEPTED, FAILED, FAILED_TOO = '1', '3', '4'
local SMALL_LETTERS = 97 -- a kind in capitals is that of a job that came with a delay

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('ZREM', leases, '')

local settings = redis.call('HMGET', conf, 'max_in_flight', 'dedupe_window', 'dedupe_max', 'flows', 'downstream',
  'keep_attempts', 'events', 'result_retention', 'results_max', 'results_bytes')
if not settings[1] or (settings[4] or '0') ~= levels then return { 1 } end
local max_in_flight = tonumber(settings[1])

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local ids, first_group = {}, FIRST_FLOW + flow_count + 1
local at, job_count = first_group, 0
while at <= #ARGV do
  local n = ARGV[at] + 0
  for i = at + HEAD, at + HEAD + (n - 1) * WIDTH, WIDTH do
    job_count = job_count + 1
    ids[job_count] = ARGV[i]
  end
  at = at + HEAD + n * WIDTH
end
local stored = redis.call('HMGET', meta, unpack(ids))
local rules = downstream.rules(settings[5])
local was_full = redis.call('ZCARD', leases) >= max_in_flight and batch.in_flight(leases, riders_key) >= max_in_flight

local reply = { 0 }
local unleased, gone, metas, deaths, ending = {}, {}, {}, {}, {}
local keep_attempts, gone_tried, attempts_of = tonumber(settings[6] or 0), {}, {}
local memory = dedupe.open(tonumber(settings[2]), tonumber(settings[3]), now, seen, seen_window, seen_minute)
local unscheduled, handled, with_results = 0, {}, {}
local box = (settings[7] or '') ~= '' and outbox.open(settings[7], outbox_key, outbox_texts, count, now)

-- What becomes of each flow, in the order in which they come.
local parts, touched, NONE = {}, {}, {}
local function part_of(n)
  local part = { n = n + 0, before = FIRST_PLACE + (n - 1) * flow.PLACES, ended = 0, plain_gone = 0, scheduled_gone = 0,
    accepted = 0, accepted_at = 0, retries = NONE, returned = NONE }
  parts[n], touched[#touched + 1] = part, part
  return part
end

local function has_left(part, mark)
  if string.byte(mark, 12) < SMALL_LETTERS then
    unscheduled, part.scheduled_gone = unscheduled + 1, part.scheduled_gone + 1
  else
    part.plain_gone = part.plain_gone + 1
  end
end

-- A job that waits again, or is dead. nth is its place in the reply. failed_at is when it was claimed, where the downstream failed.
-- result_at is where its result stands, if it has one.
local function keep(part, nth, id, mark, result, delay, numbers, line, failed_at, result_at)
  local state = codec.QUEUED
  if failed_at and part.probed_from and failed_at > part.probed_from and (result == RETRY or result == EXHAUSTED) then
    result, reply[nth] = HELD, 2
    line, numbers[6] = outcomes.free(line), outcomes.because(numbers[6], '')
  elseif result == EXHAUSTED then
    result = DEAD_NOW
  end
  if result == RETRY or result == HELD_ALONE or result == HELD and rules.scope == 'n' then
    local due = now + delay
    state = codec.RETRYING
    if part.retries == NONE then part.retries = {} end
    part.retries[#part.retries + 1], part.retries[#part.retries + 2] = string.format('%.0f', due), id
    part.earliest = math.min(part.earliest or due, due)
  elseif result == DEAD_NOW then
    state = codec.DEAD
    deaths[#deaths + 1] = id
    if result_at then with_results[#with_results + 1] = { id, result_at, numbers[1] } end
    if box then
      outbox.note_dead(box, levels ~= '0' and ARGV[FIRST_FLOW + part.n], { id }, string.match(numbers[6], '^{"cause":"([^"]*)"'))
    end
    has_left(part, mark)
  else
    if part.returned == NONE then part.returned = {} end
    part.returned[#part.returned + 1] = { id = id, list = flow.PRIORITY_OF[string.sub(mark, 13, 13)] or 3 }
  end
  local epoch, attempts, lost, crashes, claim, last = unpack(numbers)
  if result ~= RETURNED then
    local before = attempts + lost > 0 and redis.call('HGET', tried, id)
    attempts_of[#attempts_of + 1], attempts_of[#attempts_of + 2] = id, outcomes.add(before, line, keep_attempts, now)
  end
  if result == RETRY or result == DEAD_NOW then
    attempts, crashes = attempts + 1, 0
  elseif result == HELD or result == HELD_ALONE then
    lost, crashes = lost + 1, 0 -- a delivery that counts as no attempt
  end
  metas[#metas + 1], metas[#metas + 2] = id, codec.meta(state, epoch, attempts, lost, crashes, claim, last)
end

local i, settled, others = 0, 0, {}
at = first_group
while at <= #ARGV do
  local n, epoch, claim, result = ARGV[at] + 0, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local delay, last = ARGV[at + 4] + 0, ARGV[at + 5]
  local signal, reason, claimed_at, line = ARGV[at + 6], ARGV[at + 7], ARGV[at + 8] + 0, ARGV[at + 9]
  local has_result, number = ARGV[at + 10] ~= '', string.find(claim, '#', 1, true) and batch.number(claim)
  -- The meta of a job that was claimed once is known.
  local expected = epoch == '1' and codec.meta(codec.IN_FLIGHT, 1, 0, 0, 0, claim, '')
  for from = at + HEAD, at + HEAD + (n - 1) * WIDTH, WIDTH do
    i = i + 1
    local id, mark, of = ids[i], ARGV[from + 1], ARGV[from + 2]
    local text = not handled[id] and stored[i]
    local is_ours = text and text == expected
    local numbers
    if text and (not is_ours or result ~= DONE) then
      local state, now_epoch, attempts, lost, crashes, owner, before = string.match(text, codec.META)
      is_ours = state == codec.IN_FLIGHT and now_epoch == epoch and owner == claim
      numbers = is_ours and { tonumber(epoch), tonumber(attempts), tonumber(lost), tonumber(crashes), claim, last == '' and before or last }
    end
    if not is_ours then
      reply[i + 1] = 0
    else
      reply[i + 1] = 1
      handled[id] = true
      settled = settled + 1
      unleased[settled] = id
      local part = parts[of] or part_of(of)
      part.ended = part.ended + 1
      if number then batch.ends(ending, number, id, part) end
      if box and not part.tells then part.tells = not outbox.is_own(id) end
      if signal == ACCEPTED then
        part.accepted, part.accepted_at = part.accepted + 1, math.max(part.accepted_at, claimed_at)
      elseif signal ~= FAILED_TOO then
        part.heard = part.heard or downstream.listen()
        downstream.note(part.heard, signal, claimed_at, (result == HELD or result == DONE) and delay or 0, reason)
      end
      if result == GONE then part.disabled = reason end
      if result == DONE or result == DROPPED then
        gone[#gone + 1] = id
        has_left(part, mark)
        if numbers then gone_tried[#gone_tried + 1] = id end
        dedupe.add(memory, id, mark, result == DONE and codec.DONE or codec.DROPPED)
        if has_result then with_results[#with_results + 1] = { id, at + 10, tonumber(epoch) } end
      else
        local becomes = result == GONE and DEAD_NOW or result
        others[#others + 1] = { part, i + 1, id, mark, becomes, delay, numbers, line,
          (signal == FAILED or signal == FAILED_TOO) and claimed_at,
          has_result and at + 10 }
      end
    end
  end
  at = at + HEAD + n * WIDTH
end
if settled == 0 then return reply end

-- What the answers to a flow, or to all, say.
local function heard_of(some)
  local heard, n, latest = nil, 0, 0
  for _, part in ipairs(some) do
    n, latest = n + part.accepted, math.max(latest, part.accepted_at)
    if part.heard then heard = downstream.add(heard, part.heard) end
  end
  if n > 0 then heard = downstream.add(heard, downstream.listen(n, latest)) end
  return heard
end

local function rate_of(key)
  local rate = redis.call('HMGET', key, 'rate_count', 'rate_per')
  return { rate_count = tonumber(rate[1]), rate_per = tonumber(rate[2]) }
end

-- Notes what becomes of a breaker. Where hooks made all jobs whose outcomes changed it, nobody is told.
local function tell(was_open, down, some, name)
  local is_open = down ~= nil and down.breaker ~= downstream.CLOSED
  if was_open == is_open then return end
  for _, part in ipairs(some) do
    if part.tells then
      outbox.note(box, is_open and 'breaker.open' or 'flow.recovered', name, 1, { reason = is_open and down.reason or 'breaker closed' })
      return
    end
  end
end

-- What a scope says after the answers to some of the flows. rate is the key of its rate, or it. name is that of a flow.
local function hear(down, some, rate, clock, offset, name)
  local heard = heard_of(some)
  if not down and not downstream.matters(heard) then return nil, false end
  if down and down.breaker ~= downstream.CLOSED then
    for _, part in ipairs(some) do part.probed_from = down.opened - offset end
  end
  local was_open = down and down.breaker ~= downstream.CLOSED or false
  local said, sooner = downstream.hear(down, heard, rules, type(rate) == 'string' and rate_of(rate) or rate, clock, offset)
  if box then tell(was_open, said, some, name) end
  return said, sooner
end

-- Notes which flows are on a calendar.
local function look_up(due, names, of)
  for n, score in ipairs(redis.call('ZMSCORE', due, unpack(names))) do of[n].on_calendar = score end
end

local wake, loaded, calendar, groups = was_full, nil, nil, nil
if levels ~= '0' then
  local names = {}
  for n = 1, flow_count do names[n] = ARGV[FIRST_FLOW + n] end
  loaded, calendar = flow.load(conf, flows, flow_settings, names), flow.calendar(due_flows, pace)
  if levels == '2' then
    groups = group.load(conf, KEYS, FIRST_PLACE + flow_count * flow.PLACES, loaded)
    for _, g in ipairs(groups) do g.named, g.flows = {}, {} end
    for _, f in ipairs(loaded) do
      local g = f.group
      local n = #g.flows + 1
      g.named[n], g.flows[n] = f.name, f
    end
    for _, g in ipairs(groups) do look_up(g.due, g.named, g.flows) end
  else
    look_up(due_flows, names, loaded)
  end
end

-- What the downstream says.
local said_key, before, said, sooner = pace, nil, nil, false
if rules.scope == 'f' and loaded then
  for _, part in ipairs(touched) do
    local f = loaded[part.n]
    if f.state.down or part.heard then
      local rate, offset = f.configured.rate_count > 0 and f.configured or conf, calendar.offset
      f.state.down, f.sooner = hear(f.state.down, { part }, rate, now + offset, offset, f.name)
      f.settings = flow.obeys(f.state, f.configured)
      if f.state.down and downstream.is_over_for_good(f.state.down, rules, now + offset) then part.disabled = f.state.down.reason end
    end
  end
elseif rules.scope == 'b' then
  local of_pace = redis.call('HMGET', pace, 'down', 'offset')
  local offset = tonumber(of_pace[2] or 0)
  before = of_pace[1] and downstream.read(of_pace[1])
  said, sooner = hear(before, touched, conf, now + offset, offset)
  wake = wake or sooner
elseif rules.scope == 'p' and member ~= '' then
  local of_pool = pool.keys(KEYS)
  said_key = of_pool.pace
  before = downstream.read(redis.call('HGET', said_key, 'down'))
  said, sooner = hear(before, touched, of_pool.conf, now, 0)
end
for _, job in ipairs(others) do keep(unpack(job)) end
for _, part in ipairs(touched) do
  local f = loaded and loaded[part.n]
  if part.disabled and f and f.configured.disabled == 0 then
    f.state.down, f.configured = nil, flow.disabled(f.configured, now)
    f.settings = f.configured
    reply[#reply + 1] = part.n
    if box and part.tells then outbox.note(box, 'flow.disabled', f.name, 1, { reason = part.disabled }) end
  else
    part.disabled = nil
  end
end

-- What waited before.
for _, part in ipairs(touched) do
  if #part.returned > 0 then
    part.were_empty = redis.call('EXISTS', KEYS[part.before + 1], KEYS[part.before + 2], KEYS[part.before + 3],
      KEYS[part.before + 4]) == 0
  end
end
if not loaded then
  local part = touched[1]
  if part.were_empty then wake = true end
  if part.earliest then
    local head = tonumber(redis.call('ZRANGE', KEYS[part.before + flow.PLACES], 0, 0, 'WITHSCORES')[2])
    if not head or part.earliest < head then wake = true end
  end
end

-- Everything is decided. From here on there are only writes, and a look at what waits now.
local function in_chunks(command, key, list)
  for from = 1, #list, CHUNK do
    redis.call(command, key, unpack(list, from, math.min(from + CHUNK - 1, #list)))
  end
end
in_chunks('ZREM', leases, unleased)
if #ending > 0 then batch.close(ending, riders_key) end
in_chunks('HDEL', body, gone)
in_chunks('HDEL', meta, gone)
in_chunks('HSET', meta, metas)
in_chunks('HDEL', tried, gone_tried)
in_chunks('HSET', tried, attempts_of)
if #deaths > 0 then dlq.add(dead, body, meta, tried, count, now, deaths) end
if #with_results > 0 then
  local kept = results.open(settings[8], settings[9], settings[10], results_key, result_ends, count, now)
  results.expire(kept, 2 * #with_results + 10)
  local told = callbacks.open(callbacks_key, callback_texts, now)
  for _, one in ipairs(with_results) do
    local id, from = one[1], one[2]
    local head, text, waits = ARGV[from], ARGV[from + 1], ARGV[from + 3] + 0
    if ARGV[from + 2] == '1' then results.keep(kept, id, head, text) end
    if waits > 0 then results.hand_over(KEYS[FIRST_ANSWER + waits], ARGV[from + 4], bucket, id, head, text) end
    if ARGV[from + 5] ~= '' then callbacks.note(told, id, one[3], ARGV[from + 5], head, text) end
  end
  callbacks.write(told)
end
if box then outbox.write(box) end
if said then
  redis.call('HSET', said_key, 'down', downstream.write(said))
elseif before then
  redis.call('HDEL', said_key, 'down')
end
if sooner and said_key ~= pace then redis.call('PUBLISH', channel, 'pool:' .. string.match(said_key, '{(.-)}')) end
local gone_flows, idle_later, states = {}, {}, {}
for _, part in ipairs(touched) do
  if part.retries ~= NONE then in_chunks('ZADD', KEYS[part.before + flow.PLACES], part.retries) end
  for r = #part.returned, 1, -1 do
    local job = part.returned[r]
    redis.call('LPUSH', KEYS[part.before + job.list], job.id)
    if loaded then flow.fill(loaded[part.n].state, flow.LETTERS[job.list]) end
  end
  if loaded then
    local f = loaded[part.n]
    if part.disabled then own_settings.disable(flow_settings, disabled, f.name, now, part.disabled) end
    flow.count(f, -part.plain_gone, -part.scheduled_gone, -part.ended, -(part.riders or 0))
    if part.earliest then flow.fill(f.state, 'd') end
    if flow.is_idle(f.state, f.settings, now + calendar.offset) then
      gone_flows[#gone_flows + 1] = f.name
    else
      states[#states + 1], states[#states + 2] = f.name, flow.write(f.state)
      if f.state.down then idle.note(idle_later, 'f', f) end
    end
    -- One that is not on the calendar may have been held back by the place that is free now.
    local from, k = (part.were_empty or f.sooner) and now or part.earliest, part.before
    if from or f.was_held or (not f.on_calendar and f.state.filled ~= '.'
      and redis.call('EXISTS', KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5]) > 0) then
      flow.recall(calendar, f, KEYS, k, now, from)
    end
  end
end
in_chunks('HDEL', flows, gone_flows)
in_chunks('ZADD', idle_key, idle_later)
in_chunks('HSET', flows, states)
if groups then group.close(groups, now, calendar) end
flow.unschedule(count, unscheduled)
dedupe.write(memory, count)

if member ~= '' then pool.note(member, KEYS, batch.in_flight(leases, riders_key), now, channel) end
if wake or (calendar and calendar.sooner) then redis.call('PUBLISH', channel, bucket) end
return reply
