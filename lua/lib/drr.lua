-- drr.lua: decides whose turn it is in a claim, by deficit round robin (Shreedhar and Varghese 1995), over a row of flows.
-- A flow departs at `at`. Of two flows with the same time, the one placed first departs first.
-- In each turn a flow has as many departures as its weight. Then it goes to the end of the row.
--
-- With groups there are two levels: a row of entries, one for each group, and each entry has the row of its flows. An entry departs at
-- the turn of its group, but not before the bounds of its first flow allow. It does not wait for that flow's turn. Otherwise a group
-- with two departures in its turn would pause between them.
--
-- Flows and groups are pacers (see pacer.lua) with more fields:
--   name
--   from      when their own bounds let them depart next
--   at        the same, or the time of their turn if that is later
--   had_text  whether a text of it was stored

--#include lib/flow.lua
--#include lib/group.lua
--#include lib/pacer.lua
--#include lib/quota.lua

local drr = {}

local function before(a, b) return a.at < b.at or (a.at == b.at and a.place < b.place) end

local EMPTY = {} -- the heap of a row to which no flow was pushed

-- Flows that arrive in order stay in the row itself, from row.first on. Flows out of order, and flows that have had a turn, are in
-- row.again, a binary heap. After its turn a flow goes behind the others, which takes one step of the heap.
local function push(row, f)
  if row.again == EMPTY then row.again = {} end
  local heap = row.again
  local i = #heap + 1
  while i > 1 do
    local parent = (i - i % 2) / 2
    if not before(f, heap[parent]) then break end
    heap[i] = heap[parent]
    i = parent
  end
  heap[i] = f
end

local function pop(heap)
  local n = #heap
  local sifted, i, child = heap[n], 1, 2
  heap[n] = nil
  n = n - 1
  if n == 0 then return end
  while child <= n do
    if child < n and before(heap[child + 1], heap[child]) then child = child + 1 end
    if not before(heap[child], sifted) then break end
    heap[i] = heap[child]
    i, child = child, 2 * child
  end
  heap[i] = sifted
end

-- Returns a row of a list of flows, placed in its order.
function drr.order(list)
  local row, latest = { list[1], first = 1, again = EMPTY, in_heap = false, placed = #list }, 0
  local n = 0
  for i = 1, #list do
    local f = list[i]
    f.place = i
    if f.at >= latest then
      n = n + 1
      row[n], latest = f, f.at
    else
      push(row, f)
    end
  end
  return row
end

-- Returns the flow or entry that departs first, nil if there is none. The result stays the same until drr.next, even if its time changes.
local function top(row)
  local a, b = row[row.first], row.again[1]
  row.in_heap = b ~= nil and (not a or before(b, a))
  return row.in_heap and b or a
end

-- Removes the element that top returned.
local function off(row)
  if row.in_heap then pop(row.again) else row.first = row.first + 1 end
end

-- Puts a removed element back, to depart at another time.
local function back(row, f)
  row.placed = row.placed + 1
  f.place = row.placed
  push(row, f)
end

-- Returns the flow whose turn it is and the time of its departure; nil if there is none.
function drr.top(row)
  local first = top(row)
  if not first then return nil end
  return first.flows and top(first.flows) or first, first.at
end

-- Moves f, the flow that drr.top returned, to its new time, or removes it if is_off: none of its jobs may depart.
function drr.next(row, f, is_off)
  local g = f.group
  off(row)
  if not g then
    if not is_off then back(row, f) end
    return
  end
  local entry = g.entry
  off(entry.flows)
  if not is_off then back(entry.flows, f) end
  local first = top(entry.flows)
  if first and not pacer.is_held(g) then
    entry.at = math.max(g.at, first.from)
    back(row, entry)
  end
end

-- Opens a flow or a group from its settings and the text of its state. turn is its time in the turn queue; clock is the engine's; since is
-- when the bucket's pace began. A group (keeps_last) keeps its last departure even without a rate: see group.ready.
function drr.open(clock, since, name, turn, settings, text, quotas, keeps_last)
  local state = flow.read(text)
  if state.down then settings = flow.obeys(state, settings) end
  local f = { keeps_last = keeps_last, name = name, at = turn, from = 0, settings = settings, state = state, had_text = text,
    quotas = quotas, down = state.down, changed = false }
  if not settings.rate and not keeps_last then
    if state.slot > 0 then state.slot, state.frac, state.rate, state.last = 0, 0, '-', 0 end
    return f
  end
  -- A flow without a state was idle. If the state of the whole bucket is missing, all of its burst counts as used.
  if state.new and settings.rate then
    state.slot = math.max(clock - settings.whole - 1, math.min(since + settings.back, clock + settings.back))
    state.rate, state.last = settings.rate, math.min(state.slot, clock)
  end
  f.changed = pacer.open(state, settings, clock)
  return f
end

-- Delays the next departure of f until `from` at the earliest.
function drr.waits(f, from) f.from, f.at = from, math.max(f.at, from) end

-- Records a departure of a flow, and of its group. Both continue their turn, or wait for the next one.
function drr.depart(f, at, latest)
  local state = f.state
  pacer.depart(f, at, 1)
  local turn, s = state.turn + 1, f.settings
  if turn >= s.weight then turn, f.at = 0, at end
  state.turn = turn
  f.from = 0
  if s.rate or f.quotas or f.down then drr.waits(f, pacer.ready(f, 1, latest)) end
  if f.group then drr.depart(f.group, at, latest) end
end

-- Counts a job of f that is removed without a slot.
function drr.drop(f, delayed)
  f.changed = true
  if delayed then f.state.scheduled = f.state.scheduled - 1 else f.state.unfinished = f.state.unfinished - 1 end
end

-- Returns the flows that the caller names: names and turns behind args[first], keys behind KEYS[places]. texts are their stored states,
-- own_texts their own settings, and numbers lists the flows to open.
function drr.read_named(count, args, first, places, flows, flow_settings)
  local given = { numbers = {}, names = {}, turns = {}, bases = {}, texts = {}, own_texts = {} }
  if count == 0 then return given end
  for i = 1, count do
    given.numbers[i], given.names[i], given.turns[i] = i, args[first + 2 * i - 1], args[first + 2 * i] + 0
    given.bases[i] = places + (i - 1) * (flow.PLACES + 1)
  end
  given.texts, given.own_texts = redis.call('HMGET', flows, unpack(given.names)), flow.own_texts(flow_settings, given.names)
  return given
end

-- Opens the flows of given.numbers. windows: their quotas; lease: how long the outcome of a job may take. In each flow, base is the number
-- of keys before its keys, and own its own settings.
function drr.flows(clock, since, given, of_all, windows, lease)
  local named, common, latest = {}, flow.settings(false, of_all), clock + pacer.MAX_HORIZON
  for n = 1, #given.numbers do
    local i = given.numbers[n]
    local base, own = given.bases[i], given.own_texts[i]
    local settings = own and flow.settings(own, of_all) or common
    local counted = quota.own(settings.quotas, windows)
    local quotas = counted and quota.open(KEYS[base + flow.PLACES + 1], counted, 1)
    local f = drr.open(clock, since, given.names[i], given.turns[i], settings, given.texts[i], quotas)
    if f.down then f.down.lease = lease end
    if f.settings.rate or quotas or f.down then drr.waits(f, pacer.ready(f, 1, latest)) end
    named[n], f.base, f.own = f, base, own
  end
  return named
end

-- Opens the groups that the caller names: names behind ARGV[names], keys behind KEYS[keys]. Sets f.group of each flow.
function drr.groups(clock, since, conf, names, keys, flows)
  local of_all = redis.call('HMGET', conf, 'group_quotas', unpack(group.OF_ALL))
  local windows = quota.windows(table.remove(of_all, 1) or '')
  local listed, groups, by_name = {}, {}, {}
  for i = names + 1, #ARGV, 2 do listed[#listed + 1] = ARGV[i] end
  if #listed == 0 then return groups end
  local texts = redis.call('HMGET', KEYS[keys + 1], unpack(listed))
  local obeys = flow.all_settings(flow.own_texts(KEYS[keys + 2], listed), of_all, #listed)
  local latest = clock + pacer.MAX_HORIZON
  for n = 1, #listed do
    local name, at = listed[n], keys + 2 * n
    local counted = quota.own(obeys[n].quotas, windows)
    local quotas = counted and quota.open(KEYS[at + 2], counted, 1)
    local g = drr.open(clock, since, name, ARGV[names + 2 * n] + 0, obeys[n], texts[n], quotas, true)
    if g.settings.rate or quotas or g.down then drr.waits(g, pacer.ready(g, 1, latest)) end
    g.due = KEYS[at + 1]
    groups[n], by_name[name] = g, g
  end
  for i = 1, #flows do flows[i].group = by_name[flow.group_of(flows[i].name)] end
  return groups
end

-- Returns an entry for each group, with the row of its flows that may send.
function drr.of_groups(groups, ready)
  local entries = {}
  for i = 1, #ready do
    local f = ready[i]
    local entry = f.group.entry
    if entry then
      entry.flows[#entry.flows + 1] = f
    else
      f.group.entry = { flows = { f }, at = 0, place = 0 }
    end
  end
  for i = 1, #groups do
    local g = groups[i]
    local entry = g.entry
    if entry and not pacer.is_held(g) then
      entry.flows = drr.order(entry.flows)
      entry.at = math.max(g.at, top(entry.flows).from)
      entries[#entries + 1] = entry
    end
  end
  return entries
end

return drr
