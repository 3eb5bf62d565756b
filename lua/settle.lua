-- settle.lua: ends leases, each with its outcome: done, dropped, retry, dead, returned unused, held, or dead because its receiver is gone.
-- An outcome counts only with the epoch and the claim of the lease; a late writer changes nothing. Sent twice, it returns 0 for all.
--
-- Responses change the pace of their scope: the flow, the bucket or the pool (see downstream.lua). A held job returns to the head of
-- its list and spends no attempt: it departs when the hold of its scope ends. HELD_ALONE holds the job without its scope: it waits in
-- later. The probe of a breaker is held too if it fails. A flow whose receiver is gone, or whose breaker was open for too long, is
-- disabled (see empty_disabled.lua). In a bucket that keeps jobs of disabled flows, the job whose receiver is gone returns like a held job.
--
-- KEYS[1]  …:body    hash  id -> see codec.lua
-- KEYS[2]  …:meta    hash  id -> see codec.lua
-- KEYS[3]  …:settings    hash  settings of the bucket
-- KEYS[4]  …:pace    hash  offset, clock: of the engine's clock; down: see downstream.lua; drain: see timetable.lua
-- KEYS[5]  …:count   hash  jobs enqueued with a delay, ids forgotten early, bytes of dead letters; window: see window_tally.lua
-- KEYS[6]  …:leases  zset  id -> deadline, microseconds
-- KEYS[7]  …:dead    zset  id -> time of death
-- KEYS[8]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[9]  …:seen_window  list  settled ids, oldest first (see dedupe.lua)
-- KEYS[10] …:seen_minute  list  the same for ids that our client made
-- KEYS[11] …:flows   hash  flow -> its state (see flow.lua)
-- KEYS[12] …:flow_settings  hash  flow -> its own settings
-- KEYS[13] …:due:    zset  flow -> its turn, by the engine's clock; where flows are in groups …:due_groups, group -> its turn
-- KEYS[14] …:idle   zset  flow or group -> when it can be forgotten (see idle.lua)
-- KEYS[15] …:attempts  hash  id -> its first attempt and the last ones (see outcomes.lua)
-- KEYS[16] …:disabled  zset  disabled flow -> when empty_disabled.lua checks it next
-- KEYS[17] …:outbox  zset  events -> when to move them on (see outbox.lua)
-- KEYS[18] …:outbox_texts  hash  their texts
-- KEYS[19] …:results  hash  id -> what was answered (see results.lua)
-- KEYS[20] …:result_ends  zset  id -> when its result is dropped
-- KEYS[21] …:callbacks  zset  callbacks -> when to hand them out (see callbacks.lua)
-- KEYS[22] …:callback_texts  hash  their texts
-- KEYS[23] …:followers  zset  batch members in flight, without the first of each batch -> number of their batch (see batch.lua)
-- KEYS[24] …:callback_counts  hash  number of callbacks of each flow and group (see callbacks.lua)
-- KEYS[25] …:expiries  zset  id -> when the job expires (see expiries.lua)
-- KEYS[26] …:charges  hash  charges to budgets (see charges.lua)
-- KEYS[27] …:responses  hash  id -> what its requests charged, or that its usage is settled; 10,000 at most, expires (see responses.lua)
-- KEYS[28] …:result_flows  hash  id -> when its result was stored, and its flow
-- KEYS[29] …:result_order  zset  results by flow and time
-- KEYS[30] …:result_shares  zset  number and bytes of the results of each flow
-- KEYS[31...]  for each flow its five places: …:q:<priority>:<flow>, four lists, the most important first, then …:later:<flow>, a zset;
--          where flows are in groups then what group.load wants; of jobs that used a model then …:use:<day>, hashes, for each day on
--          which these were claimed (see use.lua); in a pool then the pool's seven (see pool.lua)
-- ARGV[1]  channel: to wake dispatchers on
-- ARGV[2]  bucket: the message to publish
-- ARGV[3]  levels: 1 if the bucket has flows, 2 if they are in groups, 0 if it has only the flow ""
-- ARGV[4]  member: the bucket's name if it is in a pool, else ''
-- ARGV[5]  flow_count: number of flows
-- ARGV[6...]  the flows, in the order of their keys, 256 at most; then groups of jobs with the same outcome. A group is, in this order:
--     count     number of jobs; negative if the jobs have charges or usage
--     epoch
--     claim     of a batch with "#" and its number
--     result    1 done, 2 retry, 3 dead, 4 returned, 5 held, 6 held without its scope, 7 dead after the last attempt, 8 dead or kept, and
--               its flow is disabled for the reason, 9 dropped, 10 sent once and not done
--     delay     microseconds, of a retry or a held job; with done, the hold of its scope
--     last      the last response, JSON; "" none
--     signal    see downstream.note; 4: failed, and another job of the batch reports it
--     reason    one word
--     claimed   when the jobs were claimed, microseconds
--     attempt   a line of outcomes.lua; "" with done and returned
--     only for results that may end a job:
--       head    of the stored result; "" none
--       body    of the stored result
--       keep    1 if the bucket keeps the result, else 0
--       waiter  the channel of the process that waits for the result; "" none
--       callback  the first line of the callback's body; "" without a callback
--     for each job: id, its mark, the number of its flow, from 1; and if the count is negative, a text of three parts, each of them
--               optional: "at pool_at reserved used", charges to budgets (see charges.lua, reservation.lua); "!kind id model", the response
--               that it names (see responses.lua); "@day model input output" and the charged tokens if these differ (see use.lua)
-- Returns  {1} the bucket is not configured, or has no flows although levels says so, or the reverse; else {0, and for each job, in their
--          order, 1 settled, 2 held because it was the probe of a breaker or is kept, 3 settled, and its usage is charged to
--          earlier requests of its response or was charged before, or 0 stale; then for each change of a scope: 1
--          a flow was disabled, 2 a breaker opened, 3 one closed; the number of the flow, from 1, 0 the bucket or the pool; the word for
--          the reason}
-- Stores   ids of settled jobs until their dedupe window ends, dead letters until dropped, attempts until their job is removed; callbacks
--          until moved on; results until their retention ends, or for 30 s if a process waits; flows until idle; use of models 32 days;
--          10,000 responses, shared by caller, 31 days after the last one
-- Needs    Redis 7.0

--#include lib/batch.lua
--#include lib/callbacks.lua
--#include lib/callers.lua
--#include lib/charges.lua
--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/dedupe.lua
--#include lib/dlq.lua
--#include lib/downstream.lua
--#include lib/downstream_signals.lua
--#include lib/flow.lua
--#include lib/group.lua
--#include lib/idle.lua
--#include lib/in_chunks.lua
--#include lib/light_flow.lua
--#include lib/outbox.lua
--#include lib/outcomes.lua
--#include lib/own_settings.lua
--#include lib/pool.lua
--#include lib/responses.lua
--#include lib/results.lua
--#include lib/server_time.lua
--#include lib/use.lua

local body, meta, conf, pace, count = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, dead, seen, seen_window, seen_minute = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local flows, flow_settings, due_flows, idle_key, tried, disabled = KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16]
local outbox_key, outbox_texts = KEYS[17], KEYS[18]
local of_results = { KEYS[19], KEYS[20], count, KEYS[28], KEYS[29], KEYS[30] } -- see results.open
local callbacks_key, callback_texts, followers_key, callback_counts, expiries_key, charges_key, responses_key = unpack(KEYS, 21, 27)
local channel, bucket, levels, member, flow_count = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local FIRST_PLACE, FIRST_FLOW, HEAD, WIDTH = 30, 5, 15, 3
local DONE, RETRY, DEAD_NOW, RETURNED, HELD = codes.DONE, codes.RETRY, codes.DEAD, codes.RETURNED, codes.HELD
local HELD_ALONE, EXHAUSTED, GONE, DROPPED, UNDONE = codes.HELD_ALONE, codes.EXHAUSTED, codes.GONE, codes.DROPPED, codes.UNDONE
local SETTLED, ACCEPTED, FAILED, FAILED_TOO = codes.SETTLED, codes.SIGNAL_ACCEPTED, codes.SIGNAL_FAILED, codes.SIGNAL_FAILED_TOO
local SMALL_LETTERS = 97 -- a kind below it is a capital letter: the job was enqueued with a delay

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', leases, '')

local max_in_flight, dedupe_window, dedupe_max, stored_levels, downstream_text, keep_attempts, events, result_retention, results_max,
  results_bytes, expires, keeps_gone =
  unpack(redis.call('HMGET', conf, 'max_in_flight', 'dedupe_window', 'dedupe_max', 'flows', 'downstream', 'keep_attempts', 'events',
    'result_retention', 'results_max', 'results_bytes', 'expires', 'flow_keep'))
if not max_in_flight or (stored_levels or codes.NO_FLOWS) ~= levels then return { 1 } end
max_in_flight, keep_attempts = tonumber(max_in_flight), tonumber(keep_attempts or 0)

local now = server_time()
local args, last_arg, ids, first_group = ARGV, #ARGV, {}, FIRST_FLOW + flow_count + 1
-- Returns where a group ends, and the number of arguments of each of its jobs.
local function extent(from)
  local n = args[from] + 0
  if n < 0 then return from + HEAD - n * (WIDTH + 1), WIDTH + 1 end
  return from + HEAD + n * WIDTH, WIDTH
end
local at, job_count = first_group, 0
while at <= last_arg do
  local ends, width = extent(at)
  for i = at + HEAD, ends - 1, width do job_count, ids[job_count + 1] = job_count + 1, args[i] end
  at = ends
end
local stored = redis.call('HMGET', meta, unpack(ids))
local rules = downstream.rules(downstream_text)
local was_full = redis.call('ZCARD', leases) >= max_in_flight and batch.in_flight(leases, followers_key) >= max_in_flight

local reply = { 0 }
local marks_of_dead = {}
local gone, unleased, metas, deaths, ending = {}, {}, {}, {}, {} -- gone: jobs that are done or dropped; unleased: all others
local gone_tried, attempts_of = {}, {}
local memory = dedupe.open(tonumber(dedupe_window), tonumber(dedupe_max), now, seen, seen_window, seen_minute, count)
local unscheduled, handled, with_results = 0, {}, {}
local box = (events or '') ~= '' and outbox.open(events, outbox_key, outbox_texts, count, now)

-- The changes of each flow, in the order of the outcomes. usual: number of jobs with the usual outcome; more: counts of other jobs. Few
-- parts get more fields.
local NO_MORE = { ended = 0, plain_gone = 0, scheduled_gone = 0, accepted = 0 }
local parts, touched, any_signals, some_disabled = {}, {}, false, false
local function part_of(n)
  local part = { n = n + 0, usual = 0, accepted_at = 0, more = NO_MORE }
  parts[n], touched[#touched + 1] = part, part
  return part
end

-- Returns the number of KEYS before the places of a flow.
local function places_of(part) return FIRST_PLACE + (part.n - 1) * flow.PLACES end

-- Counts one more job that was removed from its flow.
local function has_left(more, mark)
  if string.byte(mark, 12) < SMALL_LETTERS then
    unscheduled, more.scheduled_gone = unscheduled + 1, more.scheduled_gone + 1
  else
    more.plain_gone = more.plain_gone + 1
  end
end

local i, gone_count, others, spent, uses, named = 0, 0, {}, {}, {}, {}
at = first_group
while at <= last_arg do
  local ends, width = extent(at)
  local epoch, claim, result, delay, last = args[at + 1], args[at + 2], args[at + 3], args[at + 4] + 0, args[at + 5]
  local signal, reason, claimed_at, line = args[at + 6], args[at + 7], args[at + 8] + 0, args[at + 9]
  local has_result, number = args[at + 10] ~= '', string.find(claim, '#', 1, true) and batch.number(claim)
  -- The expected meta of a job that was claimed once.
  local expected = epoch == '1' and codec.meta(codec.IN_FLIGHT, 1, 0, 0, 0, claim, '') or ''
  -- The usual outcome: the first attempt of a job enqueued without a delay is accepted.
  local is_other = has_result or number or width > WIDTH or result ~= DONE or signal ~= ACCEPTED or delay > 0
  local usual = is_other and '' or expected --#slow local usual = ''
  local gone_before = gone_count
  for from = at + HEAD, ends - 1, width do
    i = i + 1
    local id, text, mark, of = ids[i], stored[i], args[from + 1], args[from + 2]
    if text == usual and string.byte(mark, 12) >= SMALL_LETTERS and not handled[id] then -- the same as below, at less cost
      reply[i + 1], handled[id] = SETTLED, true
      local part = parts[of] or part_of(of)
      part.usual = part.usual + 1
      if claimed_at > part.accepted_at then part.accepted_at = claimed_at end
      if box and not part.caller and not outbox.is_own(id) then part.caller = callers.letters(mark) or '' end
      gone_count = gone_count + 1
      gone[gone_count] = id
      dedupe.add(memory, id, mark, codec.DONE)
    else
      local is_ours, numbers = text == expected and not handled[id], nil
      if text and not handled[id] and (not is_ours or result ~= DONE) then
        local state, now_epoch, attempts, lost, crashes, owner, before = string.match(text, codec.META)
        is_ours = state == codec.IN_FLIGHT and now_epoch == epoch and owner == claim
        numbers = is_ours and { tonumber(epoch), tonumber(attempts), tonumber(lost), tonumber(crashes), claim,
          last == '' and before or last }
      end
      reply[i + 1] = is_ours and codes.SETTLED or codes.NOT_LEASED
      if is_ours then
        handled[id] = true
        local part = parts[of] or part_of(of)
        if not part.unusual then
          part.unusual, part.more = true, { ended = 0, plain_gone = 0, scheduled_gone = 0, accepted = 0 }
        end
        local more = part.more
        more.ended = more.ended + 1
        if number then batch.ends(ending, number, id, part) end
        if width > WIDTH then
          local its_flow = levels ~= codes.NO_FLOWS and args[FIRST_FLOW + of] or ''
          use.note(part, args[from + 3], mark, spent, uses, named, claimed_at, i + 1, its_flow)
        end
        if box and not part.caller and not outbox.is_own(id) then part.caller = callers.letters(mark) or '' end
        if signal == ACCEPTED then
          more.accepted, part.accepted_at = more.accepted + 1, math.max(part.accepted_at, claimed_at)
          if result == DONE and delay > 0 then part.signals, any_signals = downstream.rest(part.signals, delay, reason), true end
        elseif signal ~= FAILED_TOO then
          part.signals, any_signals = part.signals or downstream.new_signals(), true
          downstream.note(part.signals, signal, claimed_at, (result == HELD or result == DONE or result == UNDONE) and delay or 0, reason)
        end
        if result == GONE then part.disabled, some_disabled = reason, true end
        if result == DONE or result == DROPPED or result == UNDONE then
          gone_count = gone_count + 1
          gone[gone_count] = id
          dedupe.add(memory, id, mark, result == DONE and codec.DONE or codec.DROPPED)
          has_left(more, mark)
          if numbers then gone_tried[#gone_tried + 1] = id end
          if has_result then
            local tried_before = numbers and args[at + 12] == '1' and redis.call('HGET', tried, id)
            with_results[#with_results + 1] = { id = id, at = at + 10, epoch = tonumber(epoch), of = of, tried = tried_before, mark = mark }
          end
        else
          unleased[#unleased + 1] = id
          local becomes = result == GONE and keeps_gone ~= '1' and DEAD_NOW or result
          others[#others + 1] = { part, i + 1, id, mark, becomes, delay, numbers, line,
            (signal == FAILED or signal == FAILED_TOO) and claimed_at, has_result and at + 10 }
        end
      end
    end
  end
  if box then outbox.ends(box, result == DONE and 'sent' or 'dropped', gone_count - gone_before) end
  at = ends
end
if #touched == 0 then return reply end
local of_responses = #named > 0 and responses.settle(responses_key, named, reply)

-- The state of the flows and groups: loaded and groups have those that are not light, see light_flow.lua.
local wake, turn_queue, loaded, light, groups, light_groups = was_full, nil, {}, nil, nil, nil
if levels ~= codes.NO_FLOWS then
  local names = {}
  for n = 1, flow_count do names[n] = args[FIRST_FLOW + n] end
  turn_queue = flow.turn_queue(due_flows, pace)
  loaded, light, groups, light_groups = light_flow.load(touched, names, conf, flows, flow_settings, due_flows,
    levels == codes.GROUPS and FIRST_PLACE + flow_count * flow.PLACES or nil)
end

-- The responses of the downstream.
local of_pool = member ~= '' and pool.keys(KEYS) or nil
local changes = downstream_signals.open(touched, rules, now, box, reply, conf, pace, of_pool)
local said_key, before, said, sooner, down, offset, of_claim = pace, nil, nil, false
if rules.scope == 'b' or #spent > 0 then down, offset, of_claim = unpack(redis.call('HMGET', pace, 'down', 'offset', 'clock')) end
if rules.scope == 'f' and turn_queue then
  some_disabled = downstream_signals.of_flows(changes, loaded, turn_queue.offset) or some_disabled
elseif rules.scope == 'b' then
  before, said, sooner = downstream_signals.of_all(changes, down, tonumber(offset or 0), any_signals)
  wake = wake or sooner
elseif rules.scope == 'p' and of_pool then
  said_key = of_pool.pace
  before, said, sooner = downstream_signals.of_all(changes, redis.call('HGET', said_key, 'down'), 0, any_signals)
end

-- Jobs that wait again, or are dead.
for _, job in ipairs(others) do
  -- nth is the job's index in the reply; failed_at: when it was claimed, if the downstream failed; result_at: the index of its
  -- result, if it has one.
  local part, nth, id, mark, result, delay, numbers, line, failed_at, result_at = unpack(job, 1, 10)
  local epoch, attempts, lost, crashes, claim, last = unpack(numbers, 1, 6)
  local state = codec.QUEUED
  if failed_at and part.probed_from and failed_at > part.probed_from and (result == RETRY or result == EXHAUSTED) then
    result, reply[nth] = HELD, codes.SETTLED_HELD
    line, last = outcomes.free(line), outcomes.with_cause(last, '')
  elseif result == GONE then -- its flow is disabled, and the job waits there
    reply[nth], line, last = codes.SETTLED_HELD, outcomes.free(line), outcomes.with_cause(last, '')
  elseif result == EXHAUSTED then
    result = DEAD_NOW
  end
  if result == RETRY or result == HELD_ALONE or result == HELD and rules.scope == 'n' then
    local due, retries = now + delay, part.retries or {}
    state = codec.RETRYING
    retries[#retries + 1], retries[#retries + 2] = string.format('%d', due), id
    part.retries, part.earliest = retries, math.min(part.earliest or due, due)
  elseif result == DEAD_NOW then
    state = codec.DEAD
    deaths[#deaths + 1], marks_of_dead[#deaths + 1] = id, mark
    if result_at then with_results[#with_results + 1] = { id = id, at = result_at, epoch = epoch, of = part.n, mark = mark } end
    if box then
      outbox.note_dead(box, levels ~= codes.NO_FLOWS and args[FIRST_FLOW + part.n], { id }, string.match(last, '^{"cause":"([^"]*)"'),
        mark)
    end
    has_left(part.more, mark)
  else
    local returned = part.returned or {}
    returned[#returned + 1] = { id = id, list = flow.list_of(mark) }
    part.returned = returned
  end
  if result ~= RETURNED then
    local tried_before = attempts + lost > 0 and redis.call('HGET', tried, id)
    attempts_of[#attempts_of + 1], attempts_of[#attempts_of + 2] = id, outcomes.add(tried_before, line, keep_attempts, now)
  end
  if result == RETRY or result == DEAD_NOW then
    attempts, crashes = attempts + 1, 0
  elseif result == HELD or result == HELD_ALONE or result == GONE then
    lost, crashes = lost + 1, 0 -- a delivery that is not an attempt
  end
  metas[#metas + 1], metas[#metas + 2] = id, codec.meta(state, epoch, attempts, lost, crashes, claim, last)
end
if some_disabled then
  for _, part in ipairs(touched) do
    local f = loaded[part.n]
    if part.disabled and f and f.configured.disabled == 0 then
      f.state.down, f.configured = nil, flow.disabled(f.configured, now)
      f.settings = f.configured
      downstream_signals.report(changes, codes.BECAME_DISABLED, part.n, part.disabled)
      if box and part.caller then outbox.note(box, 'flow.disabled', f.name, 1, { reason = part.disabled }, part.caller) end
    else
      part.disabled = nil
    end
  end
end

-- Whether jobs waited before.
for _, part in ipairs(touched) do
  if part.returned then
    local k = places_of(part)
    part.were_empty = redis.call('EXISTS', KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4]) == 0
  end
end
if levels == codes.NO_FLOWS then
  local part = touched[1]
  if part.were_empty then wake = true end
  if part.earliest then
    local head = tonumber(redis.call('ZRANGE', KEYS[places_of(part) + flow.PLACES], 0, 0, 'WITHSCORES')[2])
    if not head or part.earliest < head then wake = true end
  end
end

-- Everything is decided. From here on the script writes; what it still reads decides nothing about outcomes.
in_chunks('ZREM', leases, gone)
in_chunks('ZREM', leases, unleased)
if #ending > 0 then batch.close(ending, followers_key) end
in_chunks('HDEL', body, gone)
in_chunks('HDEL', meta, gone)
if expires then
  in_chunks('ZREM', expiries_key, gone)
  in_chunks('ZREM', expiries_key, deaths)
end
in_chunks('HSET', meta, metas)
in_chunks('HDEL', tried, gone_tried)
in_chunks('HSET', tried, attempts_of)
if #deaths > 0 then dlq.add(dead, body, meta, tried, count, now, deaths, marks_of_dead) end
if #with_results > 0 then
  local kept = results.open(result_retention, results_max, results_bytes, now, of_results)
  results.expire(kept, 2 * #with_results + 10)
  local noted = callbacks.open(callbacks_key, callback_texts, now, callback_counts, levels)
  for _, one in ipairs(with_results) do
    local id, from = one.id, one.at
    local head, text, waiter, callback = args[from], args[from + 1], args[from + 3], args[from + 4]
    local owner = levels ~= codes.NO_FLOWS and args[FIRST_FLOW + one.of] or callers.letters(one.mark)
    results.keep(kept, id, results.with_attempts(head, one.tried), text, args[from + 2] == '1', waiter ~= '', owner)
    if waiter ~= '' then redis.pcall('PUBLISH', waiter, bucket .. ' ' .. id) end
    if callback ~= '' then callbacks.note(noted, id, one.epoch, callback, head, text) end
  end
  callbacks.write(noted)
end
if box then outbox.write(box) end
if said then
  redis.call('HSET', said_key, 'down', downstream.write(said))
elseif before then
  redis.call('HDEL', said_key, 'down')
end
if sooner and said_key ~= pace then redis.pcall('PUBLISH', channel, 'pool:' .. string.match(said_key, '{(.-)}')) end
if #spent > 0 and charges.settle(charges_key, conf, offset, of_claim, spent, levels, FIRST_FLOW, of_pool, now, channel) then wake = true end
if #uses > 0 then use.count(uses, levels, FIRST_FLOW, of_pool) end
if of_responses then responses.write(responses_key, of_responses) end
local gone_flows, idle_later, states = {}, {}, {}
for _, part in ipairs(touched) do
  local f, returned, more = loaded[part.n], part.returned, part.more
  if part.retries then in_chunks('ZADD', KEYS[places_of(part) + flow.PLACES], part.retries) end
  for r = returned and #returned or 0, 1, -1 do
    redis.call('LPUSH', KEYS[places_of(part) + returned[r].list], returned[r].id)
    if f then flow.fill(f.state, flow.LETTERS[returned[r].list]) end
  end
  if part.is_light then
    if part.group then flow.count(part.group, -part.usual, 0, -part.usual) end
  elseif f then
    if part.disabled then own_settings.disable(flow_settings, disabled, f.name, now, part.disabled) end
    flow.count(f, -part.usual - more.plain_gone, -more.scheduled_gone, -part.usual - more.ended, -(part.followers or 0))
    if part.earliest then flow.fill(f.state, 'd') end
    if flow.is_idle(f.state, f.settings, now + turn_queue.offset) then
      gone_flows[#gone_flows + 1] = f.name
    else
      states[#states + 1], states[#states + 2] = f.name, flow.write(f.state)
      if f.state.down then idle.note(idle_later, 'f', f) end
    end
    -- A flow that is not in the turn queue may have been held back for lack of the place that is now free.
    local from, k = (part.were_empty or f.sooner or part.refunded) and now or part.earliest, places_of(part)
    if from or f.was_held or (not part.is_queued and f.state.filled ~= '.'
      and redis.call('EXISTS', KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5]) > 0) then
      flow.recall(turn_queue, f, KEYS, k, now, from)
    end
  end
end
in_chunks('HDEL', flows, gone_flows)
in_chunks('ZADD', idle_key, idle_later)
in_chunks('HSET', flows, states)
if light then
  in_chunks('HDEL', flows, light.gone)
  in_chunks('HSET', flows, light.states)
end
if groups then
  in_chunks('HDEL', groups.key, light_groups.gone)
  in_chunks('HSET', groups.key, light_groups.states)
  group.close(groups, now, turn_queue)
end
if unscheduled > 0 then flow.unschedule(count, unscheduled) end
dedupe.write(memory)

if member ~= '' then pool.note(member, KEYS, batch.in_flight(leases, followers_key), now, channel) end
if wake or (turn_queue and turn_queue.sooner) then redis.pcall('PUBLISH', channel, bucket) end
return reply
