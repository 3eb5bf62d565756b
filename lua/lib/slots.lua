-- slots.lua: finds free slots of a pool.
--
-- The pacer of the pool (see pacer.lua) hands out slots behind the last one, each an interval after the previous
-- one, with the fraction of a microsecond carried. The time of a slot is the latest at which it may be used; a departure
-- may use it up to burst - 1 intervals earlier.
--
-- A bucket that waits for its own bounds leaves slots unused between. These are kept as gaps, and other buckets take them. A gap is
-- the times at which a slot may be, from first to limit. A slot is used once, and any two are an interval apart. So at
-- most R·W + B departures are in every window W, in whatever order slots are handed out.
--
-- A row is a run of slots that are exactly an interval apart. A departure less than an interval before the next slot of a row makes that
-- slot unusable, and wastes a part of an interval. So if other buckets have demand, the departure is postponed to that slot, as long as
-- the demand, in departures per microsecond, fills the slots before it. It is never postponed in a row whose next slot has passed. Such a
-- row begins again at each claim: if slots are further apart than buckets look ahead, the departure would be postponed for ever.
-- credit: demand that no slot has served yet. unused: free slots that passed without a departure, which lower the demand. With a burst,
-- the slots of the row serve as well, and no departure is postponed.
--
-- Stored in the pace are slot, frac, rate and last of the pacer, by the server's clock; clock, the time of the last claim;
-- free, how many slots the gaps have; and unused, in thousandths of a slot. The sorted set of gaps has
-- "first frac limit limit_frac" -> limit. The next claim removes gaps that have passed, and
-- without one they expire. All gaps are dropped, and their
-- slots lost, when the rate changes or the clock steps: so no change and no step adds a departure.

--#include lib/in_chunks.lua
--#include lib/pacer.lua
--#include lib/text.lua

local slots = {
  READ = 32, -- gaps that are read at once, and removed if they have passed
  MAX_CREDIT = 4, -- slots
  UNUSED = 4, -- slots of demand that count as filled for each free slot that passed unused
  MAX_UNUSED = 20,
  KEPT = 10000, -- milliseconds: longer than a gap is ahead
}


-- Returns the slot n slots after one, and its fraction.
local function nth(s, slot, frac, n)
  local parts = frac + n * s.part
  local micros = math.floor(parts / s.count)
  return slot + n * s.whole + micros, parts - micros * s.count
end

-- Returns how many slots of a row from `first` are before a time, and how much later the next one is, in 1/count microseconds.
local function before(s, first, frac, at)
  local parts = (at - first) * s.count - frac
  local n = math.max(math.ceil(parts / s.per), 0)
  return n, n * s.per - parts
end

-- Returns how many slots fit into a gap, with the first at a time.
local function room(s, g, first, frac)
  return math.max(math.floor(((g.limit - first) * s.count + g.limit_frac - frac) / s.per) + 1, 0)
end

local function read_gap(member)
  local first, frac, limit, limit_frac = string.match(member, '^(%d+) (%d+) (%d+) (%d+)$')
  return { member = member, first = tonumber(first), frac = tonumber(frac), limit = tonumber(limit), limit_frac = tonumber(limit_frac) }
end

-- Reads the first gaps. Marks passed ones for removal, and skips passed slots of the next one.
local function read_first(s)
  s.read = redis.call('ZRANGE', s.key, 0, slots.READ - 1)
  for _, member in ipairs(s.read) do
    local g = read_gap(member)
    local n = room(s, g, g.first, g.frac)
    if g.limit >= s.now then
      if g.first < s.now then s.late = n - room(s, g, s.now, 0) end
      return
    end
    s.passed, s.free, s.next = s.passed + 1, s.free - n, s.next + 1
    s.unused = math.min(s.unused + slots.UNUSED * n, slots.MAX_UNUSED)
  end
  if #s.read < slots.READ then s.free = 0 end
end

-- Opens the slots of a pool. k: its keys; settings: rate_count, rate_per and burst; credit: of the bucket; the others as stored.
-- The caller may set opens: before that time no bucket may depart.
function slots.open(k, now, settings, credit, slot, frac, rate, last, clock, free, unused)
  local bounds = pacer.prepare(settings)
  -- A missing pace begins empty, as in a bucket.
  local state = { slot = tonumber(slot) or now + bounds.back, frac = tonumber(frac or 0), rate = rate or bounds.rate,
    last = tonumber(last or slot) or now }
  local changed = pacer.open(state, bounds, now)
  local s = { key = k.gaps, now = now, state = state, count = bounds.rate_count, per = bounds.rate_per, whole = bounds.whole,
    part = bounds.part, step = bounds.step, back = bounds.back, burst = bounds.burst, free = tonumber(free or 0), demand = 0,
    credit = credit, unused = tonumber(unused or 0) / 1000, late = 0, passed = 0, opens = 0,
    read = {}, next = 1, removed = {}, added = {} }
  s.cleared = changed or not slot or now < tonumber(clock or 0)
  if s.cleared then s.free = 0 else read_first(s) end
  return s
end

-- Applies a step of the clock forwards, in microseconds: the skipped time adds no burst.
function slots.stepped(s, micros)
  local state = s.state
  if state.slot < s.now + s.back then state.slot, state.frac = math.min(state.slot + micros, s.now + s.back), 0 end
  if state.last < s.now then state.last = math.min(state.last + micros, s.now) end -- or it would allow one more, an interval behind it
  s.cleared, s.free, s.late, s.read = true, 0, 0, {}
end

-- Returns about how many slots are free until a time.
function slots.count_free(s, upto)
  return math.max(s.free - s.late, 0) + math.max((upto - math.max(s.state.slot, s.now)) * s.count / s.per, 0)
end

local function add_gap(s, g)
  if g.first < s.now then g.first, g.frac = s.now, 0 end
  local n = room(s, g, g.first, g.frac)
  if n == 0 then return end
  s.free = s.free + n
  s.added[#s.added + 1] = text(g.limit)
  s.added[#s.added + 1] = string.format('%d %d %d %d', g.first, g.frac, g.limit, g.limit_frac)
end

-- Puts the rest of the current gap back.
local function leave_gap(s)
  local g = s.gap
  if g and g.used then add_gap(s, g) end
  s.gap = nil
end

-- Returns the first gap behind the current one with a slot at `at` or later; nil if there is none.
local function next_gap(s, at)
  leave_gap(s)
  local n = #s.read
  while n > 0 do
    local last = read_gap(s.read[n]).limit
    while last >= at and s.next <= n do
      local g = read_gap(s.read[s.next])
      s.next = s.next + 1
      if g.limit >= at then
        s.gap = g
        return g
      end
    end
    if n < slots.READ then break end
    s.read = redis.call('ZRANGEBYSCORE', s.key, last >= at and '(' .. text(last) or text(at), '+inf', 'LIMIT', 0, slots.READ)
    n, s.next = #s.read, 1
  end
  s.read = {}
  return nil
end

-- Returns the place of a departure at `at` or later in a row of free slots, or nil. The row behind the last slot has no limit. A row that
-- begins before any bucket may depart begins then: no bucket would use the slots before.
local function place(s, g, at)
  if g.limit and at > g.limit then return nil end
  local first, first_frac = g.first, g.frac
  if first < s.opens then first, first_frac = s.opens, 0 end
  local left, short = before(s, first, first_frac, at)
  local slot, frac = nth(s, first, first_frac, left)
  if left > 0 and short > 0 then
    local wanted = math.max(s.demand * (slot - first + s.whole) - s.unused, 0)
    local filled = s.burst > 1 or not g.is_idle and s.credit + wanted > left - 0.1
    if not filled or g.limit and room(s, g, slot, frac) == 0 then left, slot, frac = left - 1, at, 0 end
  end
  if g.limit and room(s, g, slot, frac) == 0 then return nil end
  return { asked = at, gap = g, first = first, first_frac = first_frac, left = left, slot = slot, frac = frac,
    at = math.max(at, slot - s.back) }
end

-- Finds the first free slot for a departure at `at` or later, for slots.take. Returns the time of the departure. The arguments of
-- successive calls do not decrease.
function slots.find(s, at)
  at = math.ceil(at)
  if s.found and s.found.asked == at then return s.found.at end
  if not s.gap then next_gap(s, at) end
  local found
  while s.gap and not found do
    found = place(s, s.gap, at)
    if not found then next_gap(s, at) end
  end
  if not found then
    local first, frac = nth(s, s.state.slot, s.state.frac, 1)
    local is_idle = first < s.now
    if is_idle then first, frac = s.now, 0 end
    found = place(s, { first = first, frac = frac, is_idle = is_idle }, at)
    -- After the burst was lowered (see pacer.lua).
    if found.left == 0 then found.at = math.max(at, math.min(found.at, s.state.last + s.step)) end
  end
  s.found = found
  return found.at
end

-- Takes the slot that slots.find found last.
function slots.take(s)
  local f = s.found
  local g = f.gap
  if g.member and not g.used then
    s.removed[#s.removed + 1] = g.member
    s.free, g.used = s.free - room(s, g, g.first, g.frac), true
  end
  if f.left > 0 then
    local limit, limit_frac = nth(s, f.slot, f.frac, -1)
    add_gap(s, { first = f.first, frac = f.first_frac, limit = limit, limit_frac = limit_frac })
  end
  local wanted = s.demand * (f.slot - f.first + s.whole)
  local filled = math.min(wanted, s.unused)
  s.credit = math.min(math.max(s.credit + wanted - filled - f.left, 0), slots.MAX_CREDIT)
  s.unused = s.unused - filled
  if g.limit then
    g.first, g.frac = nth(s, f.slot, f.frac, 1)
  else
    s.state.slot, s.state.frac = f.slot, f.frac
  end
  s.state.last, s.found = math.max(s.state.last, f.at), nil
end

-- Stores the gaps. Returns the fields of the pace and their values.
function slots.write(s)
  leave_gap(s)
  if s.cleared then
    redis.call('DEL', s.key)
  elseif s.passed > 0 then
    redis.call('ZREMRANGEBYRANK', s.key, 0, s.passed - 1)
  end
  in_chunks('ZREM', s.key, s.removed)
  in_chunks('ZADD', s.key, s.added)
  if #s.added > 0 then redis.call('PEXPIRE', s.key, slots.KEPT) end
  local state = s.state
  return 'slot', text(state.slot), 'frac', text(state.frac), 'rate', state.rate, 'last', text(state.last), 'clock', text(s.now),
    'free', text(math.max(s.free, 0)), 'unused', string.format('%.0f', s.unused * 1000)
end

return slots
