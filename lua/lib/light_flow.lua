-- light_flow.lua: the light flows and groups of settle.lua: it changes two of their counts and nothing else. Most are light. Their texts
-- are changed without the tables of flow.lua. A light flow has no own settings, no batch members in flight, and no bound that held it
-- back. Its downstream has no state, and it is in its turn queue or has nothing to send. A group is light if the same
-- holds for it, and its flows of the call are light. The code for other flows would have the same result, at twice the cost.
--
-- The flows of a call are in parts: n, the index of its name; usual, how many jobs without a delay were removed from it; unusual, if
-- there is any other change.

--#include lib/flow.lua
--#include lib/group.lua

local light_flow = {}

-- Reads the states of flows, or of groups, by their names. fields: see flow.load.
local function read(conf, states, own_settings, names, fields)
  local common = flow.settings(false, redis.call('HMGET', conf, unpack(fields)))
  return { texts = redis.call('HMGET', states, unpack(names)), own = flow.own_texts(own_settings, names),
    has_rate = common.rate_count > 0, max_in_flight = common.max_in_flight }
end

-- Returns the text of the n-th flow after `left` of its jobs were removed; '' if it is idle then, nil if it is not light. Also returns
-- whether a flow may have waiting jobs.
local function after(all, n, left)
  local text = all.texts[n]
  if not text or all.own[n] then return nil, true end
  local head, unfinished, scheduled, in_flight, filled = string.match(text, '^(%d+ %d+ %S+ %d+ )(%d+)( %d+ )(%d+)( %.%a*)$')
  if not head or all.max_in_flight > 0 and in_flight + 0 >= all.max_in_flight then return nil, true end
  unfinished, in_flight = unfinished - left, in_flight - left
  if unfinished <= 0 and in_flight <= 0 and scheduled == ' 0 ' then
    if all.has_rate then return nil, true end -- idle or not depends on the clock
    return '', filled ~= ' .'
  end
  return head .. flow.text_of(unfinished) .. scheduled .. flow.text_of(in_flight) .. filled, filled ~= ' .'
end

-- Records which of the flows are in their turn queues. asked: turn queue -> their parts and names.
local function look_up(asked)
  for due, some in pairs(asked) do
    for i, score in ipairs(redis.call('ZMSCORE', due, unpack(some.names))) do some.parts[i].is_queued = score end
  end
end

-- Adds a light text to what settle.lua writes: states has the arguments of HSET, gone has names.
local function keep(light, name, text)
  local states = light.states
  if text == '' then
    light.gone[#light.gone + 1] = name
  else
    local n = #states
    states[n + 1], states[n + 2] = name, text
  end
end

-- Reads the groups of parts; see light_flow.load. before: as in group.load. Returns the groups that are not light, as group.load does,
-- and the texts of the others.
local function load_groups(parts, loaded, names, of, conf, due_groups, before)
  local states, own_settings, left, is_heavy = KEYS[before + 1], KEYS[before + 2], {}, {}
  for _, part in ipairs(parts) do
    local g = of[part.n]
    left[g] = (left[g] or 0) + part.usual
    if loaded[part.n] then is_heavy[g] = true end
  end
  local light, numbers, heavy_names, all = { states = {}, gone = {} }, {}, {}, read(conf, states, own_settings, names, group.OF_ALL)
  for g, score in ipairs(redis.call('ZMSCORE', due_groups, unpack(names))) do
    -- A group that is in no turn queue has nothing to send if its own turn queue is empty.
    local can_be = not is_heavy[g] and (score or redis.call('EXISTS', KEYS[before + 2 + g]) == 0)
    local text = can_be and after(all, g, left[g] or 0)
    if text then
      keep(light, names[g], text)
    else
      numbers[#numbers + 1], heavy_names[#heavy_names + 1] = g, names[g]
    end
  end
  local groups, by_number = {}, {}
  if #numbers > 0 then groups = flow.load(conf, states, own_settings, heavy_names, group.OF_ALL) end
  groups.key = states
  for i, g in ipairs(groups) do g.due, by_number[numbers[i]] = KEYS[before + 2 + numbers[i]], g end
  for _, part in ipairs(parts) do
    part.group = by_number[of[part.n]]
    if loaded[part.n] then loaded[part.n].group = part.group end
  end
  return groups, light
end

-- Reads the flows of parts, and their groups, whose keys begin behind KEYS[before]; nil without groups. Returns flow.load's result
-- for the flows that are not light, by number; the light ones; and the same two for groups. A part gets is_light; is_queued; and
-- group, if that is not light.
function light_flow.load(parts, names, conf, flows, flow_settings, due, before)
  local group_names, group_of = nil, nil
  if before then group_names, group_of = group.names(names) end
  local all, asked, texts = read(conf, flows, flow_settings, names, flow.OF_ALL), {}, {}
  for i = 1, #parts do
    local part = parts[i]
    local n, waits = part.n, true
    if not part.unusual then texts[n], waits = after(all, n, part.usual) end --#slow
    if waits then
      local key = before and KEYS[before + 2 + group_of[n]] or due
      local some = asked[key]
      if not some then
        some = { parts = {}, names = {} }
        asked[key] = some
      end
      local to = #some.names + 1
      some.parts[to], some.names[to] = part, names[n]
    else
      part.is_light = true
    end
  end
  look_up(asked)
  local light, heavy, heavy_names, loaded = { states = {}, gone = {} }, {}, {}, {}
  for i = 1, #parts do
    local part = parts[i]
    local n = part.n
    if texts[n] and (part.is_light or part.is_queued) then
      part.is_light = true
      keep(light, names[n], texts[n])
    else
      heavy[#heavy + 1], heavy_names[#heavy_names + 1] = part, names[n]
    end
  end
  if #heavy > 0 then
    for i, f in ipairs(flow.load(conf, flows, flow_settings, heavy_names)) do loaded[heavy[i].n] = f end
  end
  if before then return loaded, light, load_groups(parts, loaded, group_names, group_of, conf, due, before) end
  return loaded, light
end

return light_flow
