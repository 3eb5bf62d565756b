-- turns.lua: whose turn it is: a binary heap of flows, the one that goes first at
-- its top. Its text goes in front of claim.lua, behind sender.lua. A flow goes at `at`; of two that go
-- at once, the one that was placed first.
--
-- Where flows are in groups there are two levels: a heap of entries, one for each group, with
-- the heap of its flows. An entry goes at the turn of its group, when the first of its flows may: not at
-- the turn of the flow, or a group that may send twice in its turn would wait for that in between.

--#include lib/flow.lua
--#include lib/group.lua
--#include lib/quota.lua
--#include lib/sender.lua

local turns = { placed = 0 }

local function before(a, b) return a.at < b.at or (a.at == b.at and a.place < b.place) end

local function sift_down(heap, i)
  local n, sifted = #heap, heap[i]
  while 2 * i <= n do
    local child = 2 * i
    if child < n and before(heap[child + 1], heap[child]) then child = child + 1 end
    if not before(heap[child], sifted) then break end
    heap[i] = heap[child]
    i = child
  end
  heap[i] = sifted
end

-- Makes a heap of a list of flows, which are placed in its order.
function turns.order(heap)
  for i, f in ipairs(heap) do f.place = i end
  turns.placed = math.max(turns.placed, #heap)
  for i = math.floor(#heap / 2), 1, -1 do sift_down(heap, i) end
end

-- The top goes at another time now.
local function moved(heap)
  turns.placed = turns.placed + 1
  heap[1].place = turns.placed
  sift_down(heap, 1)
end

-- Takes the top off.
local function off(heap)
  heap[1] = heap[#heap]
  heap[#heap] = nil
  if #heap > 0 then sift_down(heap, 1) end
end

-- The flow whose turn it is, and when it goes; nil if there is none.
function turns.top(heap)
  local first = heap[1]
  if not first then return nil end
  return first.flows and first.flows[1] or first, first.at
end

-- The flow at the top goes at another time now, or is off if nothing of it may go.
function turns.next(heap, is_off)
  local first = heap[1]
  if first.flows then
    if is_off then off(first.flows) else moved(first.flows) end
    is_off = #first.flows == 0 or flow.is_held(first.group)
    if not is_off then first.at = math.max(first.group.at, first.flows[1].from) end
  end
  if is_off then off(heap) else moved(heap) end
end

-- The groups that the run was told of, their names behind ARGV[names], their keys behind KEYS[keys];
-- offset is that of the calendar. Each flow gets its own as f.group.
function turns.groups(run, conf, names, keys, offset, flows)
  local of_all = redis.call('HMGET', conf, 'group_quotas', unpack(group.OF_ALL))
  local windows = quota.windows(table.remove(of_all, 1) or '')
  local listed, groups, by_name = {}, {}, {}
  for i = names + 1, #ARGV, 2 do listed[#listed + 1] = ARGV[i] end
  if #listed == 0 then return groups end
  local states, own = redis.call('HMGET', KEYS[keys + 1], unpack(listed)), redis.call('HMGET', KEYS[keys + 2], unpack(listed))
  for n, name in ipairs(listed) do
    local at = keys + 2 * n
    local g = sender.open(run, name, tonumber(ARGV[names + 2 * n]) - offset, flow.settings(own[n], of_all), states[n],
      quota.open(KEYS[at + 2], windows, 1), true)
    sender.waits(g, sender.ready(run, g))
    g.due, g.placed, g.taken_off = KEYS[at + 1], {}, {}
    groups[n], by_name[name] = g, g
  end
  for _, f in ipairs(flows) do f.group = by_name[flow.group_of(f.name)] end
  return groups
end

-- The heap of the entries of groups, of those flows that may send.
function turns.of_groups(groups, ready)
  local heap, entries = {}, {}
  for _, g in ipairs(groups) do entries[g] = { group = g, flows = {} } end
  for _, f in ipairs(ready) do
    local flows = entries[f.group].flows
    flows[#flows + 1] = f
  end
  for _, g in ipairs(groups) do
    local entry = entries[g]
    if #entry.flows > 0 and not flow.is_held(g) then
      turns.order(entry.flows)
      entry.at = math.max(g.at, entry.flows[1].from)
      heap[#heap + 1] = entry
    end
  end
  return heap
end

-- Notes in list, which has placed and taken_off, when on the calendar one goes next; nil not at all.
function turns.note(list, name, at)
  if at then
    list.placed[#list.placed + 1], list.placed[#list.placed + 2] = string.format('%.0f', at), name
  else
    list.taken_off[#list.taken_off + 1] = name
  end
end

return turns
