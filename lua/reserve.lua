-- reserve.lua: the first step of a claim in a bucket with flows: returns the flows whose turn
-- it is, so that the caller can give their places to claim.lua. It moves them
-- a second ahead in the turn queue, so that dispatchers do not
-- collide; claim puts them back where they belong. A dispatcher that crashes in between
-- delays them by that second. Sent twice, it returns other flows, or none. A dispatcher that finds
-- nothing to reserve becomes a standby (see standby.lua).
--
-- After a change of the settings of flows, it also returns flows with a later turn, some at a time, as if it
-- were their turn now: claim.lua computes their turns, and puts them there. The field recheck of conf has the range of
-- turns that are still to check. claim.lua puts no flow at exactly the first turn of that range, but a microsecond
-- behind it: so all flows with the same turn are checked. Flows with a turn within a second are skipped: they may be reserved.
--
-- KEYS[1]  …:settings    hash  settings of the bucket
-- KEYS[2]  …:pace    hash  slot, frac, rate, last, since: of the bucket's pacer (see claim.lua); clock, offset, steps: of the engine's
--          clock (see pacer.lua); standbys: see standby.lua; window, drain: see timetable.lua
-- KEYS[3]  …:due:    zset  flow -> its turn in the turn queue; where flows are in groups …:due_groups, group -> its turn,
--          and what follows of flows is then of groups (see reserve_flows.lua)
-- KEYS[4]  …:leases  zset  id -> deadline, microseconds
-- KEYS[5]  …:followers  zset  batch members in flight, without the first of each batch (see batch.lua)
-- KEYS[6]  …:body    hash  id -> body: how many jobs there are, where the timetable asks for that
-- KEYS[7]  …:dead    zset  id -> time of death: the same
-- KEYS[8]  …:count   hash  jobs enqueued with a delay: the same
-- KEYS[9...]  in a pool the pool's seven (see pool.lua)
-- ARGV[1]  want: flows at most, 1 to 500
-- ARGV[2]  horizon: microseconds to look ahead, up to 600000
-- ARGV[3]  member: the bucket's name if it is in a pool, else ''
-- ARGV[4]  dispatcher: its id, no spaces
-- ARGV[5]  stepped: microseconds by which the dispatcher saw the clock of Redis step forwards, 0 none
-- ARGV[6]  steps: of the engine's clock, as claim.lua returned them before the clock of Redis stepped
-- ARGV[7]  expected: the latest time of the clock of Redis that the dispatcher expects, 0 unknown (see bucket_pacer.ask_again)
-- Returns  {1} the bucket is not configured; else {0, now, next, slots, looked_at_again, steps of the engine's clock, and for each
--          flow: its name, its turn in the turn queue}; slots: the number for these flows, at most as many as
--          it wants, -1 while the timetable has the bucket closed; looked_at_again: how many of the last flows are returned because
--          settings have changed; next: when there is something to reserve, if nothing is now; 0 not before a wake-up (no flow has anything
--          to send, or the bucket is paused, or closed until an operator drains it), -1 when max_in_flight is reached, its own or the
--          pool's, -2 see bucket_pacer.ASK_LATER
-- Stores   clock and offset, and a missing pace, for as long as the bucket exists; in a pool, whether the
--          bucket has more to send than the pool allows
-- Needs    Redis 7.0

--#include lib/bucket_pacer.lua
--#include lib/fair_queue.lua
--#include lib/pacer.lua
--#include lib/standby.lua
--#include lib/text.lua
--#include lib/timetable.lua

local conf, pace, due, leases, followers, body, dead, count = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local want, horizon, member, dispatcher = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local stepped, known_steps, expected = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local MOST, LEAST = 64, 32 -- maximum of flows; minimum of flows to check again, if there are any

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', leases, '')

local b = bucket_pacer.open(conf, pace, stepped, known_steps)
if not b then return { 1 } end
local now, offset, clock, times, recheck, paused = b.now, b.offset, b.clock, b.times, b.recheck, b.base.paused > 0
local reply, NEXT, SLOTS, RECHECKED = { 0, now, 0, 0, 0, b.steps }, 3, 4, 5
local ask_again = bucket_pacer.ask_again(b, expected)
if ask_again then
  reply[NEXT] = ask_again
  return reply
end

-- Also if there is nothing to reserve: jobs enqueued meanwhile have times of this clock. A missing pace begins
-- now, even while the bucket is closed. If it began at the opening, the first slot of a window would be an interval later, and a window
-- shorter than an interval would have none.
if b.is_new then bucket_pacer.write(b) else bucket_pacer.write_clock(b) end
if b.has_gone_back then recheck = bucket_pacer.recheck(conf) end

if paused and member == '' then return reply end
local leased = redis.call('ZCARD', leases)
local in_flight, shared = leased - redis.call('ZCARD', followers), nil -- requests, see batch.lua
if member ~= '' then
  local each = b.base.rate_per / b.base.rate_count
  shared = fair_queue.open(member, KEYS, b.weight, each, now, now, math.min(horizon, pacer.MAX_HORIZON), in_flight, 0, 0)
  if not shared then return { 1 } end
end
local free = b.base.max_in_flight - in_flight
if paused or free <= 0 then
  if not paused then reply[NEXT] = -1 end
  if shared then fair_queue.close(shared, false) end
  return reply
end

-- At most as many flows as there are slots: each gets at least one.
local function unfinished(after) return timetable.unfinished(body, dead, count, nil, after) end
local is_open, opens = bucket_pacer.choose(b, { lead = 0, horizon = horizon, leased = leased }, unfinished)
if not is_open then
  reply[NEXT], reply[SLOTS] = opens, -1
  if shared then fair_queue.close(shared, false) end
  return reply
end
local own, stretch, earliest, latest = b.own, b.stretch, clock, clock + horizon
local bounds, is_empty = own.settings, false
if stretch then
  earliest, latest = stretch.from, stretch.latest
  if stretch.ahead then own.changed = false end
  is_empty = timetable.ends_empty(times) and in_flight == 0 and unfinished(now) <= 0
    and redis.call('ZCOUNT', due, '-inf', text(clock)) == 0
end
local next_slot = math.max(pacer.by_rate(own.state, bounds, 1), earliest, b.down and b.down.till or 0,
  shared and shared.down and shared.down.till + offset or 0)
local slots = math.floor((latest - next_slot) / (bounds.rate_per / bounds.rate_count)) + 1
local found = {}
reply[SLOTS] = math.max(math.min(want, free, slots), 0)
if times then reply[SLOTS] = timetable.wants(times, reply[SLOTS]) end
if shared and slots > 0 then reply[SLOTS] = fair_queue.allows(shared, reply[SLOTS]) end
if reply[SLOTS] > 0 then
  found = redis.call('ZRANGEBYSCORE', due, '-inf', text(latest), 'WITHSCORES', 'LIMIT', 0, reply[SLOTS])
end

if #found > 0 and b.standbys then standby.note(pace, b.standbys, dispatcher, true) end
local moved, named, reserved = {}, #reply, text(clock + pacer.RESERVED)
for i = 1, #found, 2 do
  reply[named + i], reply[named + i + 1] = found[i], found[i + 1] + 0 -- a number in the reply, which has no fraction
  moved[i], moved[i + 1] = reserved, found[i]
end
local rechecked = 0
if recheck then
  local from, upto = string.match(recheck, '^(%d+) ?(%d*)$')
  if upto == '' then upto = text(tonumber(redis.call('ZRANGE', due, -1, -1, 'WITHSCORES')[2] or 0)) end
  from = text(math.max(tonumber(from), clock + pacer.RESERVED + 1))
  local again = redis.call('ZRANGEBYSCORE', due, from, upto, 'WITHSCORES', 'LIMIT', 0, math.max(MOST - #found / 2, LEAST))
  rechecked = #again / 2
  reply[RECHECKED] = rechecked
  for i = 1, #again, 2 do
    reply[#reply + 1], reply[#reply + 2] = again[i], clock
    moved[#moved + 1], moved[#moved + 2] = reserved, again[i]
  end
  if rechecked > 0 then
    redis.call('HSET', conf, 'recheck', text(tonumber(again[#again])) .. ' ' .. upto)
  else
    redis.call('HDEL', conf, 'recheck')
  end
end
if #found == 0 and rechecked == 0 then
  local head = tonumber(redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2])
  if head then
    reply[NEXT] = math.floor(math.max(head, next_slot) - offset)
    standby.note(pace, b.standbys, dispatcher, false)
  end
  if shared then
    local more = head and head <= latest
    local own_next = reply[NEXT]
    if more then reply[NEXT] = fair_queue.next(shared, own_next) end
    fair_queue.close(shared, more, own_next)
  end
  if times and is_empty then
    timetable.note(times, 0, 0, true, now)
    timetable.write(times, pace)
  end
  if times and reply[NEXT] > now then
    reply[NEXT] = timetable.opens(times, reply[NEXT])
  elseif times and reply[NEXT] == 0 and timetable.ends_empty(times) and in_flight > 0 then
    reply[NEXT] = now + timetable.LOOK
  end
end

if #moved > 0 then redis.call('ZADD', due, unpack(moved)) end
if own.changed then bucket_pacer.write(b) end
return reply
