-- idle.lua: removes the state of flows and groups that have become idle.
--
-- A flow with a rate is stored for a while after its last job, because its last slot holds back the next
-- one. A flow with a downstream state is stored for a day. The zset idle has the end of that time: "f" and the name
-- of a flow, or "g" and the name of a group -> microseconds of the engine's clock. claim.lua and settle.lua add the entry
-- when no job of the flow waits any more. Before enqueue.lua makes
-- new flows, it checks more due entries than it makes flows. So flows are removed as fast as they come,
-- and idle ones take no place under max_flows. An entry is dropped if its flow does not exist or has jobs again. claim.lua adds
-- it again after these jobs. So there are not many more entries than flows. The audit of sweep.lua finds flows
-- without an entry, whose last jobs were cancelled.

--#include lib/downstream.lua
--#include lib/flow.lua
--#include lib/group.lua
--#include lib/in_chunks.lua

local idle = {}

-- Returns when the state of a flow or a group without jobs can be removed; 0 at once.
local function ends_at(slot, s, down)
  local ends = s.rate_count > 0 and math.ceil(slot + s.rate_per / s.rate_count) or 0
  return down and math.max(ends, downstream.ends(down)) or ends
end

-- Adds an entry for a flow or a group, if none of its jobs waits and it has a rate or a downstream state.
-- entries are arguments of ZADD.
function idle.note(entries, kind, f)
  local state = f.state
  local ends = ends_at(state.slot, f.settings, state.down)
  if ends == 0 or state.unfinished + state.scheduled > state.in_flight then return end
  entries[#entries + 1] = string.format('%d', ends)
  entries[#entries + 1] = kind .. f.name
end

-- Checks flows, or groups, in one loop, as it runs for each flow that ever existed.
local function look(found, kind, names, states, own_settings, of_all, spared, clock)
  local gone, settings = {}, flow.all_settings(flow.own_texts(own_settings, names), of_all, #names)
  local texts = redis.call('HMGET', states, unpack(names))
  for n, name in ipairs(names) do
    local member = kind .. name
    if not spared[member] then
      local said, rest = string.match(texts[n] or '', '^@(%S+) (.*)$')
      local slot = string.match(rest or texts[n] or '', '^(%d+) %d+ %S+ %d+ 0 0 0 ') -- without jobs
      local ends = slot and ends_at(slot + 0, settings[n], downstream.read(said)) or 0
      if ends > clock then -- its rate has changed
        found.again[#found.again + 1], found.again[#found.again + 2] = string.format('%d', ends), member
      else
        found.over[#found.over + 1] = member
        if slot then gone[#gone + 1] = name end
      end
    end
  end
  return gone
end

-- Checks due entries, up to `most` and at most 1000, except those in spared (by entry). Behind keys[before]
-- are groups and group_settings; before is nil without groups. Returns the argument of idle.forget, or nil if there is
-- nothing: flows and groups are the names of idle ones.
function idle.find(key, clock, most, conf, flows, flow_settings, keys, before, spared)
  local entries = redis.call('ZRANGEBYSCORE', key, '-inf', string.format('%d', clock), 'LIMIT', 0, most)
  if #entries == 0 then return nil end
  local names, found = { f = {}, g = {} }, { over = {}, again = {}, flows = {}, groups = {} }
  for _, entry in ipairs(entries) do
    local of_kind = names[string.sub(entry, 1, 1)]
    of_kind[#of_kind + 1] = string.sub(entry, 2)
  end
  if #names.f > 0 then
    found.flows = look(found, 'f', names.f, flows, flow_settings, redis.call('HMGET', conf, unpack(flow.OF_ALL)), spared, clock)
  end
  if #names.g > 0 and before then
    local of_all = redis.call('HMGET', conf, unpack(group.OF_ALL))
    found.groups = look(found, 'g', names.g, keys[before + 1], keys[before + 2], of_all, spared, clock)
  end
  return found
end


-- Removes the states found by idle.find.
function idle.forget(found, key, flows, groups)
  in_chunks('HDEL', flows, found.flows)
  if groups then in_chunks('HDEL', groups, found.groups) end
  in_chunks('ZREM', key, found.over)
  in_chunks('ZADD', key, found.again)
end

return idle
