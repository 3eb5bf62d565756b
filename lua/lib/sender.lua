-- sender.lua: a flow, or a group of flows, as claim.lua hands slots to it: what its own
-- rate, quotas, bounds and weight let it send. Its text goes in front of that
-- script's, behind those of flow.lua and quota.lua.
--
-- The functions are given the run, a table: now, since (when the bucket's pace began), and latest,
-- beyond which no slot lies. A sender has name, from (when its own bounds let it depart next), at (the same,
-- or when its turn is if that is later), settings and state (see flow.lua), had_text (there was a state), changed, and quotas;
-- one with a rate also whole, part, back and rate, as claim.lua has them of the bucket.

--#include lib/flow.lua
--#include lib/quota.lua

local sender = {}

-- What is kept beside a slot of the settings that it was handed out by: "count/per", and "/burst" where that is not 1.
function sender.pace(count, per, burst)
  local text = string.format('%.0f/%.0f', count, per)
  return burst > 1 and text .. string.format('/%.0f', burst) or text
end

-- The interval in microseconds and the burst of such a text; nil if it is none.
local function read_pace(text)
  local count, per, burst = string.match(text or '', '^(%d+)/(%d+)/?(%d*)$')
  if not count then return nil end
  return tonumber(per) / tonumber(count), tonumber(burst) or 1
end

-- The last slot of other settings in those of now: as many departures may go at once as before, and one if none
-- might. So no change of a rate or of a burst makes departures, however often it is made and taken back.
local function converted(run, at, was, pace)
  local interval, burst = read_pace(was)
  if not interval then return nil end
  local new_interval, new_burst = read_pace(pace)
  local steady = at - math.floor((burst - 1) * interval) -- the last slot, as if there were no burst
  if steady < run.now then
    local at_once = math.floor(math.min((run.now - steady) / interval, burst))
    steady = math.max(steady, run.now - math.min(math.max(at_once, 1), new_burst) * new_interval)
  end
  return math.ceil(steady + math.floor((new_burst - 1) * new_interval))
end

-- The last slot of a bucket, a flow or a group as far as it can be true; was: the settings that it was handed
-- out by; pace: those of now; ahead: all but one of the burst, in microseconds. Also stored if nothing
-- is taken, or it would stay as far ahead of now for ever.
function sender.cut(run, at, fraction, was, pace, ahead)
  local first_at, other = at, was ~= pace
  if other then
    local moved = converted(run, at, was, pace)
    if moved then
      at, fraction = moved, 0
    elseif at > run.now then -- nothing is known of what was used of a burst: all of it was
      at = math.max(at, math.min(at, run.latest) + ahead)
    end
  end
  if at > run.latest + ahead then at, fraction = run.latest + ahead, 0 end
  return at, fraction, other or at ~= first_at
end

-- A sender by its settings and state; turn is what it has on the calendar, by the server's clock.
-- Of a group without a rate the last departure is kept (see group.ready), of a flow nothing.
function sender.open(run, name, turn, settings, state_text, quotas, is_group)
  local s, state = settings, flow.read(state_text)
  local f = { name = name, at = turn, settings = s, state = state, had_text = state_text, quotas = quotas, is_group = is_group }
  if s.rate_count > 0 then
    f.rate = sender.pace(s.rate_count, s.rate_per, s.burst)
    f.whole = math.floor(s.rate_per / s.rate_count)
    f.part = s.rate_per - f.whole * s.rate_count
    f.back = (s.burst - 1) * f.whole + math.floor((s.burst - 1) * f.part / s.rate_count)
    -- One that is missing has been idle, unless all is missing and begins anew.
    if state.new then
      state.slot, state.rate = math.max(run.now - f.whole - 1, math.min(run.since + f.back, run.now + f.back)), f.rate
    end
    state.slot, state.frac, f.changed = sender.cut(run, state.slot, state.frac, state.rate, f.rate, f.back)
    state.rate = f.rate
    if state.frac >= s.rate_count then state.frac = 0 end
  else
    state.slot, state.frac, state.rate = is_group and math.min(state.slot, run.latest) or 0, 0, '-'
  end
  return f
end

-- The next instant at which its own rate and quotas let it depart.
function sender.ready(run, f)
  local ready = quota.ready(f.quotas, run.latest)
  if f.rate then ready = math.max(ready, f.state.slot + f.whole - f.back) end
  return ready
end

-- It does not depart before that time.
function sender.waits(f, from) f.from, f.at = from, math.max(f.at, from) end

-- A job of it departs at that time. It goes on with its turn, or waits for the next one.
function sender.departs(run, f, at)
  local state, s = f.state, f.settings
  quota.add(f.quotas, at)
  state.in_flight, state.new, f.changed = state.in_flight + 1, false, true
  if f.rate then
    local tat, tat_frac = state.slot + f.whole, state.frac + f.part
    if tat_frac >= s.rate_count then tat, tat_frac = tat + 1, tat_frac - s.rate_count end
    if tat < at then state.slot, state.frac = at, 0 else state.slot, state.frac = tat, tat_frac end
  elseif f.is_group then
    state.slot = at
  end
  state.turn = state.turn + 1
  if state.turn >= s.weight then state.turn, f.at = 0, at end
  sender.waits(f, sender.ready(run, f))
end

-- A job of it is gone without a slot.
function sender.drops(f, delayed)
  f.changed = true
  if delayed then f.state.scheduled = f.state.scheduled - 1 else f.state.unfinished = f.state.unfinished - 1 end
end

return sender
