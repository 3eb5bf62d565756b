-- plain_turns.lua: the flows of a claim that need only a turn. In a bucket with a backlog most flows are plain.
--
-- A claim wants one job of each. A flow is plain if it has no bounds and no own settings, all its waiting jobs are of priority normal,
-- and the job at its head was never claimed. drr.lua, queue.lua and next_turns.lua would have the same result, at twice the cost.
-- While the turn of a flow is still in the future, none is plain, because others may have two turns before it.
--
-- The data of plain flows is in arrays, which cost less than a table each: names; turns; keys (of their lists); ids and
-- bodies (of the jobs); heads and in_flight (their states); more (whether another job waits); at (when the job departs, if it does). A flow
-- whose job is not as expected has no body, and is not plain. again is when the first of them has another turn: no flow with a later turn
-- precedes it.

--#include lib/claim_reply.lua
--#include lib/flow.lua

local plain_turns = {}

-- Opens the plain flows among the given ones (see drr.read_named), in that order. The others stay in given.numbers. of_all: the
-- bounds of all flows; windows: their quotas; earliest: when a job can go. Turns are in order. nil if none can be plain.
function plain_turns.open(reader, given, of_all, windows, earliest)
  local count = #given.numbers
  if count == 0 or given.turns[count] > earliest then return nil end --#slow do return nil end
  local common = flow.settings(false, of_all)
  if common.rate or common.max_in_flight > 0 or common.missing or windows[1] or count > reader.at_once then return nil end
  local plain = { looked_at = 0, names = {}, turns = {}, keys = {}, ids = {}, heads = {}, in_flight = {}, more = {}, at = {} }
  local numbers, others, n = {}, {}, 0
  for i = 1, count do
    local head, in_flight = string.match(not given.own_texts[i] and given.texts[i] or '', '^(0 0 %- 0 %d+ %d+ )(%d+) %.n$')
    local key = head and KEYS[given.bases[i] + flow.PLACE_OF.n]
    local ids = head and redis.call('LRANGE', key, '0', '1')
    if head and ids[1] then
      n = n + 1
      numbers[n], plain.names[n], plain.turns[n], plain.keys[n], plain.ids[n] = i, given.names[i], given.turns[i], key, ids[1]
      plain.heads[n], plain.in_flight[n], plain.more[n] = head, in_flight, #ids > 1
    else
      others[#others + 1] = i
    end
  end
  if n == 0 then return nil end
  local metas = redis.call('HMGET', reader.meta, unpack(plain.ids))
  plain.bodies = redis.call('HMGET', reader.body, unpack(plain.ids))
  for p = 1, n do
    local job = plain.bodies[p]
    if job then reader.bytes = reader.bytes + #job end
    if metas[p] or not job then
      plain.bodies[p], others[#others + 1] = false, numbers[p]
    end
  end
  given.numbers = others
  return plain
end

-- Returns the plain flow that goes next, unless another flow has an earlier turn; nil if none does.
function plain_turns.top(plain, turn)
  local p = plain.looked_at + 1
  while plain.bodies[p] == false do p = p + 1 end
  plain.looked_at = p - 1
  local own = plain.turns[p]
  return own and not (turn and turn < own) and p or nil
end

-- Hands out the job of a flow, unless the reply is full. out: see claim_reply.lua.
function plain_turns.hand_out(plain, p, at, out, most_bytes)
  local job = plain.bodies[p]
  local bytes = out.bytes + #job
  if out.count > 0 and bytes > most_bytes then return false end
  out.bytes, plain.at[p], plain.looked_at = bytes, at, p
  if plain.more[p] and not plain.again then plain.again = at end
  claim_reply.add(out, plain.ids[p], at, job, false, plain.names[p])
  return true
end

-- Returns the state of a flow whose job departs.
function plain_turns.state(plain, p)
  return plain.heads[p] .. flow.text_of(plain.in_flight[p] + 1) .. (plain.more[p] and ' .n' or ' .')
end

-- Removes departing jobs from their lists.
function plain_turns.write(plain)
  for p = 1, plain.looked_at do
    if plain.at[p] then redis.call('LPOP', plain.keys[p]) end
  end
end

return plain_turns
