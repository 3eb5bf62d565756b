-- downstream.lua: adjusts the pace to the responses of a downstream: a hold, the adaptive rate, and the circuit breaker
-- (Nygard, Release It!, 2007). The state is kept per scope: a flow, a bucket or a pool.
--
-- A hold is a time before which the scope sends nothing. The adaptive rate replaces a higher effective rate (see rates.lua): a throttled
-- response, such as a 429, lowers it, and accepted requests raise it again. The circuit breaker opens after consecutive failures. While it
-- is open, the scope sends nothing. Then the scope sends one job, the probe, and waits for its outcome or for the end of its lease.
--
-- The state of a scope is stored as a text while a hold, an adaptive rate or a failure is recorded:
--   "till rate_count rate_per breaker failures cut since accepted grown opened first open_for changed_at reason", with commas
--   till      the scope sends nothing before this time
--   rate_count, rate_per  the adaptive rate; both 0: none
--   breaker   see downstream.CLOSED
--   failures  in a row
--   cut       when the rate was last cut
--   since, accepted  number of requests accepted since that time
--   grown     when the rate was last raised
--   opened    when the breaker last opened: outcomes of jobs that were claimed earlier do not close it
--   first     when it first opened since it was last closed
--   open_for  how long it stays open, microseconds
--   changed_at  when a response last changed the text
--   reason    of that response, one word
-- In a flow, it precedes the flow's own text (see flow.lua). In a bucket or a pool, it is the field `down` of the pace.
-- Times are of the engine's clock; in a pool, of the server's clock.

--#include lib/codes.lua

local downstream = {
  CLOSED = 0, OPEN = 1, HALF_OPEN = 2,
  CUT = 0.85, -- of the accepted rate; half of the rate if the accepted rate is unknown
  EASED = 0.95, -- of the rate, if the response has a short hold; or the accepted rate if lower
  SHORT = 2000000, -- microseconds: the longest short hold
  STEADY = 8, -- after a short hold the rate is not raised for this many times its length
  CLIMB = 60000000, -- microseconds until an accepting downstream returns to the whole configured rate
  LEAST = 500000, -- microseconds that a count of accepted requests must cover
  PACED = 1000000, -- microseconds that one accepted request counts for at most; or two intervals if longer
  KEPT = 86400000000, -- microseconds after which a scope without responses is forgotten
}

local FIELDS = { 'till', 'rate_count', 'rate_per', 'breaker', 'failures', 'cut', 'since', 'accepted', 'grown', 'opened', 'first',
  'open_for', 'changed_at' }

-- Parses a text; nil if there is none or it cannot be read.
function downstream.read(text)
  if not text then return nil end
  local numbers, reason = string.match(text, '^([%d,]+),([^,]*)$')
  if not numbers then return nil end
  local down, i = { reason = reason }, 0
  for n in string.gmatch(numbers, '%d+') do
    i = i + 1
    if FIELDS[i] then down[FIELDS[i]] = tonumber(n) end
  end
  if i < #FIELDS then return nil end
  return down
end

-- Returns an empty state with a reason.
function downstream.new(reason)
  local down = { reason = reason }
  for _, field in ipairs(FIELDS) do down[field] = 0 end
  return down
end

function downstream.write(down)
  local numbers = {}
  for i, field in ipairs(FIELDS) do numbers[i] = string.format('%d', math.max(down[field], 0)) end
  return table.concat(numbers, ',') .. ',' .. down.reason
end

-- Returns whether the state has no effect any more at a time of its clock.
function downstream.is_over(down, clock)
  return down.till <= clock and down.rate_count == 0 and down.breaker == downstream.CLOSED and down.failures == 0
    or down.till + downstream.KEPT <= clock and down.changed_at + downstream.KEPT <= clock
end

-- Returns when the state will have no effect, if no response arrives before.
function downstream.ends(down)
  if down.rate_count == 0 and down.breaker == downstream.CLOSED and down.failures == 0 then return down.till end
  return math.max(down.till, down.changed_at) + downstream.KEPT
end

-- Returns the settings of a scope (see pacer.prepare), with the adaptive rate if that is slower. prepare is
-- pacer.prepare.
function downstream.adapted(down, s, prepare)
  if down.rate_count == 0 then return s end
  if s.rate_count > 0 and s.rate_count * down.rate_per <= down.rate_count * s.rate_per then return s end
  local slower = {}
  for field, value in pairs(s) do slower[field] = value end
  slower.rate_count, slower.rate_per, slower.burst = down.rate_count, down.rate_per, s.rate_count > 0 and s.burst or 1
  return prepare(slower)
end

-- Records a departure of the scope. down.lease is how long its outcome may take.
function downstream.depart(down, at)
  if down.breaker ~= downstream.CLOSED then down.breaker, down.till = downstream.HALF_OPEN, at + down.lease end
end

-- Parses the rules for responses: "scope max_hold floor failures open_for max_open disable_after", times in microseconds, the floor in
-- per cent. scope: f flow, b bucket, p pool, n none.
function downstream.rules(text)
  local scope, max_hold, floor, failures, open_for, max_open, disable_after =
    string.match(text or '', '^(%a) (%d+) (%d+) (%d+) (%d+) (%d+) ?(%d*)')
  if not scope then return { scope = 'n' } end
  return { scope = scope, max_hold = tonumber(max_hold), floor = tonumber(floor), failures = tonumber(failures),
    open_for = tonumber(open_for), max_open = tonumber(max_open), disable_after = tonumber(disable_after) or 0 }
end

-- Returns a collection of responses of one scope, for downstream.note: the number of accepted requests, and when the last was claimed.
-- Claim times are of the server's clock.
function downstream.new_signals(accepted, accepted_at)
  return { accepted = accepted or 0, throttled = 0, failed = 0, accepted_at = accepted_at or 0, throttled_at = 0, failed_at = 0,
    unsent_at = 0, wait = 0 }
end

-- Adds the hold that an accepted response asks for, in microseconds; signals may be nil.
function downstream.rest(signals, wait, reason)
  signals = signals or downstream.new_signals()
  signals.wait, signals.reason = math.max(signals.wait, wait), reason
  return signals
end

-- Adds two collections of responses; the first may be nil.
function downstream.add(signals, more)
  if not signals then return more end
  for _, field in ipairs({ 'accepted', 'throttled', 'failed' }) do signals[field] = signals[field] + more[field] end
  for _, field in ipairs({ 'accepted_at', 'throttled_at', 'failed_at', 'unsent_at', 'wait' }) do
    signals[field] = math.max(signals[field], more[field])
  end
  signals.reason = more.reason or signals.reason
  return signals
end

local THROTTLED, FAILED = codes.SIGNAL_THROTTLED, codes.SIGNAL_FAILED

-- Adds a response that did not accept its job. claimed_at: when the job was claimed; signal: see shaper.Signal; wait: the hold that
-- the downstream asks for, 0 none; reason: one word.
function downstream.note(signals, signal, claimed_at, wait, reason)
  if signal == THROTTLED then
    signals.throttled, signals.throttled_at, signals.reason = signals.throttled + 1, math.max(signals.throttled_at, claimed_at), reason
  elseif signal == FAILED then
    signals.failed, signals.failed_at, signals.reason = signals.failed + 1, math.max(signals.failed_at, claimed_at), reason
  else
    signals.unsent_at = math.max(signals.unsent_at, claimed_at)
    if wait > 0 then signals.reason = signals.reason or reason end
  end
  signals.wait = math.max(signals.wait, wait)
end

-- Returns whether the breaker has just reopened and has been open for disable_after, so that the flow is to be disabled.
function downstream.is_over_for_good(down, rules, clock)
  return rules.disable_after > 0 and down.breaker == downstream.OPEN and down.opened == clock and clock - down.first >= rules.disable_after
end

-- Returns whether responses change a scope that has no state yet.
function downstream.matters(signals) return signals ~= nil and (signals.throttled + signals.failed > 0 or signals.wait > 0) end

local function open(down, rules, clock)
  if down.breaker == downstream.HALF_OPEN then down.till = 0 end -- that held until the outcome of the probe
  if down.breaker == downstream.CLOSED then
    down.first, down.open_for = clock, rules.open_for
  else
    down.open_for = math.min(2 * down.open_for, rules.max_open)
  end
  down.breaker, down.opened, down.till = downstream.OPEN, clock, math.max(down.till, clock + down.open_for)
end

local function close(down, clock)
  down.breaker, down.failures, down.open_for, down.first, down.till = downstream.CLOSED, 0, 0, 0, clock
end

-- Rates are stored as departures in 1000 s, or in 1000000 s if the configured rate is below 1/s.
local function set_rate(down, per_micro, base)
  local per = base.rate_per <= base.rate_count * 1000000 and 1000000000 or 1000000000000
  down.rate_count, down.rate_per = math.max(math.floor(per_micro * per), 1), per
  if down.rate_count * base.rate_per >= base.rate_count * per then down.rate_count, down.rate_per = 0, 0 end
end

-- Returns whether the adaptive rate has no effect, because the effective rate is not faster.
local function is_idle(down, base)
  return down.rate_count > 0 and down.rate_count * base.rate_per >= base.rate_count * down.rate_per
end

local function rate_of(down, base)
  if down.rate_count > 0 and not is_idle(down, base) then return down.rate_count / down.rate_per end
  return base.rate_count / base.rate_per
end

-- Starts an episode: the downstream asks for less, in the response to a request that departed after the last cut. After a short hold the
-- downstream recovers by itself, so the cut is small. The rate then stays for a while, since each attempt to raise it costs such a hold.
local function cut(down, rules, base, clock, wait)
  local rate, whole = rate_of(down, base), base.rate_count / base.rate_per
  local is_short, lasted = wait > 0 and wait <= downstream.SHORT, clock - down.since
  local to, held_till = is_short and down.cut == 0 and downstream.EASED * rate or rate / 2, math.max(clock, down.till)
  if down.cut > 0 and not is_idle(down, base) and lasted >= downstream.LEAST then
    local took = down.accepted / lasted
    to = is_short and math.min(took, downstream.EASED * rate) or math.min(downstream.CUT * took, rate)
  end
  set_rate(down, math.max(to, whole * rules.floor / 100), base)
  down.cut, down.since, down.accepted = clock, held_till, 0
  down.grown = held_till + (is_short and downstream.STEADY * wait or 0)
end

-- Raises the adaptive rate after accepted requests. While the effective rate is lower, the adaptive rate stays as it is.
local function climb(down, base, clock)
  if is_idle(down, base) then
    down.since, down.accepted, down.grown = clock, 0, clock
    return
  end
  local rate, whole = rate_of(down, base), base.rate_count / base.rate_per
  local most = math.max(downstream.PACED, 2 / rate)
  local passed = math.min(clock - down.grown, most)
  if passed <= 0 or passed * whole / downstream.CLIMB * down.rate_per < 1 then return end
  set_rate(down, rate + whole * passed / downstream.CLIMB, base)
  down.grown = clock
end

-- Returns the new state of a scope after responses, nil if none is left, and whether it may send sooner. down is the previous state, or
-- nil; base the effective rate (rate_count, rate_per); offset: from the server's clock to the clock of the text.
function downstream.apply(down, signals, rules, base, clock, offset)
  if not down then
    if not downstream.matters(signals) then return nil, false end
    down = downstream.new('-')
  end
  local was_till, was_open = down.till, down.breaker ~= downstream.CLOSED
  if signals.reason then down.changed_at, down.reason = clock, signals.reason end
  local opened = down.opened - offset
  if was_open then
    if math.max(signals.accepted_at, signals.throttled_at) > opened then
      close(down, clock)
    elseif signals.failed_at > opened then
      open(down, rules, clock)
    elseif signals.unsent_at > opened and down.breaker == downstream.HALF_OPEN then
      down.breaker, down.till = downstream.OPEN, clock
    end
  elseif signals.accepted + signals.throttled > 0 then
    down.failures = 0
  else
    down.failures = down.failures + signals.failed
    if rules.failures > 0 and down.failures >= rules.failures then open(down, rules, clock) end
  end
  if rules.failures == 0 then down.failures = 0 end
  if signals.wait > 0 then down.till = math.max(down.till, clock + math.min(signals.wait, rules.max_hold)) end
  if signals.throttled > 0 and signals.throttled_at > down.cut - offset and rules.floor < 100 then
    cut(down, rules, base, clock, signals.wait)
  else
    down.accepted = down.accepted + signals.accepted
    if signals.accepted > 0 and down.rate_count > 0 then climb(down, base, clock) end
  end
  local sooner = down.till < was_till or was_open and down.breaker == downstream.CLOSED
  if downstream.is_over(down, clock) then return nil, sooner end
  return down, sooner
end

return downstream
