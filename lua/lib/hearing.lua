-- hearing.lua: what a scope says after the answers to the jobs of settle.lua, and who is told. See downstream.lua.
--
-- The answers stand in parts, one for each flow: usual and more.accepted, how many requests were accepted, and accepted_at, when the last
-- of these was claimed; heard, the other answers, nil if there are none (see downstream.note); tells, whether a hook may tell of them.

--#include lib/codes.lua
--#include lib/downstream.lua
--#include lib/outbox.lua
--#include lib/rates.lua

local hearing = {}

-- What the answers to some flows say.
local function heard_of(some)
  local heard, n, latest = nil, 0, 0
  for _, part in ipairs(some) do
    n, latest = n + part.usual + part.more.accepted, math.max(latest, part.accepted_at)
    if part.heard then heard = downstream.add(heard, part.heard) end
  end
  if n > 0 then heard = downstream.add(heard, downstream.listen(n, latest)) end
  return heard
end

-- Tells hooks what became of a breaker. Where hooks made all jobs whose outcomes changed it, nobody is told.
local function tell(box, change, down, some, name)
  for _, part in ipairs(some) do
    if part.tells then
      local opened = change == codes.BREAKER_OPENED
      outbox.note(box, opened and 'breaker.open' or 'flow.recovered', name, 1, { reason = opened and down.reason or 'breaker closed' })
      return
    end
  end
end

-- What a scope says after the answers to some flows, whether it may send sooner than before, and what became of its breaker, nil if
-- nothing did. down is what it said until now, nil nothing; configured is its rate and in_force the rates above it (see rates.lua); clock
-- and offset are those of its times; name is that of a flow; box is an outbox. Where its breaker was open, each part learns since when
-- (probed_from, by the server's clock).
function hearing.hear(down, some, rules, configured, in_force, clock, offset, box, name)
  local heard = heard_of(some)
  if not heard or not down and not downstream.matters(heard) then return down, false end
  local was_open = down and down.breaker ~= downstream.CLOSED or false
  if was_open then
    for _, part in ipairs(some) do part.probed_from = down.opened - offset end
  end
  local rate = rates.at(in_force, configured, math.max(heard.accepted_at, heard.throttled_at, heard.failed_at))
  local said, sooner = downstream.hear(down, heard, rules, rate, clock, offset)
  local is_open = said ~= nil and said.breaker ~= downstream.CLOSED
  local change = is_open ~= was_open and (is_open and codes.BREAKER_OPENED or codes.BREAKER_CLOSED) or nil
  if box and change then tell(box, change, said, some, name) end
  return said, sooner, change
end

return hearing
