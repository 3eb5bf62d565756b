-- pacer.lua: decides when the next departure may go, and counts departures. A bucket, a group and a flow are each a pacer.
--
-- The rate follows the generic cell rate algorithm (GCRA, ITU-T I.371, virtual scheduling). `slot` is the
-- theoretical arrival time of the last departure minus one interval, in whole microseconds, and `frac` carries the fraction
-- of a microsecond, in 1/rate_count. A departure moves the slot on by one interval. The next one may go `back` microseconds
-- before its own interval is over, where `back` is all but one of the burst. So departures stay within rate x window + burst.
-- The stored state does not depend on the burst: changing the burst and back adds no departures.
-- After a burst was lowered, the slot may be further ahead than the new burst allows. Then departures continue at the rate:
-- an interval after `last`, the time of the last departure. After a change of the rate, the pacer is as full as before.
--
-- All times are of the engine's clock: Redis TIME plus the offset in …:pace. It neither steps back nor jumps forwards,
-- as far as dispatchers can detect (see pacer.clock).
--
-- A pacer is a table: settings, made by pacer.prepare; state, a table with slot, frac, rate, last, turn,
-- unfinished, scheduled, in_flight and followers; quotas (see quota.lua); down, its downstream's state (see downstream.lua; here with
-- lease, how long the outcome of a job may take); changed, whether it is to be written back.
-- Functions take an amount: the number of departures in one.

--#include lib/downstream.lua
--#include lib/quota.lua

local pacer = {
  MAX_HORIZON = 200000, -- microseconds; no slot is further ahead
  RATES = 1000000000, -- microseconds for which the rates of buckets in a pool are counted
  RESERVED = 1000000, -- microseconds by which the turns of flows move ahead during a claim
}

-- Returns the offset of the engine's clock and the number of its steps, from the stored `clock`, `offset` and `steps`. If the
-- server's clock stepped back, the offset grows by the step. If a dispatcher saw it step forwards by `stepped`
-- microseconds, the offset shrinks, unless a step was recorded since the dispatcher read `known`: two dispatchers may report
-- the same step.
function pacer.clock(now, clock, offset, steps, stepped, known)
  clock, offset, steps = tonumber(clock or 0), tonumber(offset or 0), tonumber(steps or 0)
  if now + offset < clock then return clock - now, steps + 1 end -- overrides any report of a dispatcher
  if stepped > 0 and steps == known then return offset - stepped, steps + 1 end
  return offset, steps
end

-- Returns whether the server's clock is beyond the latest time that the dispatcher expects (0: unknown). It may have stepped
-- forwards, which only the next script learns: this one decides nothing by that time, and only puts turns back.
function pacer.is_unexpected(now, latest) return latest > 0 and now > latest end

-- Adds to settings (rate_count, rate_per, burst) the numbers that the arithmetic needs. Without a rate it adds nothing.
function pacer.prepare(s)
  local count, per, burst = s.rate_count, s.rate_per, s.burst
  if count > 0 then
    local whole = math.floor(per / count)
    local part = per - whole * count
    s.rate, s.whole, s.part = string.format('%d/%d', count, per), whole, part
    s.back = (burst - 1) * whole + math.floor((burst - 1) * part / count)
    s.step = part > 0 and whole + 1 or whole
  end
  return s
end

-- Adapts a state to the settings and the present time. Returns whether it changed; false without a rate.
function pacer.open(state, s, now)
  local latest, rate = now + pacer.MAX_HORIZON, s.rate
  if not rate then
    if state.last > latest then state.slot, state.last = latest, latest end
    state.frac, state.rate = 0, '-'
    return false
  end
  local changed = false
  if state.rate ~= rate then
    local count, per = string.match(state.rate, '^(%d+)/(%d+)$')
    if count then
      -- Slots handed out for later stay.
      local from, interval = math.max(now, state.last), s.rate_per / s.rate_count
      state.slot = math.ceil(from + math.max(state.slot + per / count - from, 0) * interval / (per / count) - interval)
    end
    state.frac, state.rate, changed = 0, rate, true
  end
  if state.frac >= s.rate_count then state.frac = 0 end
  -- No departure is beyond the horizon: the clock was lost, and the whole burst counts as used.
  if state.last > latest then
    state.slot, state.last, state.frac, changed = latest + s.back, latest, 0, true
  end
  return changed
end

-- Returns when `amount` departures may go next by the rate alone; 0 without a rate.
function pacer.by_rate(state, s, amount)
  if not s.rate then return 0 end
  local tat, frac = state.slot + amount * s.whole, state.frac + amount * s.part
  if frac >= s.rate_count then tat = tat + math.floor(frac / s.rate_count) end
  local by_burst, by_step = tat - s.back, state.last + amount * s.step
  return by_burst < by_step and by_burst or by_step -- math.min costs a call
end

-- Returns when `amount` departures may go next, by the rate, the quotas and the downstream.
function pacer.ready(p, amount, latest)
  local quotas, s = p.quotas, p.settings
  local at = s.rate and pacer.by_rate(p.state, s, amount) or 0
  if p.down then at = math.max(at, p.down.till) end
  if quotas then at = math.max(at, quota.ready(quotas, latest)) end
  return at
end

-- Returns whether its own bounds hold it back: until one of its leases ends, or until it is resumed.
function pacer.is_held(p)
  local s = p.settings
  return s.paused > 0 or (s.max_in_flight > 0 and p.state.in_flight - p.state.followers >= s.max_in_flight)
end

-- Records `amount` departures at a time.
function pacer.depart(p, at, amount)
  local state, s = p.state, p.settings
  state.in_flight, p.changed = state.in_flight + 1, true
  if state.new then state.new = nil end
  if s.rate then
    local tat, frac = state.slot + amount * s.whole, state.frac + amount * s.part
    if frac >= s.rate_count then
      local carry = math.floor(frac / s.rate_count)
      tat, frac = tat + carry, frac - carry * s.rate_count
    end
    if tat < at then tat, frac = at, 0 end
    state.slot, state.frac = tat, frac
    if state.last < at then state.last = at end
  elseif p.keeps_last then
    state.slot, state.last = at, at
  end
  if p.quotas then quota.add(p.quotas, at) end
  if p.down then downstream.depart(p.down, at) end
end

-- Formats slot, frac and rate.
function pacer.text(state)
  if state.last ~= state.slot and state.rate ~= '-' then
    return string.format('%d %d %s/%d', state.slot, state.frac, state.rate, state.last)
  end
  return string.format('%d %d %s', state.slot, state.frac, state.rate)
end

-- Parses the rate and the time of the last departure; without that time it is the slot.
function pacer.rate_of(text, slot)
  local rate, last = string.match(text, '^(%d+/%d+)/(%d+)$')
  if rate then return rate, tonumber(last) end
  return text, slot
end

return pacer
