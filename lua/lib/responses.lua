-- responses.lua: responses of the downstream whose usage may be reported by another request than the original one, such as the
-- responses of a language model that works in the background. The first outcome that reports the usage of a response settles the charges of
-- its requests to budgets (see charges.lua), whichever process sends it. Later ones charge and count nothing.
--
-- The hash …:responses has a text for each, by its id in the arguments of settle.lua (escaped, without a space):
--   "sCALLER time"            settled by the outcome of a job that was claimed then. CALLER: the letters of the caller that was the first
--                             to name it (see callers.lua), none without one
--   "oCALLER time request…"   open: its requests are charged, the last one was claimed then; each request is
--                         "at pool_at input output model amounts length:flow": when it was charged, by the clocks of the engine and of the
--                         pool; the tokens counted for its model (see use.lua); its charges; its flow
--
-- Outcomes may come in another order than their requests were sent: a request that was claimed before the job that settled its response
-- charges nothing. A server may reuse an id: a request that was claimed later begins a new response.
--
-- The field "#CALLER" is the number of ids of a caller.
--
-- MOST fields are kept. A caller has at most as many ids as it leaves free: a single caller gets half. Beyond that, one of its own ids
-- makes room: the oldest of SAMPLE random ones, a settled one first, in TRIES tries; if none is found, the new id is not kept. Ids without
-- a caller are limited only by MOST. The whole key expires KEPT after its last write.

--#include lib/callers.lua
--#include lib/codes.lua
--#include lib/reservation.lua

local responses = {
  OPEN = 'o', -- the usage follows later
  POLL = 'p', -- it reports the usage, and made no call of a model itself
  REREAD = 'q', -- the same, for a response whose own request has reported it, unless that broke off
  LAST = 'r', -- a request that reports the usage of its response
  MOST = 10000,
  SAMPLE = 16,
  TRIES = 4,
  REQUESTS = 8, -- per response; the charges of earlier ones stay
  KEPT = 2678400000, -- milliseconds: 31 days
}

local REQUEST = '^ (%d+) (%d+) (%d+) (%d+) (%S*) (%S*) (%d+):()'

local function read(text)
  local state, letters, time, at = string.match(text or '', '^([so])(%a*) (%d+)()')
  local r = { is_settled = state == 's', letters = letters, time = tonumber(time or 0), requests = {} }
  while at do
    local charged_at, pool_at, input, output, model, amounts, length, behind = string.match(text, REQUEST, at)
    if not charged_at then break end
    at = behind + length
    r.requests[#r.requests + 1] = { at = charged_at + 0, pool_at = pool_at + 0, input = input + 0, output = output + 0, model = model,
      text = amounts, amounts = reservation.amounts(amounts), flow = string.sub(text, behind, at - 1) }
  end
  return r
end

local function write(r)
  if r.is_settled then return string.format('s%s %d', r.letters, r.time) end
  local parts = { string.format('o%s %d', r.letters, r.time) }
  for _, q in ipairs(r.requests) do
    parts[#parts + 1] = string.format(' %d %d %.0f %.0f %s %s %d:%s', q.at, q.pool_at, q.input, q.output, q.model, q.text, #q.flow, q.flow)
  end
  return table.concat(parts)
end

-- Returns the charges and the counts of an outcome, as a request of a response. one: see responses.settle.
local function request_of(one)
  local at, pool_at, reserved, used = string.match(one.spent and one.spent.text or '', '^(%d+) (%d+) (%S*) (%S+)$')
  local input, output = string.match(one.use and one.use.text or '', '^%d+ %S* (%d+) (%d+)')
  local text = used == reservation.AS_RESERVED and reserved or used ~= reservation.NOTHING and used or ''
  return { at = tonumber(at or 0), pool_at = tonumber(pool_at or 0), input = tonumber(input or 0), output = tonumber(output or 0),
    model = one.model, text = text, amounts = reservation.amounts(text), flow = one.flow }
end

-- Removes the outcome's own charges.
local function charge_nothing(one)
  if one.spent then one.spent.text = string.gsub(one.spent.text, '%S+$', reservation.NOTHING) end
end

-- Counts what the requests of the response have not counted, for the model that they requested.
local function count_rest(use, requests)
  if not use then return end
  local day, model, input, output, charged = string.match(use.text, '^(%d+) (%S*) (%d+) (%d+) ?(%-?%d*)$')
  if not day then return end
  charged = tonumber(charged) or input + output
  for _, q in ipairs(requests) do
    input, output = math.max(input - q.input, 0), math.max(output - q.output, 0)
    if q.input + q.output > 0 then charged = charged - (q.amounts.tokens or q.input + q.output) end
    if q.model ~= '' then model = q.model end
  end
  use.text = string.format('%s %s %.0f %.0f %.0f', day, model, input, output, charged)
end

-- Settles an open response: the outcome reports the usage, which replaces the charges of the requests.
local function settles(one, r)
  if #r.requests == 0 then return end
  if one.spent then
    local used = string.match(one.spent.text, '%S+$')
    if used == reservation.AS_RESERVED then return end
    one.spent.requests, one.spent.used = r.requests, reservation.amounts(used)
    charge_nothing(one)
  end
  count_rest(one.use, r.requests)
end

-- Decides the charges and counts of outcomes that name a response, 256 at most. Reads only. named: for each { kind, id, model, time, flow,
-- nth, spent, use, letters }: time is when its job was claimed, nth its index in the reply; spent and use are the texts of settle.lua for
-- budgets and for a model, nil nothing, and are changed here; letters: of its caller. Returns the responses to
-- write, by their ids.
function responses.settle(key, named, reply)
  local ids, known = {}, {}
  for i, one in ipairs(named) do ids[i] = one.id end
  local stored = redis.call('HMGET', key, unpack(ids))
  for i, one in ipairs(named) do
    local r = known[one.id] or read(stored[i])
    known[one.id], r.letters = r, r.letters or one.letters
    local is_over = one.kind == responses.POLL and r.is_settled or one.kind == responses.OPEN and r.is_settled and r.time > one.time
      or one.kind == responses.REREAD and #r.requests == 0
    if not is_over then r.is_new, r.is_changed = not stored[i], true end
    if is_over then
      charge_nothing(one)
      if one.use then one.use.text = '' end
      reply[one.nth] = codes.SETTLED_BEFORE
    elseif one.kind == responses.OPEN then
      if r.is_settled then r.is_settled, r.requests = false, {} end
      if #r.requests == responses.REQUESTS then table.remove(r.requests, 1) end
      r.requests[#r.requests + 1] = request_of(one)
      r.time = math.max(r.time, one.time)
    else
      if not r.is_settled and #r.requests > 0 then
        settles(one, r)
        reply[one.nth] = codes.SETTLED_BEFORE
      end
      r.is_settled, r.time, r.requests = true, math.max(r.time, one.time), {}
    end
  end
  return known
end

-- Removes an id of a caller, or of any if letters is nil. Returns whether it found one.
local function make_room(key, letters)
  for _ = 1, responses.TRIES do
    local some, oldest, rank, its_caller = redis.call('HRANDFIELD', key, responses.SAMPLE, 'WITHVALUES'), nil, nil, nil
    for i = 1, #some, 2 do
      local state, of, time = string.match(some[i + 1], '^([so])(%a*) (%d+)')
      if state and (not letters or of == letters) then
        local its = state == 'o' and tonumber(time) or tonumber(time) - 2 ^ 52
        if not rank or its < rank then oldest, rank, its_caller = some[i], its, of end
      end
    end
    if oldest then
      redis.call('HDEL', key, oldest)
      if its_caller ~= '' and redis.call('HINCRBY', key, '#' .. its_caller, -1) < 1 then redis.call('HDEL', key, '#' .. its_caller) end
      return true
    end
  end
  return false
end

-- Makes room for a new id of a caller, and counts it. Returns whether to keep it.
local function take_place(key, letters)
  local own = '#' .. letters
  local held = letters ~= '' and tonumber(redis.call('HGET', key, own) or 0) or 0
  local free = responses.MOST - redis.call('HLEN', key)
  if held > 0 and not callers.may_have(free, held) then
    if not make_room(key, letters) then return false end
  else
    for _ = 1, (letters ~= '' and held == 0 and 2 or 1) - free do make_room(key) end -- a caller's first id needs a number, too
  end
  if letters ~= '' then redis.call('HINCRBY', key, own, 1) end
  return true
end

-- Writes the result of responses.settle: existing ids first, as a new one may make room among these.
function responses.write(key, known)
  local is_written = false
  for _, are_new in ipairs({ false, true }) do
    for id, r in pairs(known) do
      if r.is_changed and r.is_new == are_new and (not are_new or take_place(key, r.letters)) then
        redis.call('HSET', key, id, write(r))
        is_written = true
      end
    end
  end
  if is_written then redis.call('PEXPIRE', key, responses.KEPT) end
end

return responses
