-- pending.lua: what waits in the places of a flow, in the order in which it
-- leaves; its text goes in front of claim.lua. It only reads.
--
-- Within a list jobs leave in their order. Of two lists, the one goes first whose
-- head came first, where a step down in priority counts as having come by `aging`
-- later: so the important leave first and nobody starves. What is due in later
-- goes before the lists.

--#include lib/flow.lua

local pending = {
  CHUNK = 500,
  MAX_LOOKED_AT = 4000, -- ids that a run looks at: leftovers of cancelled jobs may be many
}

-- What a run of the script reads with: the keys of bodies and metas, how many
-- crashes put a job on its last chance, whether flows are in groups, how many bytes of bodies it reads ahead, those that it
-- has read, and the ids that it has handled already.
function pending.reader(body, meta, last_chance, aging, in_groups, most_bytes)
  return { body = body, meta = meta, last_chance = last_chance, aging = aging, in_groups = in_groups, most_bytes = most_bytes,
    bytes = 0, handled = {}, looked_at = 0 }
end

local function open_list(key, class, at_once)
  -- One more than is handed out: so it is known whether that was all.
  local ids = redis.call('LRANGE', key, 0, at_once)
  return { key = key, class = class, popped = 0, ids = ids, entries = {}, at = 1, at_once = at_once, ended = #ids <= at_once }
end

-- The places of a flow that are those keys after the base-th. at_once says how many
-- jobs are read at first: bodies may be large. 0 says that none will be handed out:
-- then it is only known whether there are some. name is that of the flow, nil in a
-- bucket without.
function pending.open(base, at_once, name)
  local critical, high, normal, low, later = KEYS[base + 1], KEYS[base + 2], KEYS[base + 3], KEYS[base + 4], KEYS[base + 5]
  local lists = {}
  -- Most flows have jobs of one priority and none in later: that is two commands.
  local rest = redis.call('EXISTS', critical, high, low, later)
  if at_once == 0 then
    if redis.call('EXISTS', critical, high, normal, low) > 0 then
      lists[1] = { ids = {}, at = 1, at_once = 1, popped = 0, entries = {} }
    end
    at_once = 1
  elseif rest > 0 then
    lists[1], lists[2], lists[3], lists[4] = open_list(critical, 1, at_once), open_list(high, 2, at_once),
      open_list(normal, 3, at_once), open_list(low, 4, at_once)
    for i = 4, 1, -1 do
      if #lists[i].ids == 0 then table.remove(lists, i) end
    end
  else
    local list = open_list(normal, 3, at_once)
    if #list.ids > 0 then lists[1] = list end
  end
  return { lists = lists, later = later, due = {}, due_at = 1, due_before = 0, due_more = rest > 0, at_once = at_once,
    name = name, gone = {}, aside = {}, has_later = rest > 0 }
end

function pending.on_last_chance(reader, stored)
  return stored and tonumber(string.match(stored, '^%d %d+ %d+ %d+ (%d+) ') or 0) >= reader.last_chance
end

-- What a body says to scripts: when the job came, whether it came with a delay, and when it expires (nil never).
function pending.told(job)
  local came, kind, expires = string.match(job, '^%-?%d+ (%d+) ...........(%a)%a?%d*~?(%d*)')
  if not came then return 0, false, nil end
  return tonumber(came), kind ~= string.lower(kind), expires ~= '' and tonumber(came) + tonumber(expires) or nil
end

-- The next id of later that is due until then and its time, or nil.
function pending.peek_due(waiting, latest)
  if waiting.due_at > #waiting.due and waiting.due_more then
    waiting.due_before = waiting.due_before + #waiting.due / 2
    waiting.due = redis.call('ZRANGEBYSCORE', waiting.later, '-inf', string.format('%.0f', latest), 'WITHSCORES',
      'LIMIT', waiting.due_before, waiting.at_once)
    waiting.due_at, waiting.due_more = 1, #waiting.due == 2 * waiting.at_once
    waiting.at_once = math.min(2 * waiting.at_once, pending.CHUNK)
  end
  return waiting.due[waiting.due_at], tonumber(waiting.due[waiting.due_at + 1])
end

-- When the first of later is due that was not passed; nil if there is none. What was
-- set aside is there again, at the times that it was given.
function pending.due_next(waiting)
  if not waiting.has_later then return tonumber(waiting.aside[1]) end
  local passed = waiting.due_before + (waiting.due_at - 1) / 2
  local soonest = tonumber(redis.call('ZRANGE', waiting.later, passed, passed, 'WITHSCORES')[2] or waiting.aside[1])
  if soonest and waiting.aside[1] then soonest = math.min(soonest, tonumber(waiting.aside[1])) end
  return soonest
end

-- Whether the list is where the job of an entry waits. One that came with a delay
-- is in later until it is claimed for the first time.
local function in_list(reader, waiting, entry)
  if reader.handled[entry.id] or not (entry.body or entry.alone) then return false end
  -- The id of a cancelled job may be that of a job in another flow by now. A body that nobody can read goes out.
  if entry.body and waiting.name then
    local name, readable = flow.of(entry.body, reader.in_groups)
    if readable and name ~= waiting.name then return false end
  end
  if entry.meta then return string.sub(entry.meta, 1, 1) == '1' end
  return not entry.delayed and entry.came > 0
end

-- Reads the metas of jobs and the bodies, but of those on their last chance: of these
-- many may have to be passed.
local function read(reader, ids, entries)
  if #ids == 0 then return end
  local metas, wanted, of = redis.call('HMGET', reader.meta, unpack(ids)), {}, {}
  for i, id in ipairs(ids) do
    local entry, stored = entries[i], metas[i]
    entry.id, entry.came = id, 0
    if stored then
      entry.meta = stored
      entry.alone = pending.on_last_chance(reader, stored)
    end
    if not entry.alone then wanted[#wanted + 1], of[#of + 1] = id, entry end
  end
  local bodies = #wanted > 0 and redis.call('HMGET', reader.body, unpack(wanted))
  for i, entry in ipairs(of) do
    entry.body = bodies[i]
    if entry.body then entry.came, entry.delayed, entry.expires = pending.told(entry.body) end
  end
end

-- The ids of a list whose jobs are read next, up to `most` of them, are added to `ids`: one if there is none yet, and more
-- while their bodies are within the bytes that the run reads ahead.
local function unread(reader, list, ids, entries, most)
  for at = #list.entries + 1, math.min(#list.ids, #list.entries + list.at_once, #list.entries + most) do
    local entry, bytes = {}, redis.call('HSTRLEN', reader.body, list.ids[at])
    if #ids > 0 and reader.bytes + bytes > reader.most_bytes then break end
    reader.bytes = reader.bytes + bytes
    list.entries[at], entries[#entries + 1], ids[#ids + 1] = entry, entry, list.ids[at]
  end
  list.at_once = math.min(2 * list.at_once, pending.CHUNK)
end

-- Reads the first jobs of many flows at once, which is cheaper than one by one.
function pending.read_heads(reader, flows)
  local ids, entries = {}, {}
  for _, f in ipairs(flows) do
    for _, list in ipairs(f.places.lists) do
      if #ids < pending.CHUNK then unread(reader, list, ids, entries, pending.CHUNK - #ids) end
    end
  end
  read(reader, ids, entries)
end

-- The next of a list that is still a waiting job, or nil. Others are leftovers of
-- cancelled jobs; they are popped without a slot.
local function peek(reader, waiting, list)
  while true do
    local entry = list.entries[list.at]
    if entry then
      if in_list(reader, waiting, entry) then return entry end
      list.at, list.popped = list.at + 1, list.popped + 1
      reader.looked_at = reader.looked_at + 1
    elseif reader.looked_at >= pending.MAX_LOOKED_AT then
      return nil
    elseif list.at <= #list.ids then
      local ids, entries = {}, {}
      unread(reader, list, ids, entries, pending.CHUNK)
      read(reader, ids, entries)
    elseif list.ended then
      return nil
    else
      list.ids = redis.call('LRANGE', list.key, list.popped, list.popped + list.at_once)
      list.entries, list.at, list.ended = {}, 1, #list.ids <= list.at_once
    end
  end
end

-- The job of the lists that leaves next and its list, or nil.
function pending.peek(reader, waiting)
  local first, of, earliest
  for _, list in ipairs(waiting.lists) do
    local entry = peek(reader, waiting, list)
    local counts_as = entry and entry.came + (list.class - 1) * reader.aging
    if entry and (not first or counts_as < earliest) then first, of, earliest = entry, list, counts_as end
  end
  return first, of
end

-- Passes the entry that peek or peek_due told of.
function pending.pass(waiting, list)
  if list then
    list.at, list.popped = list.at + 1, list.popped + 1
  else
    waiting.due_at = waiting.due_at + 2
  end
end

-- Whether lists hold more than was passed.
function pending.left(waiting)
  for _, list in ipairs(waiting.lists) do
    if list.at <= #list.ids or not list.ended then return true end
  end
  return false
end

-- Takes what was passed off the lists, what is gone off later, and puts there what was set aside.
function pending.write(waiting)
  for _, list in ipairs(waiting.lists) do
    if list.popped > 0 then redis.call('LPOP', list.key, list.popped) end
  end
  for i = 1, #waiting.gone, pending.CHUNK do
    redis.call('ZREM', waiting.later, unpack(waiting.gone, i, math.min(i + pending.CHUNK - 1, #waiting.gone)))
  end
  for i = 1, #waiting.aside, pending.CHUNK do
    redis.call('ZADD', waiting.later, unpack(waiting.aside, i, math.min(i + pending.CHUNK - 1, #waiting.aside)))
  end
end

return pending
