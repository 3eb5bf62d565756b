-- flow.lua: what the scripts know of flows.
-- A flow is the jobs of one key inside a bucket. They wait in its four lists, one
-- for each priority, and in its later. A bucket without flows has the flow "",
-- of which nothing else is kept.
--
-- Where flows are in groups (see group.lua), a flow is one of its group, and its name in
-- Redis is its path: the length of the group's name in bytes, a colon, the group's name,
-- and its own. So no two flows have the same, whatever bytes are in their names.
--
-- What is kept of a flow is a text in the hash flows, by its name:
--   "slot frac rate turn unfinished scheduled in_flight places"
--   slot, frac  see pacer.lua; 0 of a flow without a rate
--   rate        the rate of that slot, "count/per", then "/" and the time of the last departure where that is not the
--               slot; "-" without a rate
--   turn        departures that it has had of the turn it is in (see weight)
--   unfinished, scheduled, in_flight  how many jobs there are: those that came at once, those
--               that came with a delay, and those of both that are leased
--   places      a dot, then a letter for each of its places that may hold something: k, h, n, l and d (see
--               flow.PLACE_OF). A place without its letter is empty. Then "+" and how many of in_flight are riders (see batch.lua),
--               if some are
-- It is gone once all three are 0 and the slot lies an interval behind. In front of it there is "@", what the answers of its
-- downstream say (see downstream.lua), and a space, while they say something.
--
-- Where an operator has given a flow settings of its own, they are a text in the hash
-- flow_settings: "rate_count rate_per burst capacity max_in_flight weight paused",
-- "-" for what it has not, of a disabled flow then when it was disabled (see own_settings.lua), then lines that are not for scripts, but
-- for the last two: budgets of its own, in quotes ('""' has none), and quotas of its own, in < and > ("<>" has none). own_budgets in conf
-- has the units of such budgets. With flow_must_exist in conf a flow is missing without a setting of its own: no job of it gets in, and
-- none leaves, as if it was paused.
--
-- The turn queue is the zset due, of each group where there are some: flow -> when its turn is, for each flow that has
-- something to send, now or later. Its times, and those of slots, are of the engine's clock (see pacer.lua).

--#include lib/downstream.lua
--#include lib/pacer.lua

local flow = {
  PLACES = 5, -- keys of a flow: its lists, then later
  PRIORITY_OF = { f = 1, k = 1, h = 2, n = 3, l = 4 }, -- f: see codec.goes_first
  PLACE_OF = { k = 1, h = 2, n = 3, l = 4, d = 5 },
  LETTERS = { 'k', 'h', 'n', 'l', 'd' },
}

-- Most counts are small: to look them up costs less than to make numbers of texts, and texts of numbers.
local number_of = { ['0'] = 0, ['1'] = 1, ['2'] = 2, ['3'] = 3, ['4'] = 4, ['5'] = 5, ['6'] = 6, ['7'] = 7, ['8'] = 8, ['9'] = 9 }
local small = { [0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' }

-- The state of a flow from its text, or that of one that is new: nothing is known of its places.
function flow.read(text)
  local slot, frac, rate, last = 0, 0, '-', 0
  local turn, unfinished, scheduled, in_flight, filled = string.match(text or '', '^0 0 %- (%d+) (%d+) (%d+) (%d+) (%.%a*)$')
  local riders = 0
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
        riders = 0, filled = '.khnld', new = true }
    end
    slot, frac = slot + 0, frac + 0
    last = slot
    if rate ~= '-' then rate, last = pacer.rate_of(rate, slot) end
    if string.find(filled, '+', 1, true) then
      local before, n, behind = string.match(filled, '^([^+]*)%+(%d*)(.*)$')
      filled, riders = before .. behind, tonumber(n) or 0
    end
  end
  return { slot = slot, frac = frac, rate = rate, last = last, turn = number_of[turn] or turn + 0,
    unfinished = number_of[unfinished] or unfinished + 0, scheduled = number_of[scheduled] or scheduled + 0,
    in_flight = number_of[in_flight] or in_flight + 0, riders = riders, filled = filled }
end

-- The text of a count, which is never below 0: where it was deleted by hand, it begins anew.
local function text_of(n) return small[n] or string.format('%d', n < 0 and 0 or n) end
flow.text_of = text_of

-- Of the jobs in flight one at least is no rider.
local function riders_text(state)
  local riders = math.min(state.riders, state.in_flight - 1)
  return riders > 0 and '+' .. text_of(riders) or ''
end

-- The text of a state.
function flow.write(state)
  local turn, unfinished, scheduled, in_flight = state.turn, state.unfinished, state.scheduled, state.in_flight
  local says = state.down and '@' .. downstream.write(state.down) .. ' ' or ''
  return says .. (state.slot > 0 and pacer.text(state) or '0 0 -') .. ' ' .. (small[turn] or text_of(turn)) .. ' '
    .. (small[unfinished] or text_of(unfinished)) .. ' ' .. (small[scheduled] or text_of(scheduled)) .. ' '
    .. (small[in_flight] or text_of(in_flight)) .. ' ' .. state.filled
    .. (state.riders > 0 and riders_text(state) or '')
end

-- Notes that something may lie in a place of the flow, by its letter.
function flow.fill(state, letter)
  if not string.find(state.filled, letter, 1, true) then state.filled = state.filled .. letter end
end

-- Whether the state says nothing that one of a new flow would not say. clock is the engine's; nil where it is not known.
function flow.is_idle(state, s, clock)
  if state.unfinished > 0 or state.scheduled > 0 or state.in_flight > 0 then return false end
  if state.down and not (clock and downstream.is_over(state.down, clock)) then return false end
  return s.rate_count == 0 or clock ~= nil and state.slot + s.rate_per / s.rate_count <= clock
end

-- When the flow's rate and its downstream let it depart next, by the engine's clock; 0: at once. The state stays as it is: a
-- script that has not seen the server's clock step back has a clock that is behind.
function flow.ready(state, s, clock)
  local till = state.down and state.down.till or 0
  if state.new or s.rate_count == 0 then return till end
  local seen = { slot = state.slot, frac = state.frac, rate = state.rate, last = state.last }
  pacer.open(seen, s, clock)
  return math.max(pacer.by_rate(seen, s, 1), till)
end

-- What holds for a flow of these settings: its downstream may ask for a lower rate.
function flow.obeys(state, s) return state.down and downstream.adapted(state.down, s, pacer.prepare) or s end

-- Whether a flow has a setting of its own, by its text. A pause is none, nor is that it is disabled.
function flow.exists(text)
  if not text then return false end
  return not string.find(text, '^%- %- %- %- %- %- ') or string.find(text, '^[^\n]*\n[^\n]*\n[-\n]*[^-\n]') ~= nil
end

-- Whether it has a URL of its own, by its text.
function flow.has_url(text) return text and string.find(text, '^[^\n]*\n[^\n]*\n[^-]') ~= nil end

-- The texts of the budgets (see budget.rules) and of the quotas (see quota.windows) that it has of its own, by its text; each nil where it
-- has those of all.
local function own_use(text)
  local last = text and string.byte(text, -1)
  if last ~= 34 and last ~= 62 then return nil, nil end -- " and >
  local budgets, quotas = string.match(text, '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)\n?([^\n]*)$')
  return string.match(budgets or '', '^"(.*)"$'), string.match(quotas or '', '^<(.*)>$')
end

-- A number of a flow's own, else that of all.
local function number(own, of_all) return tonumber(own or '-') or tonumber(of_all or 0) end

-- What holds for a flow: from its own settings (the text, or false), else those of all, see flow.OF_ALL. The weight is 1, paused and
-- disabled are 0 unless it says so. A disabled flow is paused too, and so is a missing one. With flow_keep in conf a
-- disabled flow takes jobs (see places.read), and they wait (see empty_disabled.lua).
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

-- The same of a flow that is disabled now.
function flow.disabled(settings, now)
  local disabled = {}
  for field, value in pairs(settings) do disabled[field] = value end
  disabled.paused, disabled.disabled = now, now
  return disabled
end

-- What flows, or groups, have of their own: their texts. Most buckets have none: then it is not asked for each.
function flow.own_texts(key, names)
  return redis.call('HLEN', key) > 0 and redis.call('HMGET', key, unpack(names)) or {}
end

-- The settings of so many flows, by what flow.own_texts says: those that have none of their own share one table.
function flow.all_settings(texts, of_all, count)
  local common, all = flow.settings(false, of_all), {}
  for n = 1, count do all[n] = texts[n] and flow.settings(texts[n], of_all) or common end
  return all
end

-- The path of a flow, and the group in a path.
function flow.path(group, name) return string.format('%d:', #group) .. group .. name end
function flow.group_of(path)
  local colon = string.find(path, ':', 1, true) or 0
  return string.sub(path, colon + 1, colon + tonumber(string.sub(path, 1, colon - 1)))
end

-- The path that a header makes, and whether it can be read.
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

-- Which of its flow's lists a job is in, by its mark (see codec.lua); the normal one where that cannot be read.
function flow.list_of(mark) return flow.PRIORITY_OF[string.sub(mark or '', 13, 13)] or 3 end

-- The flow that a job's header names, "" if it names none, and whether it can be read. A name
-- is there as it is but for what JSON escapes. Where flows are in groups it is the path.
function flow.of(job, in_groups)
  local header = string.match(job, '^%S+ %S+ %S+ ([^\n]*)') or '?'
  if in_groups then return path_of(header) end
  local name = string.match(header, '^{"f":"([^"\\]*)"')
  if name then return name, true end
  if string.sub(header, 1, 5) ~= '{"f":' then return '', header == '' or string.sub(header, 1, 2) == '{"' end
  local ok, decoded = pcall(cjson.decode, header)
  if ok and type(decoded) == 'table' and type(decoded.f) == 'string' then return decoded.f, true end
  return '', false
end

-- Counts jobs that come to a flow, or, with numbers below 0, go from it: of those that came at
-- once, of those that came with a delay, of those in flight, and of the riders among these. Its group counts them too.
function flow.count(f, unfinished, scheduled, in_flight, riders)
  local state = f.state
  state.unfinished, state.scheduled = state.unfinished + unfinished, state.scheduled + scheduled
  state.in_flight, state.riders = state.in_flight + in_flight, state.riders + (riders or 0)
  if f.group then flow.count(f.group, unfinished, scheduled, in_flight, riders) end
end

-- Counts jobs of the bucket that came with a delay and are gone. The count does not go below 0: where
-- it was deleted by hand, it begins anew, and the sweeper makes it good.
function flow.unschedule(count, n)
  if n > 0 and redis.call('HINCRBY', count, 'scheduled', -n) < 0 then redis.call('HSET', count, 'scheduled', 0) end
end

-- The fields of conf that hold for all flows, as flow.settings wants them. Groups have no sixth.
flow.OF_ALL = { 'flow_rate_count', 'flow_rate_per', 'flow_burst', 'flow_capacity', 'flow_max_in_flight', 'flow_must_exist' }

-- What is kept of the flows of these names, a thousand at most: for each { name, state, settings, configured, was_held }.
-- fields says what in conf holds for all, of groups; nil of flows.
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

-- Keeps the state of a flow, or nothing if it says nothing. clock is the engine's; nil where it is not known.
function flow.save(flows, f, clock)
  if flow.is_idle(f.state, f.settings, clock) then
    redis.call('HDEL', flows, f.name)
  else
    redis.call('HSET', flows, f.name, flow.write(f.state))
  end
end

-- The turn queue as a script finds it: that of flows, or of groups where there are some. sooner says in the end whether its head moved.
function flow.turn_queue(due, pace)
  return { key = due, offset = tonumber(redis.call('HGET', pace, 'offset') or 0),
    head = tonumber(redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]), sooner = false }
end

-- When there is something to send of a flow whose places begin behind keys[before]: now if
-- it waits in a list, else the first time of later; nil if nothing waits.
function flow.next(keys, before, now)
  if redis.call('EXISTS', keys[before + 1], keys[before + 2], keys[before + 3], keys[before + 4]) > 0 then return now end
  return tonumber(redis.call('ZRANGE', keys[before + 5], 0, 0, 'WITHSCORES')[2])
end

-- Puts a flow in the turn queue after its places or its bounds have changed: for `at`, when
-- what was put there may go, nil if nothing was; for whatever waits, if it is not there at all or
-- was held back: it may stand there for what came meanwhile and is due later than others. It may
-- come earlier than it stands there, never later, and not if it is held back. now and at are of the server's clock.
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
