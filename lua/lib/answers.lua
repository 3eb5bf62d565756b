-- answers.lua: what the answers to the jobs of settle.lua change of their scopes, and who is told. See downstream.lua.
--
-- The answers stand in parts, one for each flow: usual and more.accepted, how many requests were accepted, and accepted_at, when the last
-- of these was claimed; heard, the other answers, nil if there are none (see downstream.note); tells, nil if no hook may tell of them, else
-- the letters of the caller of one of these jobs, '' none.

--#include lib/codes.lua
--#include lib/downstream.lua
--#include lib/flow.lua
--#include lib/outbox.lua
--#include lib/rates.lua

local answers = {}

-- The answers of a run, in parts. rules: see downstream.rules; box: an outbox, or nil; reply: to which is added what became of breakers;
-- conf and pace: keys of the bucket; pool: those of its pool, or nil.
function answers.open(parts, rules, now, box, reply, conf, pace, pool)
  local pool_conf = pool and pool.conf
  local above = rules.scope == 'p' and rates.above(nil, nil, pool_conf) or rates.above(conf, pace, pool_conf)
  return { parts = parts, rules = rules, now = now, box = box, reply = reply, above = above }
end

-- Adds to the reply what became of a flow, counted from 1, or of the bucket or the pool, 0; with a word for the reason.
function answers.report(all, change, n, reason)
  local reply, size = all.reply, #all.reply
  reply[size + 1], reply[size + 2], reply[size + 3] = change, n, reason
end

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

-- Tells hooks what became of a breaker. They are not told where all jobs whose outcomes changed it were made by hooks.
local function tell(box, change, down, some, name)
  for _, part in ipairs(some) do
    if part.tells then
      local opened = change == codes.BREAKER_OPENED
      outbox.note(box, opened and 'breaker.open' or 'flow.recovered', name, 1, { reason = opened and down.reason or 'breaker closed' },
        part.tells)
      return
    end
  end
end

-- What a scope says after the answers to some flows, nil nothing, and whether it may send sooner than before. down is what it said until
-- now, nil nothing; configured its own rate (see rates.lua); offset that of the clock of its times; n and name are those of a flow. Where
-- its breaker was open, each part learns since when (probed_from, by the server's clock).
local function hear(all, down, some, configured, offset, n, name)
  local heard = heard_of(some)
  if not heard or not down and not downstream.matters(heard) then return down, false end
  local was_open = down and down.breaker ~= downstream.CLOSED or false
  if was_open then
    for _, part in ipairs(some) do part.probed_from = down.opened - offset end
  end
  local rate = rates.at(all.above, configured, math.max(heard.accepted_at, heard.throttled_at, heard.failed_at))
  local said, sooner = downstream.hear(down, heard, all.rules, rate, all.now + offset, offset)
  local is_open = said ~= nil and said.breaker ~= downstream.CLOSED
  if is_open ~= was_open then
    local change = is_open and codes.BREAKER_OPENED or codes.BREAKER_CLOSED
    if all.box then tell(all.box, change, said, some, name) end
    answers.report(all, change, n, said and said.reason or '-')
  end
  return said, sooner
end

-- Changes the flows, where each is a scope: those of loaded, by number. Returns whether a part is disabled now: its field says why.
function answers.of_flows(all, loaded, offset)
  local some_disabled = false
  for _, part in ipairs(all.parts) do
    local f = loaded[part.n]
    if f and (f.state.down or part.heard) then
      f.state.down, f.sooner = hear(all, f.state.down, { part }, f.configured, offset, part.n, f.name)
      f.settings = flow.obeys(f.state, f.configured)
      if f.state.down and downstream.is_over_for_good(f.state.down, all.rules, all.now + offset) then
        part.disabled, some_disabled = f.state.down.reason, true
      end
    end
  end
  return some_disabled
end

-- What the bucket or the pool said before, by its text, what it says now, and whether it may send sooner. some_heard: whether an answer
-- was none that accepts.
function answers.of_all(all, text, offset, some_heard)
  local before = text and downstream.read(text)
  if not before and not some_heard then return nil, nil, false end
  return before, hear(all, before, all.parts, nil, offset, 0)
end

return answers
