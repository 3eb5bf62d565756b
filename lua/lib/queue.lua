-- queue.lua: the waiting jobs of a flow, in the order in which they leave. It only reads, until
-- queue.write.
--
-- Within a list jobs leave in their order. Of two lists, the one goes first whose
-- head came first. Each step down in priority counts as having come `aging`
-- later. So important jobs leave first and none starves. Due jobs of later
-- go before the lists.
--
-- Bodies may be large. A run reads as many at once as fit into most_bytes if all are as large as `largest`: the largest
-- body since the bucket was empty, which enqueue.lua keeps in …:pace. It reads no further once it has read more.

--#include lib/flow.lua
--#include lib/codec.lua

local queue = {
  CHUNK = 500,
  MAX_LOOKED_AT = 4000, -- ids that a run looks at: leftovers of cancelled jobs may be many
  LARGEST = 1048576, -- bytes, where none is kept
}

-- What a run of the script reads with: the keys of bodies and metas, how many crashes put a job on its last chance,
-- whether flows are in groups, the bytes that it may read, and of the bucket: the largest body, whether jobs expire,
-- and whether lists hold ids of jobs that were cancelled.
function queue.reader(body, meta, last_chance, aging, in_groups, most_bytes, largest, expiring, leftovers)
  return { body = body, meta = meta, last_chance = last_chance, aging = aging, in_groups = in_groups,
    at_once = math.max(math.min(math.floor(most_bytes / math.max(largest or queue.LARGEST, 1)), queue.CHUNK), 1),
    expiring = expiring, leftovers = leftovers, bytes = 0, handled = {}, looked_at = 0 }
end

local NONE = {} -- of the many queues that have none

local function open_list(key, class, at_once)
  -- One more than is handed out: so it is known whether that was all.
  local ids = redis.call('LRANGE', key, 0, at_once)
  return { key = key, class = class, ids = ids, bodies = {}, metas = {}, read = 0, at = 1, popped = 0, at_once = at_once,
    ended = #ids <= at_once }
end

-- The places of a flow that are those keys after the base-th. at_once says how many
-- jobs are read at first. 0 says that none will be handed out:
-- then it is only known whether there are some. name is that of the flow, and filled says which places may hold something
-- (see flow.lua); both are nil in a bucket without flows.
function queue.open(base, at_once, name, filled)
  local lists, later = {}, KEYS[base + flow.PLACES]
  if not filled then
    -- Most buckets have jobs of one priority and none in later: that is two commands.
    local rest = redis.call('EXISTS', KEYS[base + 1], KEYS[base + 2], KEYS[base + 4], later) > 0
    filled = rest and '.khnld' or '.n'
  end
  local has_later = filled ~= '.n' and string.find(filled, 'd', 1, true) ~= nil
  if at_once == 0 then
    if redis.call('EXISTS', KEYS[base + 1], KEYS[base + 2], KEYS[base + 3], KEYS[base + 4]) > 0 then
      lists[1] = { ids = { '' }, bodies = {}, metas = {}, read = 0, at = 1, at_once = 1, popped = 0, ended = true }
    end
    at_once = 1
  elseif filled == '.n' then
    local list = open_list(KEYS[base + 3], 3, at_once)
    if #list.ids > 0 then lists[1] = list end
  else
    for class = 1, 4 do
      if string.find(filled, flow.LETTERS[class], 1, true) then
        local list = open_list(KEYS[base + class], class, at_once)
        if #list.ids > 0 then lists[#lists + 1] = list end
      end
    end
  end
  return { lists = lists, later = later, due = NONE, due_at = 1, due_before = 0, due_more = has_later, at_once = at_once,
    name = name, gone = NONE, aside = NONE, has_later = has_later }
end

-- The next id of later that is due until then and its time, or nil.
function queue.peek_due(q, latest)
  if q.due_at > #q.due and q.due_more then
    q.due_before = q.due_before + #q.due / 2
    q.due = redis.call('ZRANGEBYSCORE', q.later, '-inf', string.format('%.0f', latest), 'WITHSCORES', 'LIMIT', q.due_before, q.at_once)
    q.due_at, q.due_more = 1, #q.due == 2 * q.at_once
    q.at_once = math.min(2 * q.at_once, queue.CHUNK)
  end
  return q.due[q.due_at], tonumber(q.due[q.due_at + 1])
end

-- When the first of later is due that was not passed; nil if there is none. What was
-- set aside is there again, at the times that it was given.
function queue.due_next(q)
  if not q.has_later then return tonumber(q.aside[1]) end
  local passed = q.due_before + (q.due_at - 1) / 2
  local soonest = tonumber(redis.call('ZRANGE', q.later, passed, passed, 'WITHSCORES')[2] or q.aside[1])
  if soonest and q.aside[1] then soonest = math.min(soonest, tonumber(q.aside[1])) end
  return soonest
end

-- Whether a job waits in the list where its id was found. Where lists hold leftovers of cancelled jobs, the id may be that of
-- a job elsewhere by now: of another flow, or of one that came with a delay and is in later. A body that nobody can read goes
-- out. Of a job on its last chance no body was read.
local function waits_here(reader, q, id, job, stored)
  if job and not stored and not reader.leftovers then return true end
  if stored and string.sub(stored, 1, 1) ~= codec.QUEUED then return false end
  if not job and not (stored and codec.on_last_chance(stored, reader.last_chance)) then return false end
  if not reader.leftovers then return true end
  if reader.handled[id] then return false end
  if job and q.name then
    local name, readable = flow.of(job, reader.in_groups)
    if readable and name ~= q.name then return false end
  end
  if stored then return true end
  local came, delayed = codec.told(job)
  return not delayed and came > 0
end

-- Reads the metas of jobs and the bodies, but of those on their last chance: of these many may have to be passed. Puts them
-- into lists, of which each has so many of the ids.
local function read(reader, ids, lists, counts)
  if #ids == 0 then return end
  local metas, wanted = redis.call('HMGET', reader.meta, unpack(ids)), ids
  local alone
  for i = 1, #ids do
    if metas[i] and codec.on_last_chance(metas[i], reader.last_chance) then
      alone = alone or {}
      alone[i] = true
    end
  end
  if alone then
    wanted = {}
    for i = 1, #ids do
      if not alone[i] then wanted[#wanted + 1] = ids[i] end
    end
  end
  local bodies = #wanted > 0 and redis.call('HMGET', reader.body, unpack(wanted)) or {}
  local i, b, bytes = 0, 0, 0
  for n, list in ipairs(lists) do
    local upto, list_metas, list_bodies = list.read + counts[n], list.metas, list.bodies
    for at = list.read + 1, upto do
      i = i + 1
      local job = false
      if not (alone and alone[i]) then
        b = b + 1
        job = bodies[b]
        if job then bytes = bytes + #job end
      end
      list_metas[at], list_bodies[at] = metas[i], job
    end
    list.read = upto
  end
  reader.bytes = reader.bytes + bytes
end

-- Reads the first jobs of many flows at once, which is cheaper than one by one.
function queue.read_heads(reader, flows)
  local ids, lists, counts, i, l = {}, {}, {}, 0, 0
  for _, f in ipairs(flows) do
    for _, list in ipairs(f.queue.lists) do
      local n = math.min(#list.ids, list.at_once, reader.at_once - i)
      if n > 0 then
        l = l + 1
        lists[l], counts[l] = list, n
        for at = 1, n do ids[i + at] = list.ids[at] end
        i = i + n
        list.at_once = math.min(2 * list.at_once, queue.CHUNK)
      end
    end
  end
  read(reader, ids, lists, counts)
end

local function read_more(reader, list)
  local n = math.min(#list.ids - list.read, list.at_once, reader.at_once)
  local ids = { unpack(list.ids, list.read + 1, list.read + n) }
  read(reader, ids, { list }, { n })
  list.at_once = math.min(2 * list.at_once, queue.CHUNK)
end

-- Whether the list has a waiting job, which is then at list.at. Other ids are leftovers of
-- cancelled jobs; they are popped without a slot.
local function peek(reader, q, list)
  while true do
    local at = list.at
    if at <= list.read then
      if waits_here(reader, q, list.ids[at], list.bodies[at], list.metas[at]) then return true end
      list.at, list.popped = at + 1, list.popped + 1
      reader.looked_at = reader.looked_at + 1
    elseif reader.looked_at >= queue.MAX_LOOKED_AT then
      return false
    elseif at <= #list.ids then
      read_more(reader, list)
    elseif list.ended then
      return false
    else
      list.ids = redis.call('LRANGE', list.key, list.popped, list.popped + list.at_once)
      list.bodies, list.metas, list.read, list.at, list.ended = {}, {}, 0, 1, #list.ids <= list.at_once
    end
  end
end

-- Returns the list whose head leaves next, or nil.
function queue.peek(reader, q)
  local lists = q.lists
  if #lists == 1 then return peek(reader, q, lists[1]) and lists[1] or nil end
  local first, earliest
  for _, list in ipairs(lists) do
    if peek(reader, q, list) then
      local job = list.bodies[list.at]
      local counts_as = (job and codec.told(job) or 0) + (list.class - 1) * reader.aging
      if not first or counts_as < earliest then first, earliest = list, counts_as end
    end
  end
  return first
end

-- Passes the head of a list, or the job that peek_due returned.
function queue.pass(q, list)
  if list then
    list.at, list.popped = list.at + 1, list.popped + 1
  else
    q.due_at = q.due_at + 2
  end
end

-- Notes an id of later that is to be taken off.
function queue.take_off(q, id)
  if q.gone == NONE then q.gone = {} end
  q.gone[#q.gone + 1] = id
end

-- Notes an id that is to be put into later, for that time.
function queue.set_aside(q, at, id)
  if q.aside == NONE then q.aside = {} end
  q.aside[#q.aside + 1], q.aside[#q.aside + 2] = at, id
end

-- Whether lists hold more than was passed.
function queue.left(q)
  for _, list in ipairs(q.lists) do
    if list.at <= #list.ids or not list.ended then return true end
  end
  return false
end

-- Which places may hold something when the run is over, as flow.lua writes it; left: what queue.left says.
function queue.filled(q, before, left)
  if before == '.n' and q.aside == NONE then return left and '.n' or '.' end
  local filled = '.'
  for _, list in ipairs(q.lists) do
    -- Of a list that was not read it is not known which it is.
    if not list.class then return before end
    if list.at <= #list.ids or not list.ended then filled = filled .. flow.LETTERS[list.class] end
  end
  if q.aside[1] or (q.has_later and queue.due_next(q)) then filled = filled .. 'd' end
  return filled
end

-- Removes passed jobs from the lists and gone jobs from later, and puts the jobs there that were set aside.
function queue.write(q)
  for _, list in ipairs(q.lists) do
    if list.popped > 0 then redis.call('LPOP', list.key, list.popped) end
  end
  if q.gone == NONE and q.aside == NONE then return end
  for i = 1, #q.gone, queue.CHUNK do
    redis.call('ZREM', q.later, unpack(q.gone, i, math.min(i + queue.CHUNK - 1, #q.gone)))
  end
  for i = 1, #q.aside, queue.CHUNK do
    redis.call('ZADD', q.later, unpack(q.aside, i, math.min(i + queue.CHUNK - 1, #q.aside)))
  end
end

return queue
