-- drr.lua: whose turn it is in a claim, by deficit round robin (Shreedhar and Varghese 1995): a row of flows.
-- A flow goes at `at`; of two that go at once, the one that was placed first.
-- A flow has as many departures a turn as its weight says, and goes behind the others then.
--
-- With groups there are two levels: a row of entries, one for each group, with the row of its flows. An entry goes at the turn of
-- its group, but not before the bounds of its first flow allow. It does not wait for the turn of that flow: else a group that may
-- send twice in its turn would wait in between.
--
-- Flows and groups are pacers (see pacer.lua) with more fields:
--   name
--   from      when their own bounds let them depart next
--   at        the same, or the time of their turn if that is later
--   had_text  whether something was stored of them

--#include lib/flow.lua
--#include lib/group.lua
--#include lib/pacer.lua
--#include lib/quota.lua

local drr = {}

local function before(a, b) return a.at < b.at or (a.at == b.at and a.place < b.place) end

local EMPTY = {} -- the heap of a row to which no flow has come

-- Flows that come in order wait in the row itself, from row.first on. Flows that do not, and those that have had a turn, wait in
-- row.again, a binary heap. After its turn a flow goes behind the others: such a flow costs a heap one step.
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

-- Makes a row of a list of flows, which are placed in its order.
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

-- The one that goes first, and nil if there is none. Until drr.next is called it stays so, whatever becomes of its time.
local function top(row)
  local a, b = row[row.first], row.again[1]
  row.in_heap = b ~= nil and (not a or before(b, a))
  return row.in_heap and b or a
end

-- Takes off what top has told.
local function off(row)
  if row.in_heap then pop(row.again) else row.first = row.first + 1 end
end

-- Puts back what was taken off, to go at another time.
local function back(row, f)
  row.placed = row.placed + 1
  f.place = row.placed
  push(row, f)
end

-- The flow whose turn it is, and when it goes; nil if there is none.
function drr.top(row)
  local first = top(row)
  if not first then return nil end
  return first.flows and top(first.flows) or first, first.at
end

-- The flow that drr.top has told, which is f, goes at another time now, or is off if nothing of it may go.
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

-- A flow or a group by its settings and the text of its state; turn is what it has in the turn queue. clock is the engine's;
-- since is when the bucket's pace began. Of a group (keeps_last) the last departure is kept also without a rate: see
-- group.ready.
function drr.open(clock, since, name, turn, settings, text, quotas, keeps_last)
  local state = flow.read(text)
  if state.down then settings = flow.obeys(state, settings) end
  local f = { keeps_last = keeps_last, name = name, at = turn, from = 0, settings = settings, state = state, had_text = text,
    quotas = quotas, down = state.down, changed = false }
  if not settings.rate and not keeps_last then
    if state.slot > 0 then state.slot, state.frac, state.rate, state.last = 0, 0, '-', 0 end
    return f
  end
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

-- A job of a flow, and of its group, departs at that time. They go on with their turn, or wait for the next one.
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

-- A job of it is gone without a slot.
function drr.drop(f, delayed)
  f.changed = true
  if delayed then f.state.scheduled = f.state.scheduled - 1 else f.state.unfinished = f.state.unfinished - 1 end
end

-- The flows of which the run was told: names and turns behind args[first], keys behind KEYS[places]. texts is what is kept of them,
-- own_texts their own settings; numbers says which of them are to be opened.
function drr.told(count, args, first, places, flows, flow_settings)
  local told = { numbers = {}, names = {}, turns = {}, bases = {}, texts = {}, own_texts = {} }
  if count == 0 then return told end
  for i = 1, count do
    told.numbers[i], told.names[i], told.turns[i] = i, args[first + 2 * i - 1], args[first + 2 * i] + 0
    told.bases[i] = places + (i - 1) * (flow.PLACES + 1)
  end
  told.texts, told.own_texts = redis.call('HMGET', flows, unpack(told.names)), flow.own_texts(flow_settings, told.names)
  return told
end

-- The flows of told.numbers. windows: their quotas; lease: how long the outcome of a job may take. base of a flow is where its keys
-- begin, own what its settings say.
function drr.flows(clock, since, told, of_all, windows, lease)
  local named, common, latest = {}, flow.settings(false, of_all), clock + pacer.MAX_HORIZON
  for n = 1, #told.numbers do
    local i = told.numbers[n]
    local base, own = told.bases[i], told.own_texts[i]
    local settings = own and flow.settings(own, of_all) or common
    local counted = quota.own(settings.quotas, windows)
    local quotas = counted and quota.open(KEYS[base + flow.PLACES + 1], counted, 1)
    local f = drr.open(clock, since, told.names[i], told.turns[i], settings, told.texts[i], quotas)
    if f.down then f.down.lease = lease end
    if f.settings.rate or quotas or f.down then drr.waits(f, pacer.ready(f, 1, latest)) end
    named[n], f.base, f.own = f, base, own
  end
  return named
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

-- An entry for each group, with the row of its flows that may send.
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
