-- claim.lua: leases jobs to a dispatcher, each with its slot. It opens the pacers, hands out jobs turn by turn, and writes.
--
-- A job obeys the pacers of its flow, its group and its bucket (see pacer.lua), and in a pool the pool's slots (see fair_queue.lua).
-- Its slot is the latest that they and their budgets (see charges.lua) allow. In a bucket with flows, reserve.lua has chosen the flows
-- whose turn it is: the flow that waited longest goes first, of the group that waited longest (see drr.lua). Each flow returns to the turn
-- queue at its next turn. A flow without jobs, at its max_in_flight or paused is removed from it. In a bucket with batches, all members
-- of a batch depart on the slot of the first (see batch.lua): then everything below counts requests, except for the jobs of the reply.
--
-- Repeated with the same claim id, it returns the same jobs, so a lost reply loses no job. A job is on its last chance if one more crash
-- makes it poison. A process holds at most one such job, over all its buckets: the sweeper charges a crash to all jobs of a dead process.
-- Such a job may still become poison through another job with fewer crashes that kills their process. A job that may not go yet leaves its
-- slot to the next one. A job that is too late (see expiry.lua) becomes a dead letter. With few workers left, the dispatcher wakes another
-- one (see standby.lua).
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:settings    hash  settings of the bucket
-- KEYS[4]  …:pace    hash  slot, frac, rate, last: of the bucket's pacer; lease: the longest of a dispatcher; since: when the
--          pace began; clock, offset, steps: of the engine's clock (see pacer.lua); largest, expiring: see queue.lua;
--          standbys: see standby.lua; down: see downstream.lua; window, drain: see timetable.lua
-- KEYS[5]  …:leases  zset  id -> deadline, microseconds
-- KEYS[6]  …:claims  hash  dispatcher -> its last claim that got jobs (see claim_reply.lua)
-- KEYS[7]  …:dead    zset  id -> time of death
-- KEYS[8]  …:count   hash  jobs enqueued with a delay, bytes of dead letters, number of the last batch
-- KEYS[9]  …:departed  list  times of the last departures, for the quotas
-- KEYS[10] …:flows   hash  flow -> its state
-- KEYS[11] …:flow_settings  hash  flow -> its own settings
-- KEYS[12] …:due:    zset  flow -> its turn in the turn queue; where flows are in groups …:due_groups, group -> its turn
-- KEYS[13] …:idle   zset  flow or group -> when it can be forgotten (see idle.lua)
-- KEYS[14] …:attempts  hash  id -> its first attempt and the last ones (see outcomes.lua)
-- KEYS[15] …:outbox  zset  events -> when to move them on (see outbox.lua)
-- KEYS[16] …:outbox_texts  hash  their texts
-- KEYS[17] …:callbacks  zset  callbacks -> when to hand them out (see callbacks.lua)
-- KEYS[18] …:callback_texts  hash  their texts
-- KEYS[19] …:followers  zset  batch members in flight, without the first of each batch -> number of their batch (see batch.lua)
-- KEYS[20] …:callback_counts  hash  number of callbacks of each flow and group (see callbacks.lua)
-- KEYS[21] …:charges  hash  charges to budgets (see charges.lua)
-- KEYS[22...]  for each flow: …:q:<priority>:<flow> of the four priorities, …:later:<flow>, …:departed:<flow>; where
--          flows are in groups then …:groups, …:group_settings, and for each group: …:due:<group>, …:departed_group:<group>;
--          in a pool then the pool's seven (see pool.lua)
-- ARGV[1]  dispatcher: its id, no spaces
-- ARGV[2]  claim: its id, no spaces
-- ARGV[3]  want: requests at most, 0 to 1000; with 0 the script only puts the turns back
-- ARGV[4]  horizon: microseconds to look ahead, up to 200000
-- ARGV[5]  lease: microseconds, counted from the last slot of the reply
-- ARGV[6]  lead: microseconds until the reply is expected to arrive; no slot is earlier
-- ARGV[7]  last_chance: crashes that put a job on its last chance
-- ARGV[8]  may_go: 1 if the reply may have one such job, 0 if the process holds one
-- ARGV[9]  expired_last: last response of a job that has expired (JSON)
-- ARGV[10] levels: 1 if the bucket has flows, 2 if these are in groups, 0 if there is only the flow ""
-- ARGV[11] member: the bucket's name if it is in a pool, else ''
-- ARGV[12] channel: to wake dispatchers on
-- ARGV[13] bucket: the message to publish, with the id of a dispatcher
-- ARGV[14] most_bytes: of bodies and of settings of flows in the reply, 1 to 1048576; one job is handed out however large it is
-- ARGV[15] stepped: microseconds by which the dispatcher saw the clock of Redis step forwards, 0 none
-- ARGV[16] steps: of the engine's clock, as a reply returned them before the clock of Redis stepped
-- ARGV[17] expected: the latest time of the clock of Redis that the dispatcher expects (see bucket_pacer.ask_again), 0 unknown
-- ARGV[18] flow_count: number of flows
-- ARGV[19...]  with flows, for each: its name, its turn as reserve.lua returned it; then for each group the same
-- Returns  {1} the bucket is not configured; else {0, now, next, in flight, expired, lone, rate_count, rate_per, free_slot,
--          steps of the engine's clock, opening, closes, number of jobs, for each job: id, slot, body, and with flows the flow and the
--          lines of its settings that are not for scripts; then for each job that was claimed before: its number, from 1, epoch, delivery
--          number, attempts so far (of the others 1, 1, 0); then for each job that became a dead letter: 0 it has
--          expired, -1 max_age has passed, -4 it reserves more than a budget, id, flow, attempts; for each batch: -2, its first job, its
--          size, its number; for each job that charges budgets: -3, its number, two times, its reservation (see charges.lua);
--          for each job in doubt: -5, its number}
--          next: when to ask for the next slot; 0 not before a wake-up, -1 max_in_flight is reached, its own or the pool's, -2 see
--          bucket_pacer.ASK_LATER; lone: the number of the job on its last chance, from 1, 0 none; expired: number of new dead letters;
--          free_slot: the first slot after the jobs, 0 unknown; opening: when the stretch of the slots begins, 0 it has; closes: the end
--          of the window, when permits are void, 0 they are not. All times are of the server's clock
-- Stores   lease and meta until the job is settled, callbacks of dead letters until they are moved on, the reply until the next claim
-- Needs    Redis 7.0

--#include lib/batch.lua
--#include lib/bucket_pacer.lua
--#include lib/callbacks.lua
--#include lib/charges.lua
--#include lib/claim_reply.lua
--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/drr.lua
--#include lib/expiry.lua
--#include lib/fair_queue.lua
--#include lib/flow.lua
--#include lib/next_turns.lua
--#include lib/outbox.lua
--#include lib/pacer.lua
--#include lib/plain_turns.lua
--#include lib/pool.lua
--#include lib/queue.lua
--#include lib/quota.lua
--#include lib/reserved_flows.lua
--#include lib/standby.lua
--#include lib/text.lua
--#include lib/timetable.lua

local body, meta, conf, pace, leases, claims = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local dead, count, departed_key, flows, flow_settings, due, idle_key, tried = unpack(KEYS, 7, 14)
local outbox_key, outbox_texts, callbacks_key, callback_texts, followers_key, callback_counts, charges_key = unpack(KEYS, 15, 21)
local dispatcher, claim, want, horizon, lease = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local lead, last_chance, may_go, expired_last, levels, member, channel, bucket =
  tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8] == '1', unpack(ARGV, 9, 13)
local has_flows, in_groups = levels ~= codes.NO_FLOWS, levels == codes.GROUPS
local most_bytes, stepped, known_steps, expected = tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[16]), tonumber(ARGV[17])
local FIRST_PLACE, FIRST_FLOW, flow_count, WORKERS = 21, 18, tonumber(ARGV[18]), want
local FIRST_GROUP, FIRST_GROUP_KEY = FIRST_FLOW + 2 * flow_count, FIRST_PLACE + flow_count * (flow.PLACES + 1)
local CHUNK, MAX_PARKED = 500, 500
local PARKED_BEHIND = 100000 -- microseconds beyond the horizon; with less the next claim would read the job again

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', leases, '')

local b, quotas, aging, flow_rate_count, flow_rate_per, flow_burst, flow_capacity, flow_max_in_flight, flow_must_exist, flow_quotas,
  leftovers, max_age, events, budgets, flow_budgets, group_budgets, own_budgets, budget_burst, reserves =
  bucket_pacer.open(conf, pace, stepped, known_steps, 'quotas', 'aging', 'flow_rate_count', 'flow_rate_per', 'flow_burst', 'flow_capacity',
    'flow_max_in_flight', 'flow_must_exist', 'flow_quotas', 'leftovers', 'max_age', 'events', 'budgets', 'flow_budgets', 'group_budgets',
    'own_budgets', 'budget_burst', 'default_reservation')
if not b then return { 1 } end
local own, bounds, now, offset, clock, times, rules, recheck = b.own, b.own.settings, b.now, b.offset, b.clock, b.times, b.rules, b.recheck
if b.down then b.down.lease = lease end
local leased = redis.call('ZCARD', leases)
local in_flight = leased - redis.call('ZCARD', followers_key) -- requests, see batch.lua
own.state.in_flight = in_flight
local answer = { 0, now, 0, in_flight, 0, 0, bounds.rate_count, bounds.rate_per, 0, b.steps, 0, 0 }
local NEXT, EXPIRED, LONE, COUNT, PER, FREE_SLOT, OPENING, CLOSES = 3, 5, 6, 7, 8, 9, 11, 12
local out = claim_reply.open(answer, claim, offset, has_flows, last_chance)

-- A repeated claim: the same reply, without the jobs that were taken back meanwhile.
local previous = redis.call('HGET', claims, dispatcher)
if previous and claim_reply.is_of(previous, claim) then
  answer[NEXT], answer[LONE] = now, claim_reply.replay(out, previous, body, meta, flow_settings, has_flows and levels)
  charges.repeat_charges(out, conf, now, member ~= '' and pool.keys(KEYS) or nil)
  if times and out.count > 0 then answer[OPENING], answer[CLOSES] = timetable.edges(times, answer[out.head + 2], now) end
  return claim_reply.reply(out)
end
local before, later, again = own.state, not has_flows and KEYS[FIRST_PLACE + flow.PLACES] or nil, bucket_pacer.ask_again(b, expected)
if again then
  if has_flows then next_turns.put_back(due, FIRST_FLOW, FIRST_GROUP, FIRST_GROUP_KEY, in_groups) end
  answer[NEXT] = again
  return claim_reply.reply(out)
end
local function unfinished(after) return timetable.unfinished(body, dead, count, later, after) end
local is_open, opens = bucket_pacer.choose(b, { lead = lead, horizon = horizon, leased = leased }, unfinished)
local stretch, is_empty = b.stretch, false
if stretch then
  bounds = stretch.settings
  answer[COUNT], answer[PER], answer[CLOSES] = bounds.rate_count, bounds.rate_per, stretch.closes
  if stretch.ahead then answer[OPENING] = times.stretch.from end
  is_empty = later and timetable.ends_empty(times) and in_flight == 0 and unfinished(now) <= 0
end
-- A step that is not stored would be detected again by each claim, and the engine's clock would stop.
if b.has_stepped then own.changed = true end

local shared, more, own_next = nil, false, 0
if member ~= '' then
  shared = fair_queue.open(member, KEYS, b.weight, bounds.rate_per / bounds.rate_count, now, now + lead, horizon, in_flight,
    lease, stepped)
  if not shared then return { 1 } end
  horizon = shared.horizon
end
if not is_open or pacer.is_held(own) then
  if has_flows then next_turns.put_back(due, FIRST_FLOW, FIRST_GROUP, FIRST_GROUP_KEY, in_groups) end
  if bounds.paused == 0 then answer[NEXT] = opens or -1 end
  if stepped > 0 or b.is_new then bucket_pacer.write(b) end -- a new pacer allows a departure when the bucket opens
  if shared then fair_queue.close(shared, false) end
  return claim_reply.reply(out)
end
want = math.min(want, bounds.max_in_flight - in_flight)
if times then want = timetable.wants(times, want, rules) end
if shared then want = fair_queue.allows(shared, want) end

-- From here on all times are in the engine's clock.
local earliest, latest, furthest = clock + lead, clock + horizon, clock + pacer.MAX_HORIZON
if stretch then earliest, latest = stretch.from, math.min(latest, stretch.latest) end
if (quotas or '') ~= '' then own.quotas = quota.open(departed_key, quota.windows(quotas), 64) end

-- Bodies may be large: read as many as there are slots, and double that each time cancelled jobs are in between.
local first_ready = pacer.ready(own, 1, furthest)
local slots = (latest + bounds.back - math.max(own.state.slot, earliest)) * bounds.rate_count / bounds.rate_per
local at_once = math.max(math.min(math.min(math.floor(slots) + 1, want) * (rules and rules.size or 1), CHUNK), 1)
if want == 0 or math.max(first_ready, earliest) > latest then at_once = 0 end
local charged_by = charges.rules(shared, budgets, flow_budgets, group_budgets, own_budgets, budget_burst, reserves)
if charged_by then at_once = math.min(at_once, charges.AT_ONCE) end

-- The flows whose turn it is, and those among them with something to send.
local reader = queue.reader(body, meta, last_chance, tonumber(aging or 0), in_groups, most_bytes, b.largest,
  b.expiring or not b.largest, leftovers)
local is_simple = not (shared or rules or charged_by or reader.expiring or reader.leftovers)
local named, ready, groups, plain = {}, {}, {}, nil
if has_flows then
  local of_all = { flow_rate_count, flow_rate_per, flow_burst, flow_capacity, flow_max_in_flight, flow_must_exist }
  named, ready, plain = reserved_flows.open(b, reader, of_all, flow_quotas, drr.read_named(flow_count, ARGV, FIRST_FLOW, FIRST_PLACE, flows,
    flow_settings), { at_once = at_once, earliest = earliest, latest = latest, lease = lease, may_be_plain = is_simple and not in_groups })
  if in_groups then groups = drr.groups(clock, b.since, conf, FIRST_GROUP, FIRST_GROUP_KEY, named) end
else
  named[1] = { at = 0, queue = queue.open(FIRST_PLACE, at_once, text(at_once)) }
  ready[1] = named[1]
end
local row = drr.order(in_groups and drr.of_groups(groups, ready) or ready)
if at_once > 0 then queue.read_heads(reader, ready) end

local box = (events or '') ~= '' and outbox.open(events, outbox_key, outbox_texts, count, now)
local noted = callbacks.open(callbacks_key, callback_texts, now, callback_counts, levels)
local over = expiry.open(out, noted, box, tried, tonumber(max_age or 0), expired_last)
local spent = charged_by and charges.open(charges_key, charged_by, now, clock, named, groups, shared, stepped, in_flight)
local parked_count, own_ready, blocked = 0, first_ready, 0
local requests, last_batch, batch_bytes = 0, nil, rules and math.min(rules.bytes, rules.size * (b.largest or queue.LARGEST))

-- Records a departure at a time in the pacers and the turns.
local function depart(f, at)
  pacer.depart(own, at, 1)
  own_ready = pacer.ready(own, 1, furthest)
  if shared then fair_queue.departs(shared, at - offset) end
  if not f.name then return end
  drr.depart(f, at, furthest)
  drr.next(row, f, pacer.is_held(f))
end

local function take(f, id, job, stored, at, alone, followers)
  if alone then may_go, answer[LONE] = false, out.count + 1 end
  requests = requests + 1
  if followers then
    last_batch = (last_batch or tonumber(redis.call('HGET', count, 'batches') or 0)) + 1
    claim_reply.add_batch(out, text(last_batch), id, at, job, stored, f.name, f.own, followers)
    if f.name then flow.count(f, 0, 0, #followers, #followers) end
  else
    claim_reply.add(out, id, at, job, stored, f.name, f.own)
  end
  if spent then charges.depart(spent, out, f, id, at) end
  depart(f, at)
end

-- Parks the job in later, behind those that were parked before it.
local function park(f, id, stored)
  queue.park(f.queue, text(latest - offset + PARKED_BEHIND + parked_count), id)
  parked_count = parked_count + 1
  if string.sub(stored, 1, 1) ~= codec.RETRYING then claim_reply.note(out, id, codec.RETRYING .. string.sub(stored, 2)) end
end

-- Takes the usual job: it heads the only list of its flow, was never claimed before, and jobs of the bucket do not expire. decide
-- handles all other jobs, and would handle this one with the same result.
local function take_simple(f, at)
  local q = f.queue
  local list = q[1]
  if not list or #q > 1 or q.due or at > latest or requests >= want or reader.bytes > batch.MAX_READ then return false end
  local job, stored = queue.head(list)
  if not job or stored then return false end
  local n, bytes = list.at, out.bytes + #job + (f.own and #f.own or 0)
  if bytes > most_bytes then return false end
  out.bytes, list.at, list.popped, requests = bytes, n + 1, list.popped + 1, requests + 1
  claim_reply.add(out, list.ids[n], at, job, false, f.name, f.own)
  depart(f, at)
  return true
end

-- Returns whether a job may be a further member of a batch at that time.
local function may_follow(id, stored, job, at)
  return not batch.has_crashed(stored) and not expiry.is_too_late(over, reader, id, stored, job, at)
end

-- Passes a job and, if it departs at that time, the further members of its batch. job is nil if it does not depart; size is its share of
-- the reply. Returns the members, nil if there are none; and until when the job waits for more, nil if not: then nothing is passed.
local function pass(f, list, id, job, size, stored, at)
  local q = f.queue
  local marks = rules and job and batch.bookmark(rules, q, job, list, at)
  queue.pass(q, list)
  if reader.leftovers then reader.handled[id] = true end
  if not (rules and job) or batch.has_crashed(stored) then return nil, nil end
  return batch.gather(rules, reader, q, id, job, marks, at, latest - offset, most_bytes - out.bytes - size, may_follow)
end

-- Decides about a job of a flow: at the head of a list, or of later if list is nil. full: no more jobs may be parked. False: the claim
-- ends.
local function decide(f, list, id, at, full)
  local job, stored, waits, alone, stays = queue.read_job(reader, list, id, may_go)
  if list and stays and full then
    answer[NEXT] = now
    return false
  end
  local why = expiry.is_too_late(over, reader, id, stored, job, at - offset)
  if spent and job and not why and charges.is_impossible(spent, f, job) then why = codes.CLAIM_OVER_BUDGET end
  local leaves = waits and not (stays or why)
  local size = leaves and #job + #(f.own or '')
  if leaves and not batch.fits(rules, out, size, batch_bytes, most_bytes) then
    answer[NEXT], more = at - offset, true
    return false
  end
  if leaves and spent then
    local may_go_at, till = charges.gate(spent, shared, row, f, id, at, latest)
    if till then answer[NEXT], blocked, more = till - offset, till - offset, true end
    if not may_go_at then return not till end
    at = may_go_at
  end
  if not list and not (waits and stays) then queue.take_off(f.queue, id) end
  local followers, till = pass(f, list, id, leaves and job or nil, size, stored, at - offset)
  if till then
    drr.waits(f, math.min(till, queue.due_next(f.queue) or till) + offset)
    drr.next(row, f, false)
  elseif leaves then
    out.bytes = out.bytes + size
    take(f, id, job, stored, at, alone, followers)
  elseif waits and stays then
    park(f, id, stored)
  elseif waits then
    expiry.note(over, f, id, job, stored, why)
  end
  return true
end

-- Returns whether the claim hands out nothing more at that time.
local function is_over(at)
  return at > latest or requests >= want or #over.ids >= expiry.MOST
    or reader.bytes > batch.MAX_READ and out.count + #over.ids > 0 or shared and fair_queue.skips(shared, at - offset)
end

-- Hands out the next job of the row's first flow, or ends its turn. Returns false if the claim ends.
local function hand_out()
  local f, turn = drr.top(row)
  local p = plain and plain_turns.top(plain, turn)
  if p then turn = plain.turns[p] end
  if not turn or plain and plain.again and turn > plain.again then return false end -- a plain flow is first then, in the next claim
  own_next = own_ready > earliest and own_ready or earliest
  if turn > own_next then own_next = turn end
  if p then
    if own_next > latest or requests >= want or not plain_turns.hand_out(plain, p, own_next, out, most_bytes) then return false end
    requests = requests + 1
    depart(plain, own_next)
    return true
  end
  if is_simple and take_simple(f, own_next) then return true end --#slow
  local q, full = f.queue, parked_count >= MAX_PARKED
  local at = shared and fair_queue.ready(shared, own_next - offset) + offset or own_next
  local due_id, due_time
  if not full and q.due then due_id, due_time = queue.peek_due(q, latest - offset) end
  if is_over(at) then
    if due_id or queue.left(q) then answer[NEXT], more = at - offset, true end
    return false
  end
  if due_id and due_time <= at - offset and not queue.peek_first(reader, q) then return decide(f, nil, due_id, at, full) end
  local list = queue.peek(reader, q)
  if list then return decide(f, list, list.ids[list.at], at, full) end
  if due_id then drr.waits(f, due_time + offset) end
  drr.next(row, f, not due_id)
  return true
end
while hand_out() do end

local turns = has_flows and next_turns.open(clock, offset, tonumber(string.match(recheck or '', '^%d+') or ''))
if turns then next_turns.decide(turns, named, furthest, plain) end
local next_slot = pacer.ready(own, 1, furthest)
local cut_short = reader.looked_at >= queue.MAX_LOOKED_AT or #over.ids >= expiry.MOST
if cut_short then
  answer[NEXT] = now
elseif not has_flows and answer[NEXT] == 0 then
  local soonest = queue.due_next(named[1].queue)
  if soonest then answer[NEXT] = math.max(soonest, next_slot - offset) end
end
answer[EXPIRED], answer[FREE_SLOT] = #over.ids, next_slot - offset

-- Everything is decided. From here on the script writes; what it still reads decides nothing about jobs.
for _, f in ipairs(named) do
  queue.write(f.queue)
  if f.quotas then quota.write(f.quotas) end
end
if plain then plain_turns.write(plain) end
claim_reply.write(out, leases, leased, followers_key, meta, claims, dispatcher, now, lease)
if last_batch then redis.call('HSET', count, 'batches', text(last_batch)) end
expiry.write(over, dead, body, meta, count, now)
if spent then charges.write(spent) end
if own.quotas then quota.write(own.quotas) end
if in_groups then next_turns.write_groups(turns, groups, KEYS[FIRST_GROUP_KEY + 1], next_slot) end
local head = turns and next_turns.write(turns, due, flows, idle_key)
if stretch and stretch.ahead and out.count == 0 then own.state = before end -- the next claim finds it again
if own.changed then bucket_pacer.write(b) end
if times then
  timetable.note(times, out.count, requests, is_empty and out.count == 0, now, rules)
  timetable.write(times, pace)
end
if box then outbox.write(box) end
if has_flows and b.has_gone_back then bucket_pacer.recheck(conf) end
if lease > b.lease then redis.call('HSET', pace, 'lease', text(lease)) end
if has_flows and answer[NEXT] ~= now then
  answer[NEXT] = head and math.max(math.floor(head - offset), next_slot - offset, blocked) or 0
  -- Some flows that are due may not have been reserved.
  more, own_next = head and head <= latest, answer[NEXT] + offset
end
if has_flows and recheck then answer[NEXT] = now end -- more flows are to be checked
if times and answer[NEXT] > now then
  answer[NEXT] = timetable.look_at(times, answer[NEXT], now)
  more = more and timetable.opens(times, own_next - offset) == own_next - offset
elseif times and answer[NEXT] == 0 and timetable.ends_empty(times) and in_flight + out.count > 0 then
  answer[NEXT] = now + timetable.LOOK
end
if answer[NEXT] > 0 then
  local list = standby.note(pace, b.standbys, dispatcher, out.count > 0 or WORKERS == 0)
  if 2 * requests >= WORKERS then standby.wake(pace, list, channel, bucket) end
end
if shared then
  more = more or cut_short
  if more and not cut_short then answer[NEXT] = fair_queue.next(shared, own_next - offset) end
  if times and answer[NEXT] > now then answer[NEXT] = timetable.look_at(times, answer[NEXT], now) end
  fair_queue.close(shared, more, own_next - offset)
end
return claim_reply.reply(out)
