-- bucket_pacer.lua: the pacer of a bucket for claim.lua and reserve.lua, with the bucket's settings, the engine's clock, the state of
-- its downstream, its timetable and its batches.
--
--   …:pace  hash  slot, frac, rate, last, since: of the bucket's pacer; clock, offset, steps: of the engine's clock (see pacer.lua); down:
--          see downstream.lua; window, drain: see timetable.lua; standbys: the idle dispatchers (see standby.lua); lease: the longest of a
--          dispatcher; largest: the largest body; expiring: whether a job expires (see queue.lua)

--#include lib/batch.lua
--#include lib/downstream.lua
--#include lib/pacer.lua
--#include lib/server_time.lua
--#include lib/text.lua
--#include lib/timetable.lua

local bucket_pacer = {
  STALE = 300000, -- microseconds; dispatchers of a bucket with jobs that can go ask more often
  ASK_LATER = -2, -- instead of a time: other dispatchers have to be woken first
}

-- Reads a bucket by the keys of its settings and its pace; nil if it is not configured. stepped and known_steps: see pacer.clock. Returns
-- also the values of further fields of the settings, whose names follow. In the bucket, base has its configured rate and bounds
-- (see pacer.prepare), and own is its pacer. A missing pace starts empty: the first slot is an interval away.
function bucket_pacer.open(conf, pace, stepped, known_steps, ...)
  local settings = redis.call('HMGET', conf, 'rate_count', 'rate_per', 'burst', 'max_in_flight', 'paused', 'weight', 'recheck', 'timetable',
    'batch', ...)
  local rate_count, rate_per, burst, max_in_flight, paused, weight, recheck, timetable_text, batch_text = unpack(settings, 1, 9)
  if not rate_count then return nil end
  local slot, frac, rate, last, since, last_clock, last_offset, last_steps, standbys, said, window, drain, lease, largest, expiring =
    unpack(redis.call('HMGET', pace, 'slot', 'frac', 'rate', 'last', 'since', 'clock', 'offset', 'steps', 'standbys', 'down', 'window',
      'drain', 'lease', 'largest', 'expiring'))
  local now = server_time()
  local offset, steps = pacer.clock(now, last_clock, last_offset, last_steps, stepped, known_steps)
  local clock, down, times = now + offset, said and downstream.read(said), nil
  local base = pacer.prepare({ rate_count = tonumber(rate_count), rate_per = tonumber(rate_per), burst = tonumber(burst),
    max_in_flight = tonumber(max_in_flight), paused = tonumber(paused or 0) })
  local bounds = down and downstream.adapted(down, base, pacer.prepare) or base
  if (timetable_text or '') ~= '' or drain then times = timetable.open(conf, timetable_text, window, drain) end
  local state = { slot = tonumber(slot) or clock + bounds.back, frac = tonumber(frac or 0), rate = rate or bounds.rate,
    last = tonumber(last or slot) or clock, in_flight = 0, followers = 0 }
  local b = { pace = pace, now = now, clock = clock, offset = offset, steps = steps, is_new = not slot,
    is_stale = last_clock and clock - last_clock > bucket_pacer.STALE,
    has_stepped = stepped > 0 or steps ~= tonumber(last_steps or 0), has_gone_back = offset < tonumber(last_offset or 0),
    since = slot and math.min(tonumber(since or 0), clock) or clock, lease = tonumber(lease or 0), largest = tonumber(largest),
    expiring = expiring, standbys = standbys, weight = tonumber(weight or 1), recheck = recheck, base = base, down = down, times = times,
    rules = (batch_text or '') ~= '' and batch.rules(batch_text) or nil,
    own = { settings = bounds, state = state, down = down, changed = not slot } }
  return b, unpack(settings, 10, 9 + select('#', ...))
end

-- Prepares the pacer for the next slot. Returns false if the bucket is closed beyond the horizon, and when to ask again; see
-- timetable.choose. For a stretch of a timetable, sets b.stretch to its settings. ask: lead, horizon and leased;
-- unfinished: a function (see timetable.unfinished).
function bucket_pacer.choose(b, ask, unfinished)
  local own, times = b.own, b.times
  if not times then
    own.changed = pacer.open(own.state, own.settings, b.clock) or own.changed
    return true
  end
  ask.clock, ask.offset, ask.unfinished, ask.together = b.clock, b.offset, unfinished, b.rules and timetable.together(times, b.rules) or 1
  local open, opens = timetable.choose(times, b.base, b.down, own.state, ask)
  if not open then return false, opens end
  own.settings, own.state, own.changed, b.stretch = open.settings, open.state, own.changed or open.changed, open
  return true
end

-- Writes the engine's clock alone.
function bucket_pacer.write_clock(b)
  redis.call('HSET', b.pace, 'clock', text(b.clock), 'offset', text(b.offset), 'steps', text(b.steps))
end

-- Returns when to ask again if nothing may be decided now, else nil. expected: the dispatcher's expectation of the server's clock (see
-- pacer.is_unexpected), -1 at its first request. If then no dispatcher has asked for STALE, the clock may have stepped without
-- being detected.
function bucket_pacer.ask_again(b, expected)
  if pacer.is_unexpected(b.now, expected) then return b.now end
  return expected < 0 and b.is_stale and bucket_pacer.ASK_LATER or nil
end

-- After a step back of the clock, flows that were served under the previous clock may have turns that are too late by the step.
function bucket_pacer.recheck(conf)
  redis.call('HSET', conf, 'recheck', '0')
  return '0'
end

-- Writes the pacer, the clock and the downstream's state.
function bucket_pacer.write(b)
  local state = b.own.state
  redis.call('HSET', b.pace, 'slot', text(state.slot), 'frac', text(state.frac), 'rate', state.rate, 'last', text(state.last),
    'since', text(b.since), 'clock', text(b.clock), 'offset', text(b.offset), 'steps', text(b.steps))
  if b.down then redis.call('HSET', b.pace, 'down', downstream.write(b.down)) end
end

return bucket_pacer
