-- next_turns.lua: the end of a claim for its flows and groups: when and in which turn queue each goes next, and its stored state.
--
-- A flow that has something to send, now or later, is in the turn queue of its group, or of the bucket. A flow that has
-- nothing, or is held, is removed. An idle flow has no stored state.

--#include lib/flow.lua
--#include lib/idle.lua
--#include lib/in_chunks.lua
--#include lib/pacer.lua
--#include lib/plain_turns.lua
--#include lib/queue.lua
--#include lib/quota.lua

local next_turns = {}


-- clock is the engine's, offset that from the server's. recheck is a turn at which no flow is put (see reserve.lua), or nil.
function next_turns.open(clock, offset, recheck)
  return { clock = clock, offset = offset, recheck = recheck, states = {}, gone = {}, idle = {} }
end

-- Puts flows and groups back at their previous turns, when nothing may go: their names and turns are behind ARGV[flows] and
-- ARGV[groups], the keys of the groups behind KEYS[keys].
function next_turns.put_back(due, flows, groups, keys, in_groups)
  local dues = {}
  for i = groups + 1, #ARGV, 2 do
    dues[ARGV[i]] = KEYS[keys + 2 + i - groups]
    redis.call('ZADD', due, 'XX', ARGV[i + 1], ARGV[i])
  end
  for i = flows + 1, groups, 2 do
    redis.call('ZADD', in_groups and dues[flow.group_of(ARGV[i])] or due, 'XX', ARGV[i + 1], ARGV[i])
  end
end

-- Puts a flow or a group in a turn queue at a time, or removes it without a time. list gets placed and taken_off, once there are any,
-- and soonest, the earliest placed time.
local function put(c, list, name, at)
  if not at then
    list.taken_off = list.taken_off or {}
    list.taken_off[#list.taken_off + 1] = name
    return
  end
  if at == c.recheck then at = at + 1 end
  local placed, score = list.placed, string.format('%d', at)
  if placed then
    local n = #placed
    placed[n + 1], placed[n + 2] = score, name
    if at < list.soonest then list.soonest = at end
  else
    list.placed, list.soonest = { score, name }, at
  end
end

-- Records the new state of a flow or a group.
local function keep(c, f, kind, states, gone)
  local state = f.state
  if state.unfinished <= 0 and flow.is_idle(state, f.settings, c.clock) then
    if f.had_text then gone[#gone + 1] = f.name end
  elseif f.changed then
    local n = #states
    states[n + 1], states[n + 2] = f.name, flow.write(state)
    if f.settings.rate or f.down then idle.note(c.idle, kind, f) end
  end
end

-- Decides the new turns of plain flows (see plain_turns.lua).
local function decide_plain(c, plain)
  for p = 1, #plain.names do
    local name, at = plain.names[p], plain.at[p]
    if at then
      local n = #c.states
      c.states[n + 1], c.states[n + 2] = name, plain_turns.state(plain, p)
      put(c, c, name, plain.more[p] and at)
    elseif plain.bodies[p] then
      put(c, c, name, plain.turns[p])
    end
  end
end

-- Decides the new turns of flows, and of plain ones, if any. It writes nothing yet. furthest: no departure is later.
function next_turns.decide(c, named, furthest, plain)
  if plain then decide_plain(c, plain) end
  for i = 1, #named do
    local f = named[i]
    local q, state = f.queue, f.state
    local at = f.at
    local left, filled = queue.rest(q, state.filled)
    if not left then
      state.turn = 0
      at = queue.due_next(q)
      if at then at = math.max(at + c.offset, pacer.ready(f, 1, furthest), f.from) end
    end
    if filled ~= state.filled then state.filled, f.changed = filled, true end
    put(c, f.group or c, f.name, not pacer.is_held(f) and at)
    keep(c, f, 'f', c.states, c.gone)
  end
end

-- Writes the turn queues of groups, and decides the turns of the groups. A group goes at its turn, even if the turn of its flows
-- is later, unless these have to wait longer than the bucket, which goes at next_slot. groups_key: the states of groups.
function next_turns.write_groups(c, groups, groups_key, next_slot)
  local states, gone, soon = {}, {}, math.max(next_slot, c.clock)
  for i = 1, #groups do
    local g = groups[i]
    if g.taken_off then in_chunks('ZREM', g.due, g.taken_off) end
    if g.placed then in_chunks('ZADD', g.due, g.placed) end
    if g.quotas then quota.write(g.quotas) end
    -- If the head is early enough, its exact time does not matter.
    local head = g.soonest
    if not head or head > soon then head = tonumber(redis.call('ZRANGE', g.due, '0', '0', 'WITHSCORES')[2]) end
    if not head and g.state.turn > 0 then g.state.turn, g.changed = 0, true end
    local at = head and not pacer.is_held(g) and g.at
    if at and head > soon then at = math.max(at, head) end
    put(c, c, g.name, at)
    keep(c, g, 'g', states, gone)
  end
  in_chunks('HSET', groups_key, states)
  in_chunks('HDEL', groups_key, gone)
end

-- Writes the turn queue of the bucket, and the states of its flows. Returns the head of the turn queue, nil if it is empty.
function next_turns.write(c, due, flows, idle_key)
  in_chunks('HSET', flows, c.states)
  in_chunks('HDEL', flows, c.gone)
  in_chunks('ZADD', idle_key, c.idle)
  if c.taken_off then in_chunks('ZREM', due, c.taken_off) end
  if c.placed then in_chunks('ZADD', due, c.placed) end
  return tonumber(redis.call('ZRANGE', due, '0', '0', 'WITHSCORES')[2])
end

return next_turns
