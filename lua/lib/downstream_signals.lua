-- downstream_signals.lua: applies the responses to the jobs of settle.lua to their scopes, and notifies hooks. See downstream.lua.
--
-- The responses are in parts, one for each flow. usual and more.accepted: number of accepted requests; accepted_at: when the last of these
-- was claimed; signals: the other responses, nil if there are none (see downstream.note); caller: the letters of the caller of one of these
-- jobs, '' for none, or nil if hooks are not notified.

--#include lib/codes.lua
--#include lib/downstream.lua
--#include lib/flow.lua
--#include lib/outbox.lua
--#include lib/rates.lua

local downstream_signals = {}

-- Opens the responses of a run, in parts. rules: see downstream.rules; box: an outbox, or nil; reply: gets the changes of breakers;
-- conf and pace: keys of the bucket; pool: the keys of its pool, or nil.
function downstream_signals.open(parts, rules, now, box, reply, conf, pace, pool)
  local pool_conf = pool and pool.conf
  local above = rules.scope == 'p' and rates.above(nil, nil, pool_conf) or rates.above(conf, pace, pool_conf)
  return { parts = parts, rules = rules, now = now, box = box, reply = reply, above = above }
end

-- Adds a change to the reply: n is the number of the flow, from 1, or 0 for the bucket or the pool; reason is one word.
function downstream_signals.report(all, change, n, reason)
  local reply, size = all.reply, #all.reply
  reply[size + 1], reply[size + 2], reply[size + 3] = change, n, reason
end

-- Merges the responses to some flows.
local function sum_signals(some)
  local signals, n, latest = nil, 0, 0
  for _, part in ipairs(some) do
    n, latest = n + part.usual + part.more.accepted, math.max(latest, part.accepted_at)
    if part.signals then signals = downstream.add(signals, part.signals) end
  end
  if n > 0 then signals = downstream.add(signals, downstream.new_signals(n, latest)) end
  return signals
end

-- Notifies hooks that a breaker changed, unless hooks made all jobs whose outcomes changed it.
local function notify(box, change, down, some, name)
  for _, part in ipairs(some) do
    if part.caller then
      local opened = change == codes.BREAKER_OPENED
      outbox.note(box, opened and 'breaker.open' or 'flow.recovered', name, 1, { reason = opened and down.reason or 'breaker closed' },
        part.caller)
      return
    end
  end
end

-- Returns the new downstream state of a scope after the responses to some flows, nil if there is none, and whether it may send sooner.
-- down is the previous state, or nil; configured is its own rate (see rates.lua); offset is for the clock of its times; n and name are of
-- the flow. If the breaker was open, each part gets probed_from: since when, by the server's clock.
local function apply(all, down, some, configured, offset, n, name)
  local signals = sum_signals(some)
  if not signals or not down and not downstream.matters(signals) then return down, false end
  local was_open = down and down.breaker ~= downstream.CLOSED or false
  if was_open then
    for _, part in ipairs(some) do part.probed_from = down.opened - offset end
  end
  local rate = rates.at(all.above, configured, math.max(signals.accepted_at, signals.throttled_at, signals.failed_at))
  local said, sooner = downstream.apply(down, signals, all.rules, rate, all.now + offset, offset)
  local is_open = said ~= nil and said.breaker ~= downstream.CLOSED
  if is_open ~= was_open then
    local change = is_open and codes.BREAKER_OPENED or codes.BREAKER_CLOSED
    if all.box then notify(all.box, change, said, some, name) end
    downstream_signals.report(all, change, n, said and said.reason or '-')
  end
  return said, sooner
end

-- Updates the flows of loaded, by number, where each flow is a scope. Returns whether a part is now disabled: its field has the reason.
function downstream_signals.of_flows(all, loaded, offset)
  local some_disabled = false
  for _, part in ipairs(all.parts) do
    local f = loaded[part.n]
    if f and (f.state.down or part.signals) then
      f.state.down, f.sooner = apply(all, f.state.down, { part }, f.configured, offset, part.n, f.name)
      f.settings = flow.obeys(f.state, f.configured)
      if f.state.down and downstream.is_over_for_good(f.state.down, all.rules, all.now + offset) then
        part.disabled, some_disabled = f.state.down.reason, true
      end
    end
  end
  return some_disabled
end

-- Returns the previous state of the bucket or the pool, read from text, its new state, and whether it may send sooner. any_signals: whether
-- any response did not accept.
function downstream_signals.of_all(all, text, offset, any_signals)
  local before = text and downstream.read(text)
  if not before and not any_signals then return nil, nil, false end
  return before, apply(all, before, all.parts, nil, offset, 0)
end

return downstream_signals
