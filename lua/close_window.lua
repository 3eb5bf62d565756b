-- close_window.lua: reports that a drain window has closed, as the event window.closed, and begins the tally of the next window. The caller
-- computes the windows from the plan. If the plan or the tally has changed meanwhile, nothing happens: so each window is reported
-- once, whichever dispatchers call it. A window that is no longer in the plan closes now if it is open. It closes without a report if it is
-- still to come. The report waits up to GRACE for jobs in flight. May be sent twice.
--
-- KEYS[1]  …:settings    hash  plan, events, what holds a bucket back
-- KEYS[2]  …:pace    hash  window (see timetable.lua), last, offset, down
-- KEYS[3]  …:count   hash  window: see window_tally.lua; jobs enqueued with a delay; held, open, half_open: see sweep.lua
-- KEYS[4]  …:body    hash  id -> body: how many jobs there are
-- KEYS[5]  …:dead    zset  id -> time of death
-- KEYS[6]  …:leases  zset  id -> deadline, microseconds
-- KEYS[7]  …:due:    zset  flow -> its turn in the turn queue; where flows are in groups …:due_groups, group -> its turn
-- KEYS[8]  …:departed  list  times of departures, for the quotas
-- KEYS[9]  …:charges  hash  charges to budgets (see charges.lua)
-- KEYS[10] …:outbox  zset  events -> when to move them on (see outbox.lua)
-- KEYS[11] …:outbox_texts  hash  their texts
-- KEYS[12...]  the five places of the flow "": …:q:<priority>:<flow>, four lists, and …:later:<flow>, a zset; in a pool then the pool's
--          seven (see pool.lua)
-- ARGV[1]  plan: the source of the windows
-- ARGV[2]  levels: 1 if the bucket has flows, 2 if they are in groups, 0 if it has only the flow ""
-- ARGV[3]  member: the bucket's name if it is in a pool, else ''
-- ARGV[4]  opened: the opening of the window in the tally, microseconds; 0 there is none
-- ARGV[5]  ends: its end in the plan, 0 if it is not in the plan
-- ARGV[6]  next_opened: the opening of the next window, 0: there is none, or no hook wants the event
-- ARGV[7]  next_ends: its end
-- Returns  1 the tally has changed, 0 it has not
-- Stores   the tally of one window; the report until it is moved on
-- Needs    Redis 7.0

--#include lib/allowance.lua
--#include lib/charges.lua
--#include lib/codes.lua
--#include lib/downstream.lua
--#include lib/flow.lua
--#include lib/outbox.lua
--#include lib/pacer.lua
--#include lib/pool.lua
--#include lib/server_time.lua
--#include lib/text.lua
--#include lib/window_tally.lua

local conf, pace, count, body, dead, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local due, departed, charges_key, outbox_key, outbox_texts = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local plan, levels, member = ARGV[1], ARGV[2], ARGV[3]
local opened, ends, next_opened, next_ends = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local PLACES = 11 -- number of keys before the keys of the flow ""
local GRACE = 60000000 -- microseconds that jobs in flight have to end
local UNSEEN = 60000000 -- microseconds after the grace: a window that is reported later had no dispatcher at its end
local BUSY = 10000000 -- microseconds before the end: a bucket that sent then was held back by its rate alone

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', count, '')

local stored_plan, events, paused, quotas, rate_count, rate_per =
  unpack(redis.call('HMGET', conf, 'plan', 'events', 'paused', 'quotas', 'rate_count', 'rate_per'))
local w = window_tally.read(redis.call('HGET', count, 'window'))
if (stored_plan or '') ~= plan or (w and w.opened or 0) ~= opened then return 0 end
local now = server_time()

local function begin_next()
  if next_opened == 0 then
    redis.call('HDEL', count, 'window')
  else
    window_tally.write(count, { opened = next_opened, ends = next_ends, sent = 0, dead = 0, dropped = 0 })
  end
  return 1
end
if not w and next_opened == 0 then return 0 end
local box = w and (ends > 0 or w.opened <= now) and outbox.open(events, outbox_key, outbox_texts, count, now)
if not box then return begin_next() end

local window, last, offset, said = unpack(redis.call('HMGET', pace, 'window', 'last', 'offset', 'down'))
local emptied = string.match(window or '', '^(%d+) 1 ') == text(w.opened)
local closed = (ends == 0 or emptied) and math.min(now, w.ends) or ends
local in_flight = redis.call('ZCARD', leases)
if closed > now then
  if ends == w.ends then return 0 end
  w.ends = ends
  window_tally.write(count, w)
  return 1
end
if in_flight > 0 and now < closed + GRACE and (next_opened == 0 or now < next_opened) then
  if closed >= w.ends then return 0 end
  w.ends = closed -- otherwise the grace of a window that closes now would restart with each call
  window_tally.write(count, w)
  return 1
end

-- The jobs left, without delayed jobs that are due later.
local later, delayed = KEYS[PLACES + flow.PLACES], math.max(tonumber(redis.call('HGET', count, 'scheduled') or 0), 0)
if levels == codes.NO_FLOWS then delayed = math.min(delayed, redis.call('ZCOUNT', later, '(' .. text(closed), '+inf')) end
local left = math.max(redis.call('HLEN', body) - redis.call('ZCARD', dead) - delayed, 0)

-- Why jobs are left: every present cause, by its word in the report (see hooks.go of the dispatcher).
local clock, causes = now + tonumber(offset or 0), {}
local function because(cause, holds)
  if holds and left > 0 then causes[#causes + 1] = cause end
end
local function backs_off(of_scope, at)
  local down = of_scope and downstream.read(of_scope)
  return down and (down.breaker ~= downstream.CLOSED or down.till > at) and down
end
local function used_up(key, windows, at, ahead)
  for frees in string.gmatch(allowance.text(key, windows, at, ahead, at + ahead + pacer.MAX_HORIZON), '(%d+);') do
    if tonumber(frees) > at then return true end
  end
  return false
end
local own = backs_off(said, clock)
because('no-dispatcher', now > closed + GRACE + UNSEEN)
because('paused', tonumber(paused or 0) > 0)
because('breaker', own and own.breaker ~= downstream.CLOSED)
because('held', own and own.breaker == downstream.CLOSED)
because('quota', used_up(departed, quotas, now, tonumber(offset or 0)))
local _, frees = allowance.budgets(charges.read_levels(conf, charges_key, now, tonumber(offset or 0)).own, now, tonumber(offset or 0))
because('budget', frees > now)
if member ~= '' then
  local k = pool.keys(KEYS)
  because('pool', backs_off(redis.call('HGET', k.pace, 'down'), now) or used_up(k.departed, redis.call('HGET', k.conf, 'quotas'), now, 0))
end
if levels ~= codes.NO_FLOWS then
  local held, open, half_open = unpack(redis.call('HMGET', count, 'held', 'open', 'half_open'))
  because('flows', tonumber(held or 0) + tonumber(open or 0) + tonumber(half_open or 0) > 0
    or left > in_flight and redis.call('ZCARD', due) == 0)
else
  because('retries', redis.call('ZCARD', later) > delayed)
end
because('in-flight', in_flight > 0)
if #causes == 0 and rate_count then
  local is_busy = tonumber(last or 0) - tonumber(offset or 0) > closed - BUSY - 2 * tonumber(rate_per) / tonumber(rate_count)
  because(is_busy and 'rate' or 'behind', true)
end

outbox.note(box, outbox.CLOSED, text(w.opened), 1, { opened = text(w.opened), closed = text(closed), sent = text(w.sent),
  dead = text(w.dead), dropped = text(w.dropped), left = text(left), delayed = text(delayed), why = table.concat(causes, ' ') })
outbox.write(box)
return begin_next()
