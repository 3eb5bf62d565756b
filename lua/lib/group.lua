-- group.lua: the groups of a bucket, a level above its flows. A group is the flows of
-- one key, such as the endpoints of a tenant. Its bounds apply in addition to the bounds of the
-- flow and of the bucket.
--
-- A group is stored as two texts in the format of a flow (see flow.lua), in the
-- hashes groups and group_settings. Its counts are the sums over its flows. Without a rate, its
-- slot is the slot of its last departure.
--
-- The turn queue has two levels: due_groups has each group whose flows have something to
-- send, at the time that its own bounds and the first of its flows allow; and
-- due:<group> has its flows, as due: has the flows without groups. A group that is
-- held back is removed from due_groups, and due:<group> stays as it is.
--
--   …:groups  hash  group -> its state, as of a flow
--   …:group_settings  hash  group -> its own settings and its pause, until an operator resets them
--   …:due_groups  zset  the turn queue of the groups: group -> its turn
--   …:due:<group>  zset  the turn queue of the flows of a group: flow -> its turn

--#include lib/flow.lua
--#include lib/pacer.lua

local group = {
  OF_ALL = { 'group_rate_count', 'group_rate_per', 'group_burst', 'group_capacity', 'group_max_in_flight' }, -- see flow.OF_ALL
}

-- Returns the groups of flows, by the names of the flows: each once, in the order of the flows; and
-- for each flow the number of its group.
function group.names(flows)
  local names, numbers, of = {}, {}, {}
  for n, path in ipairs(flows) do
    local name = flow.group_of(path)
    if not numbers[name] then names[#names + 1], numbers[name] = name, #names + 1 end
    of[n] = numbers[name]
  end
  return names, of
end

-- Reads the groups of flows, and sets f.group of each flow. Behind keys[before] are the
-- hashes groups and group_settings, then, in scripts that need them, due:<group> of each, in
-- the order of group.names. names and of: the results of group.names, if the script has called it.
function group.load(conf, keys, before, flows, names, of)
  if not names then
    local paths = {}
    for n, f in ipairs(flows) do paths[n] = f.name end
    names, of = group.names(paths)
  end
  local loaded = flow.load(conf, keys[before + 1], keys[before + 2], names, group.OF_ALL)
  loaded.key = keys[before + 1]
  for n, g in ipairs(loaded) do g.due = keys[before + 2 + n] end
  for n, f in ipairs(flows) do f.group = loaded[of[n]] end
  return loaded
end

-- Returns when the group may depart next by its rate, in the engine's clock. It is not before the last departure:
-- otherwise a group that gets new flows all the time would always be first.
function group.ready(g, clock)
  local s = g.settings
  if s.rate_count > 0 then return flow.ready(g.state, s, clock) end
  return math.min(g.state.slot, clock + pacer.MAX_HORIZON)
end

-- Returns the group's turn in the turn queue. g.turn is the earliest new turn in the group's own turn queue, nil
-- without any. If the group is missing in the turn queue or was held back, its turn is the first one of its own queue. Nil if the group
-- is held back, or need not move.
function group.turn(turn_queue, g, now)
  if pacer.is_held(g) then return nil end
  local turn, clock = g.turn, now + turn_queue.offset
  if g.was_held or not redis.call('ZSCORE', turn_queue.key, g.name) then
    turn = tonumber(redis.call('ZRANGE', g.due, 0, 0, 'WITHSCORES')[2])
  end
  return turn and math.max(turn, clock, group.ready(g, clock))
end

-- Puts a group in the turn queue after its flows or its bounds have changed. It only moves
-- to an earlier time.
function group.recall(turn_queue, g, now)
  local turn = group.turn(turn_queue, g, now)
  if not turn then return end
  redis.call('ZADD', turn_queue.key, 'LT', string.format('%d', turn), g.name)
  if not turn_queue.head or turn < turn_queue.head then turn_queue.sooner = true end
end

-- Stores the groups, and puts them in the turn queue, if the script has one: then it knows the engine's clock.
function group.close(groups, now, turn_queue)
  for _, g in ipairs(groups or {}) do
    flow.save(groups.key, g, turn_queue and now + turn_queue.offset)
    if turn_queue then group.recall(turn_queue, g, now) end
  end
end

return group
