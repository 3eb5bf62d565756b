-- drr.lua: whose turn it is in a claim, by deficit round robin (Shreedhar and Varghese 1995): a binary heap of flows,
-- the one that goes first at its top. A flow goes at `at`; of two that go at once, the one that was placed first.
-- A flow has as many departures a turn as its weight says, and goes behind the others then.
--
-- Where flows are in groups there are two levels: a heap of entries, one for each group, with
-- the heap of its flows. An entry goes at the turn of its group, when the first of its flows may: not at
-- the turn of the flow, or a group that may send twice in its turn would wait for that in between.
--
-- Flows and groups are pacers (see pacer.lua) that also have name, from (when their own bounds let them depart next), at
-- (the same, or when their turn is if that is later), and had_text (something was stored of them).

--#include lib/flow.lua
--#include lib/group.lua
--#include lib/pacer.lua
--#include lib/quota.lua

local drr = { placed = 0 }

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
function drr.order(heap)
  for i, f in ipairs(heap) do f.place = i end
  drr.placed = math.max(drr.placed, #heap)
  for i = math.floor(#heap / 2), 1, -1 do sift_down(heap, i) end
end

-- The top goes at another time now.
local function moved(heap)
  drr.placed = drr.placed + 1
  heap[1].place = drr.placed
  sift_down(heap, 1)
end

-- Takes the top off.
local function off(heap)
  heap[1] = heap[#heap]
  heap[#heap] = nil
  if #heap > 0 then sift_down(heap, 1) end
end

-- The flow whose turn it is, and when it goes; nil if there is none.
function drr.top(heap)
  local first = heap[1]
  if not first then return nil end
  return first.flows and first.flows[1] or first, first.at
end

-- The flow at the top goes at another time now, or is off if nothing of it may go.
function drr.next(heap, is_off)
  local first = heap[1]
  if first.flows then
    if is_off then off(first.flows) else moved(first.flows) end
    is_off = #first.flows == 0 or pacer.is_held(first.group)
    if not is_off then first.at = math.max(first.group.at, first.flows[1].from) end
  end
  if is_off then off(heap) else moved(heap) end
end

-- A flow or a group by its settings and the text of its state; turn is what it has on the calendar. clock is the engine's;
-- since is when the bucket's pace began. Of a group (keeps_last) the last departure is kept also without a rate: see
-- group.ready.
function drr.open(clock, since, name, turn, settings, text, quotas, keeps_last)
  local state = flow.read(text)
  if not settings.rate and not keeps_last then state.slot, state.last = 0, 0 end
  local f = { keeps_last = keeps_last, name = name, at = turn, settings = settings, state = state,
    had_text = text, quotas = quotas }
  -- One that is missing has been idle, unless all is missing and begins anew: then all of its burst counts as used.
  if state.new and settings.rate then
    state.slot = math.max(clock - settings.whole - 1, math.min(since + settings.back, clock + settings.back))
    state.rate, state.last = settings.rate, math.min(state.slot, clock)
  end
  f.changed = pacer.open(state, settings, clock)
  return f
end

-- It does not depart before that time.
function drr.waits(f, from) f.from, f.at = from, math.max(f.at, from) end

-- A job of it departs at that time. It goes on with its turn, or waits for the next one.
function drr.depart(f, at, latest)
  local state = f.state
  pacer.depart(f, at, 1)
  state.turn = state.turn + 1
  if state.turn >= f.settings.weight then state.turn, f.at = 0, at end
  drr.waits(f, pacer.ready(f, 1, latest))
end

-- A job of it is gone without a slot.
function drr.drop(f, delayed)
  f.changed = true
  if delayed then f.state.scheduled = f.state.scheduled - 1 else f.state.unfinished = f.state.unfinished - 1 end
end

-- The groups that the run was told of, their names behind ARGV[names], their keys behind KEYS[keys].
-- Each flow gets its own as f.group.
function drr.groups(clock, since, conf, names, keys, flows)
  local of_all = redis.call('HMGET', conf, 'group_quotas', unpack(group.OF_ALL))
  local windows = quota.windows(table.remove(of_all, 1) or '')
  local listed, groups, by_name = {}, {}, {}
  for i = names + 1, #ARGV, 2 do listed[#listed + 1] = ARGV[i] end
  if #listed == 0 then return groups end
  local texts = redis.call('HMGET', KEYS[keys + 1], unpack(listed))
  local settings = flow.all_settings(redis.call('HMGET', KEYS[keys + 2], unpack(listed)), of_all)
  local latest = clock + pacer.MAX_HORIZON
  for n, name in ipairs(listed) do
    local at = keys + 2 * n
    local g = drr.open(clock, since, name, tonumber(ARGV[names + 2 * n]), settings[n], texts[n], quota.open(KEYS[at + 2], windows, 1), true)
    drr.waits(g, pacer.ready(g, 1, latest))
    g.due, g.placed, g.taken_off = KEYS[at + 1], {}, {}
    groups[n], by_name[name] = g, g
  end
  for _, f in ipairs(flows) do f.group = by_name[flow.group_of(f.name)] end
  return groups
end

-- The heap of the entries of groups, of those flows that may send.
function drr.of_groups(groups, ready)
  local heap, entries = {}, {}
  for _, g in ipairs(groups) do entries[g] = { group = g, flows = {} } end
  for _, f in ipairs(ready) do
    local flows = entries[f.group].flows
    flows[#flows + 1] = f
  end
  for _, g in ipairs(groups) do
    local entry = entries[g]
    if #entry.flows > 0 and not pacer.is_held(g) then
      drr.order(entry.flows)
      entry.at = math.max(g.at, entry.flows[1].from)
      heap[#heap + 1] = entry
    end
  end
  return heap
end

-- Notes in list, which has placed and taken_off, when on the calendar one goes next; nil not at all.
function drr.note(list, name, at)
  if at then
    list.placed[#list.placed + 1], list.placed[#list.placed + 2] = string.format('%.0f', at), name
  else
    list.taken_off[#list.taken_off + 1] = name
  end
end

return drr
