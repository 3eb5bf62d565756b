-- flow.lua: the flows of a bucket, as scripts read and write them.
-- A flow is the jobs of one key inside a bucket. They wait in its four lists, one
-- for each priority, and in its later. A bucket without flows has one flow, "",
-- with no further state.
--
-- In a bucket with groups (see group.lua), a flow belongs to a group, and its name in
-- Redis is its path: the length of the group's name in bytes, a colon, the group's name,
-- and its own. So no two flows have the same path, whatever bytes are in their names.
--
-- The state of a flow is a text in the hash flows, by its name:
--   "slot frac rate turn unfinished scheduled in_flight places"
--   slot, frac  see pacer.lua; 0 without a rate
--   rate        the rate of that slot, "count/per", then "/" and the time of the last departure where that is not the
--               slot; "-" without a rate
--   turn        departures so far in its current turn (see weight)
--   unfinished, scheduled, in_flight  numbers of jobs: enqueued without a delay, enqueued
--               with a delay, and leased (of both kinds)
--   places      a dot, then a letter for each of its places that may hold something: k, h, n, l and d (see
--               flow.PLACE_OF). A place without its letter is empty. Then "+" and the number of batch members in in_flight other than
--               the first of each batch (see batch.lua), if there are any
-- The text is removed once all three counts are 0 and the slot is an interval in the past. While the downstream has a state (see
-- downstream.lua), the text begins with "@", that state and a space.
--
-- Own settings of a flow, given by an operator, are a text in the hash
-- flow_settings: "rate_count rate_per burst capacity max_in_flight weight paused",
-- with "-" for a setting that it does not have. A disabled flow then has the time (see own_settings.lua). Lines follow, of which scripts
-- only test whether they are set. They read the last two: its own budgets in quotes ('""': none), and its own quotas in < and > ("<>":
-- none).
-- own_budgets in conf has the units of such budgets. With flow_must_exist in conf, a flow without own settings is missing: it admits no
-- jobs and sends none, as if paused.
--
-- The turn queue is the zset due, or one zset per group: flow -> time of its turn, for each flow with jobs to
-- send, now or later. Its times and slots are in the engine's clock (see pacer.lua).
--
--   …:flows  hash  flow -> its state
--   …:flow_settings  hash  flow -> its own settings and its pause, until an operator resets them
--   …:due:  zset  the turn queue: flow -> its turn; of flows without groups

--#include lib/downstream.lua
--#include lib/pacer.lua

local flow = {
  PLACES = 5, -- keys of a flow: its lists, then later
  PRIORITY_OF = { f = 1, k = 1, h = 2, n = 3, l = 4 }, -- f: see codec.goes_first
  PLACE_OF = { k = 1, h = 2, n = 3, l = 4, d = 5 },
  LETTERS = { 'k', 'h', 'n', 'l', 'd' },
}

-- Most counts are small: a table lookup is cheaper than a conversion between numbers and texts.
local number_of = { ['0'] = 0, ['1'] = 1, ['2'] = 2, ['3'] = 3, ['4'] = 4, ['5'] = 5, ['6'] = 6, ['7'] = 7, ['8'] = 8, ['9'] = 9 }
local small = { [0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' }

-- Reads the state of a flow from its text. A flow without a text is new: its places are unknown.
function flow.read(text)
  local slot, frac, rate, last = 0, 0, '-', 0
  local turn, unfinished, scheduled, in_flight, filled = string.match(text or '', '^0 0 %- (%d+) (%d+) (%d+) (%d+) (%.%a*)$')
  local followers = 0
  if not turn then
    slot, frac, rate, turn, unfinished, scheduled, in_flight, filled =
      string.match(text or '', '^(%d+) (%d+) (%S+) (%d+) (%d+) (%d+) (%d+) (%S+)$')
    if not slot then
      local down, rest = string.match(text or '', '^@(%S+) (.*)$')
      if down then
        local state = flow.read(rest)
        state.down = downstream.read(down)
        return state
      end
      return { slot = 0, frac = 0, rate = '-', last = 0, turn = 0, unfinished = 0, scheduled = 0, in_flight = 0,
        followers = 0, filled = '.khnld', new = true }
    end
    slot, frac = slot + 0, frac + 0
    last = slot
    if rate ~= '-' then rate, last = pacer.rate_of(rate, slot) end
    if string.find(filled, '+', 1, true) then
      local before, n, behind = string.match(filled, '^([^+]*)%+(%d*)(.*)$')
      filled, followers = before .. behind, tonumber(n) or 0
    end
  end
  return { slot = slot, frac = frac, rate = rate, last = last, turn = number_of[turn] or turn + 0,
    unfinished = number_of[unfinished] or unfinished + 0, scheduled = number_of[scheduled] or scheduled + 0,
    in_flight = number_of[in_flight] or in_flight + 0, followers = followers, filled = filled }
end

-- Formats a count, never below 0: after a deletion by hand it restarts from 0.
local function text_of(n) return small[n] or string.format('%d', n < 0 and 0 or n) end
flow.text_of = text_of

-- Formats the number of batch members in flight that do not hold the slot: at least one job in flight holds one.
local function followers_text(state)
  local followers = math.min(state.followers, state.in_flight - 1)
  return followers > 0 and '+' .. text_of(followers) or ''
end

-- Formats a state.
function flow.write(state)
  local turn, unfinished, scheduled, in_flight = state.turn, state.unfinished, state.scheduled, state.in_flight
  local says = state.down and '@' .. downstream.write(state.down) .. ' ' or ''
  return says .. (state.slot > 0 and pacer.text(state) or '0 0 -') .. ' ' .. (small[turn] or text_of(turn)) .. ' '
    .. (small[unfinished] or text_of(unfinished)) .. ' ' .. (small[scheduled] or text_of(scheduled)) .. ' '
    .. (small[in_flight] or text_of(in_flight)) .. ' ' .. state.filled
    .. (state.followers > 0 and followers_text(state) or '')
end

-- Records that a place of the flow may hold something, by its letter.
function flow.fill(state, letter)
  if not string.find(state.filled, letter, 1, true) then state.filled = state.filled .. letter end
end

-- Returns whether the state equals the state of a new flow. clock is the engine's; nil if unknown.
function flow.is_idle(state, s, clock)
  if state.unfinished > 0 or state.scheduled > 0 or state.in_flight > 0 then return false end
  if state.down and not (clock and downstream.is_over(state.down, clock)) then return false end
  return s.rate_count == 0 or clock ~= nil and state.slot + s.rate_per / s.rate_count <= clock
end

-- Returns when the rate and the downstream of a flow allow its next departure, by the engine's clock; 0: at once. The state does not
-- change, because the clock of a script that has not noticed a step back of the server's clock is behind.
function flow.ready(state, s, clock)
  local till = state.down and state.down.till or 0
  if state.new or s.rate_count == 0 then return till end
  local seen = { slot = state.slot, frac = state.frac, rate = state.rate, last = state.last }
  pacer.open(seen, s, clock)
  return math.max(pacer.by_rate(seen, s, 1), till)
end

-- Returns the effective settings of a flow: its downstream may have lowered the rate.
function flow.obeys(state, s) return state.down and downstream.adapted(state.down, s, pacer.prepare) or s end

-- Returns whether a flow has an own setting, by its text. A pause does not count, nor does being disabled.
function flow.exists(text)
  if not text then return false end
  return not string.find(text, '^%- %- %- %- %- %- ') or string.find(text, '^[^\n]*\n[^\n]*\n[-\n]*[^-\n]') ~= nil
end

-- Returns whether a flow has its own URL, by its text.
function flow.has_url(text) return text and string.find(text, '^[^\n]*\n[^\n]*\n[^-]') ~= nil end

-- Returns the texts of a flow's own budgets (see budget.rules) and own quotas (see quota.windows); nil for one that it does not have.
local function own_use(text)
  local last = text and string.byte(text, -1)
  if last ~= 34 and last ~= 62 then return nil, nil end -- " and >
  local budgets, quotas = string.match(text, '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)\n?([^\n]*)$')
  return string.match(budgets or '', '^"(.*)"$'), string.match(quotas or '', '^<(.*)>$')
end

-- Returns a flow's own number, else the default.
local function number(own, of_all) return tonumber(own or '-') or tonumber(of_all or 0) end

-- Returns the settings of a flow: its own (the text, or false), else the defaults (see flow.OF_ALL). The default weight is 1; paused and
-- disabled default to 0. A disabled or missing flow counts as paused. With flow_keep in conf, a
-- disabled flow admits jobs (see placement.read), which wait (see empty_disabled.lua).
function flow.settings(text, of_all)
  local all_count, all_per, all_burst, all_capacity, all_in_flight, must_exist = unpack(of_all, 1, 6)
  local count, per, burst, capacity, in_flight, weight, paused, disabled =
    string.match(text or '', '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) ?(%d*)')
  disabled = tonumber(disabled or '') or 0
  local missing = must_exist == '1' and not flow.exists(text)
  local budgets, quotas = own_use(text)
  return pacer.prepare({ rate_count = number(count, all_count), rate_per = number(per, all_per), burst = number(burst, all_burst),
    capacity = number(capacity, all_capacity), max_in_flight = number(in_flight, all_in_flight), weight = number(weight, 1),
    paused = math.max(number(paused, 0), disabled, missing and 1 or 0), disabled = disabled, missing = missing,
    budgets = budgets, quotas = quotas })
end

-- Returns a copy of the settings, as of a flow that is disabled now.
function flow.disabled(settings, now)
  local disabled = {}
  for field, value in pairs(settings) do disabled[field] = value end
  disabled.paused, disabled.disabled = now, now
  return disabled
end

-- Returns the own settings of flows or groups, as texts. Most buckets have none: then one command suffices.
function flow.own_texts(key, names)
  return redis.call('HLEN', key) > 0 and redis.call('HMGET', key, unpack(names)) or {}
end

-- Returns the settings of `count` flows, from the result of flow.own_texts. Flows without own settings share one table.
function flow.all_settings(texts, of_all, count)
  local common, all = flow.settings(false, of_all), {}
  for n = 1, count do all[n] = texts[n] and flow.settings(texts[n], of_all) or common end
  return all
end

-- Return the path of a flow, and the group in a path.
function flow.path(group, name) return string.format('%d:', #group) .. group .. name end
function flow.group_of(path)
  local colon = string.find(path, ':', 1, true) or 0
  return string.sub(path, colon + 1, colon + tonumber(string.sub(path, 1, colon - 1)))
end

-- Returns the path in a header, and whether the header can be read.
local function path_of(header)
  local name, group = string.match(header, '^{"f":"([^"\\]*)","g":"([^"\\]*)"')
  if name then return flow.path(group, name), true end
  if header == '' then return flow.path('', ''), true end
  local ok, decoded = pcall(cjson.decode, header)
  if not ok or type(decoded) ~= 'table' then return flow.path('', ''), false end
  name, group = decoded.f or '', decoded.g or ''
  if type(name) ~= 'string' or type(group) ~= 'string' then return flow.path('', ''), false end
  return flow.path(group, name), true
end

-- Returns the number of the flow's list that a job is in, by its mark (see codec.lua); the normal one if that cannot be read.
function flow.list_of(mark) return flow.PRIORITY_OF[string.sub(mark or '', 13, 13)] or 3 end

-- Returns the flow that a job's header names, "" if it names none, and whether it can be read. A name
-- is unchanged except for JSON escapes. In a bucket with groups it is the path.
function flow.from_job(job, in_groups)
  local header = string.match(job, '^%S+ %S+ %S+ ([^\n]*)') or '?'
  if in_groups then return path_of(header) end
  local name = string.match(header, '^{"f":"([^"\\]*)"')
  if name then return name, true end
  if string.sub(header, 1, 5) ~= '{"f":' then return '', header == '' or string.sub(header, 1, 2) == '{"' end
  local ok, decoded = pcall(cjson.decode, header)
  if ok and type(decoded) == 'table' and type(decoded.f) == 'string' then return decoded.f, true end
  return '', false
end

-- Adds to the counts of a flow and its group; negative numbers subtract: jobs enqueued without a delay, with a delay, in flight, and
-- batch members in flight that hold no slot.
function flow.count(f, unfinished, scheduled, in_flight, followers)
  local state = f.state
  state.unfinished, state.scheduled = state.unfinished + unfinished, state.scheduled + scheduled
  state.in_flight, state.followers = state.in_flight + in_flight, state.followers + (followers or 0)
  if f.group then flow.count(f.group, unfinished, scheduled, in_flight, followers) end
end

-- Counts n jobs of the bucket as removed that were enqueued with a delay. The count stays at 0 or above: after a
-- deletion by hand it restarts, and the sweeper corrects it.
function flow.unschedule(count, n)
  if n > 0 and redis.call('HINCRBY', count, 'scheduled', -n) < 0 then redis.call('HSET', count, 'scheduled', 0) end
end

-- The fields of conf with the defaults of all flows, in the order of flow.settings. Groups have no sixth.
flow.OF_ALL = { 'flow_rate_count', 'flow_rate_per', 'flow_burst', 'flow_capacity', 'flow_max_in_flight', 'flow_must_exist' }

-- Loads up to a thousand flows by name: { name, state, settings, configured, was_held } for each.
-- fields names the defaults of groups in conf; nil for flows.
function flow.load(conf, flows, flow_settings, names, fields)
  local of_all, loaded = redis.call('HMGET', conf, unpack(fields or flow.OF_ALL)), {}
  local texts = redis.call('HMGET', flows, unpack(names))
  local settings = flow.all_settings(flow.own_texts(flow_settings, names), of_all, #names)
  for n, name in ipairs(names) do
    local state = flow.read(texts[n])
    local f = { name = name, state = state, settings = flow.obeys(state, settings[n]), configured = settings[n] }
    loaded[n], f.was_held = f, pacer.is_held(f)
  end
  return loaded
end

-- Stores the state of a flow, or removes it if the flow is idle. clock is the engine's; nil if unknown.
function flow.save(flows, f, clock)
  if flow.is_idle(f.state, f.settings, clock) then
    redis.call('HDEL', flows, f.name)
  else
    redis.call('HSET', flows, f.name, flow.write(f.state))
  end
end

-- Opens the turn queue, of flows or of groups. sooner becomes true if its head moves to an earlier time.
function flow.turn_queue(due, pace)
  return { key = due, offset = tonumber(redis.call('HGET', pace, 'offset') or 0),
    head = tonumber(redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]), sooner = false }
end

-- Returns when a flow has something to send: now if a job is in a list, else the first time in later; nil if no job waits.
-- Its places are behind keys[before].
function flow.next(keys, before, now)
  if redis.call('EXISTS', keys[before + 1], keys[before + 2], keys[before + 3], keys[before + 4]) > 0 then return now end
  return tonumber(redis.call('ZRANGE', keys[before + 5], 0, 0, 'WITHSCORES')[2])
end

-- Puts a flow in the turn queue after its places or its bounds have changed. `at` is when the added
-- jobs may go, nil if none were added. If the flow is not in the queue or
-- was held back, the time of any waiting job counts. A flow only moves to an
-- earlier time, and stays out while it is held back. now and at are of the server's clock.
function flow.recall(turn_queue, f, keys, before, now, at)
  if pacer.is_held(f) then return end
  local g = f.group
  local due = g and g.due or turn_queue.key
  if f.was_held or not redis.call('ZSCORE', due, f.name) then at = flow.next(keys, before, now) end
  if not at then return end
  local clock = now + turn_queue.offset
  local turn = math.max(at + turn_queue.offset, clock, flow.ready(f.state, f.settings, clock))
  redis.call('ZADD', due, 'LT', string.format('%d', turn), f.name)
  if g then
    g.turn = math.min(g.turn or turn, turn) -- see group.close
  elseif not turn_queue.head or turn < turn_queue.head then
    turn_queue.sooner = true
  end
end

return flow
