-- flow.lua: what the scripts know of flows; its text goes in front of theirs.
-- A flow is the jobs of one key inside a bucket. They wait in its four lists, one
-- for each priority, and in its later. A bucket without flows has the flow "",
-- of which nothing else is kept.
--
-- Where flows are in groups (see group.lua), a flow is one of its group, and its name in
-- Redis is its path: the length of the group's name in bytes, a colon, the group's name,
-- and its own. So no two flows have the same, whatever bytes are in their names.
--
-- What is kept of a flow is a text in the hash flows, by its name:
--   "slot frac rate turn unfinished scheduled in_flight"
--   slot, frac  its last slot and the fraction of it, as in pace; 0 of one without a rate
--   rate        the rate and the burst of that slot (see sender.pace), or "-"
--   turn        departures that it has had of the turn it is in (see weight)
--   unfinished, scheduled, in_flight  how many jobs there are: those that came at once, those
--               that came with a delay, and those of both that are leased
-- It is gone once all three are 0 and the slot lies behind by all of its burst.
--
-- Where an operator has given a flow settings of its own, they are a text in the hash
-- flow_settings: "rate_count rate_per burst capacity max_in_flight weight paused",
-- "-" for what it has not, then a line feed, and more that is not for scripts.
--
-- The calendar is the zset due, of each group where there are some: flow -> when its turn is, for each flow that has
-- something to send, now or later. It has a clock of its own, which never steps back:
-- the server's plus the offset in pace (see reserve.lua).

local flow = {
  PLACES = 5, -- keys of a flow: its lists, then later
  MAX_HORIZON = 200000, -- microseconds; no slot lies further ahead (see claim.lua), but for what is used of a burst
  PRIORITY_OF = { k = 1, h = 2, n = 3, l = 4 },
}

-- The state of a flow from its text, or that of one that is new.
function flow.read(text)
  local state = { slot = 0, frac = 0, rate = '-', turn = 0, unfinished = 0, scheduled = 0, in_flight = 0, new = true }
  local slot, frac, rate, turn, unfinished, scheduled, in_flight =
    string.match(text or '', '^(%d+) (%d+) (%S+) (%d+) (%d+) (%d+) (%d+)$')
  if slot then
    state.slot, state.frac, state.rate, state.turn = tonumber(slot), tonumber(frac), rate, tonumber(turn)
    state.unfinished, state.scheduled, state.in_flight = tonumber(unfinished), tonumber(scheduled), tonumber(in_flight)
    state.new = false
  end
  return state
end

-- The text of a state. Counts never go below 0: where somebody deleted it, they begin anew.
function flow.write(state)
  return string.format('%.0f %.0f %s %.0f %.0f %.0f %.0f', state.slot, state.frac, state.rate, state.turn,
    math.max(state.unfinished, 0), math.max(state.scheduled, 0), math.max(state.in_flight, 0))
end

-- Whether the state says nothing that one of a new flow would not say.
function flow.is_idle(state, now, rate_count, rate_per)
  if state.unfinished > 0 or state.scheduled > 0 or state.in_flight > 0 then return false end
  return rate_count == 0 or state.slot + rate_per / rate_count <= now
end

-- When the flow's rate lets it depart next, by the server's clock; 0: at once. A slot that lies
-- further ahead than it can is from before the clock stepped back.
function flow.ready(state, now, rate_count, rate_per, burst)
  if state.new or rate_count == 0 then return 0 end
  local interval = rate_per / rate_count
  return math.min(state.slot + (2 - burst) * interval, now + flow.MAX_HORIZON + interval)
end

-- What holds for a flow: from its own settings (the text, or false), else those of all,
-- which are rate_count, rate_per, burst, capacity, max_in_flight. The weight is 1 and
-- paused 0 unless it says so.
function flow.settings(text, of_all)
  local own = { string.match(text or '', '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)') }
  local fallback = { of_all[1], of_all[2], of_all[3], of_all[4], of_all[5], 1, 0 }
  local found = {}
  for i = 1, 7 do found[i] = tonumber(own[i] or '-') or tonumber(fallback[i] or 0) end
  return { rate_count = found[1], rate_per = found[2], burst = found[3], capacity = found[4], max_in_flight = found[5],
    weight = found[6], paused = found[7] }
end

-- The path of a flow, and the group in a path.
function flow.path(group, name) return string.format('%.0f:', #group) .. group .. name end
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
-- once, of those that came with a delay, and of those in flight. Its group counts them too.
function flow.count(f, unfinished, scheduled, in_flight)
  local state = f.state
  state.unfinished, state.scheduled = state.unfinished + unfinished, state.scheduled + scheduled
  state.in_flight = state.in_flight + in_flight
  if f.group then flow.count(f.group, unfinished, scheduled, in_flight) end
end

-- Counts jobs of the bucket that came with a delay and are gone. The count does not go below 0: where
-- somebody deleted it, it begins anew, and the sweeper makes it good.
function flow.unschedule(count, n)
  if n > 0 and redis.call('HINCRBY', count, 'scheduled', -n) < 0 then redis.call('HSET', count, 'scheduled', 0) end
end

-- Whether the flow's own bounds keep it off the calendar: until a lease of it ends, or it is resumed.
function flow.is_held(f)
  local most = f.settings.max_in_flight
  return f.settings.paused > 0 or (most > 0 and f.state.in_flight >= most)
end

-- The fields of conf that hold for all flows, as flow.settings wants them.
flow.OF_ALL = { 'flow_rate_count', 'flow_rate_per', 'flow_burst', 'flow_capacity', 'flow_max_in_flight' }

-- What is kept of the flows of these names, a thousand at most: for each { name, state, settings, was_held }.
-- fields says what in conf holds for all, of groups; nil of flows.
function flow.load(conf, flows, flow_settings, names, fields)
  local of_all, loaded = redis.call('HMGET', conf, unpack(fields or flow.OF_ALL)), {}
  local texts, own = redis.call('HMGET', flows, unpack(names)), redis.call('HMGET', flow_settings, unpack(names))
  for n, name in ipairs(names) do
    local f = { name = name, state = flow.read(texts[n]), settings = flow.settings(own[n], of_all) }
    loaded[n], f.was_held = f, flow.is_held(f)
  end
  return loaded
end

-- Keeps the state of a flow, or nothing if it says nothing.
function flow.save(flows, f, now)
  if flow.is_idle(f.state, now, f.settings.rate_count, f.settings.rate_per) then
    redis.call('HDEL', flows, f.name)
  else
    redis.call('HSET', flows, f.name, flow.write(f.state))
  end
end

-- The calendar as a script finds it: that of flows, or of groups where there are some. sooner tells in the end whether its head has moved.
function flow.calendar(due, pace)
  return { key = due, offset = tonumber(redis.call('HGET', pace, 'offset') or 0),
    head = tonumber(redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]), sooner = false }
end

-- When there is something to send of a flow whose places begin behind keys[before]: now if
-- it waits in a list, else the first time of later; nil if nothing waits.
function flow.next(keys, before, now)
  if redis.call('EXISTS', keys[before + 1], keys[before + 2], keys[before + 3], keys[before + 4]) > 0 then return now end
  return tonumber(redis.call('ZRANGE', keys[before + 5], 0, 0, 'WITHSCORES')[2])
end

-- Puts a flow on the calendar after its places or its bounds have changed: for `at`, when
-- what was put there may go, nil if nothing was; for whatever waits, if it is not there at all or
-- was held back: it may stand there for what came meanwhile and is due later than others. It may
-- come earlier than it stands there, never later, and not if it is held back.
function flow.recall(calendar, f, keys, before, now, at)
  if flow.is_held(f) then return end
  local g = f.group
  local due = g and g.due or calendar.key
  if f.was_held or not redis.call('ZSCORE', due, f.name) then at = flow.next(keys, before, now) end
  if not at then return end
  local ready = flow.ready(f.state, now, f.settings.rate_count, f.settings.rate_per, f.settings.burst)
  local turn = math.max(at, now, ready) + calendar.offset
  redis.call('ZADD', due, 'LT', string.format('%.0f', turn), f.name)
  if g then
    g.turn = math.min(g.turn or turn, turn) -- see group.close
  elseif not calendar.head or turn < calendar.head then
    calendar.sooner = true
  end
end

return flow
