-- queue.lua: the waiting jobs of a flow, in the order of their departure. It only reads, until
-- queue.write.
--
-- Jobs of a list depart in its order. Of two lists, the one whose
-- head was enqueued first is next. Each step down in priority counts as enqueued `aging`
-- later. So important jobs depart first and none starves. Due jobs of later
-- precede the lists. A job with a waiting client (see codec.goes_first) precedes
-- all of them, once it is the head of its list.
--
-- Bodies may be large. A run reads only as many at once as would fit into most_bytes if all were as large as `largest`: the largest
-- body since the bucket was empty, kept by enqueue.lua in …:pace. It stops once it has read more bytes than that.
--
--   …:body  hash  id -> "base time mark index envelope": sequence number, time of enqueue, mark, header and payload (see codec.lua)
--   …:meta  hash  id -> "state epoch attempts lost crashes claim last", from the first claim on (see codec.lua)
--   …:count  hash  seq: the last sequence number; batches: the number of the last batch; scheduled: jobs enqueued with a delay; window: see
--          window_tally.lua; purge_…, purged: of the last purge (see purge.lua); forgotten, seen_of:…: see dedupe.lua;
--          dead_bytes, dead_of:… and others: see dlq.lua; results_dropped, result_bytes: see results.lua; events_dropped: see
--          outbox.lua; held, open, half_open: flows that wait for their downstream (see sweep.lua); oldest: see oldest_waiting.lua;
--          late: see note_late.lua; disabled_deaths: see disabled_deaths.lua

--#include lib/codec.lua
--#include lib/flow.lua
--#include lib/in_chunks.lua

local queue = {
  CHUNK = 500,
  MAX_LOOKED_AT = 4000, -- ids that a run inspects: cancelled jobs may have left many
  LARGEST = 1048576, -- bytes, if no largest body is stored
}

-- Returns what a run needs to read jobs: the keys of bodies and metas; last_chance, the crashes after which a job gets its last chance;
-- whether flows are in groups; the bytes that it may read. From the bucket: the largest body, whether jobs expire, and
-- whether lists may hold ids of cancelled jobs.
function queue.reader(body, meta, last_chance, aging, in_groups, most_bytes, largest, expiring, leftovers)
  return { body = body, meta = meta, last_chance = last_chance, aging = aging, in_groups = in_groups,
    at_once = math.max(math.min(math.floor(most_bytes / math.max(largest or queue.LARGEST, 1)), queue.CHUNK), 1),
    expiring = expiring, leftovers = leftovers, bytes = 0, handled = {}, looked_at = 0 }
end

local NONE = {} -- for lists that were not read yet

-- Reads one id more than needed, to know whether the list has more. upto is at_once as a text, which is cheaper for
-- Redis than a number.
local function open_list(key, class, at_once, upto)
  local ids = redis.call('LRANGE', key, '0', upto)
  return { key = key, class = class, ids = ids, bodies = NONE, metas = NONE, shift = 0, read = 0, at = 1, popped = 0,
    at_once = at_once, ended = #ids <= at_once }
end

-- Opens the places of a flow, the keys after the base-th: a table of its lists that are not empty, with more fields. at_once
-- is the number of jobs read at first, upto the same as a text. With 0 no jobs are handed out:
-- the result only shows whether there are any. name is the flow's name, and filled the places that may hold something
-- (see flow.lua); both are nil in a bucket without flows.
function queue.open(base, at_once, upto, name, filled)
  local later = KEYS[base + flow.PLACES]
  if not filled then
    -- Most buckets have jobs of one priority and none in later: that is two commands.
    local rest = redis.call('EXISTS', KEYS[base + 1], KEYS[base + 2], KEYS[base + 4], later) > 0
    filled = rest and '.khnld' or '.n'
  end
  if filled == '.n' and at_once > 0 then
    local list = open_list(KEYS[base + 3], 3, at_once, upto)
    return { list.ids[1] and list or nil, later = later, name = name, at_once = at_once }
  end
  local q = { later = later, name = name, at_once = math.max(at_once, 1) }
  if at_once == 0 then
    if redis.call('EXISTS', KEYS[base + 1], KEYS[base + 2], KEYS[base + 3], KEYS[base + 4]) > 0 then
      q[1] = { ids = { '' }, bodies = NONE, metas = NONE, shift = 0, read = 0, at = 1, at_once = 1, popped = 0, ended = true }
    end
  else
    for class = 1, 4 do
      if string.find(filled, flow.LETTERS[class], 1, true) then
        local list = open_list(KEYS[base + class], class, at_once, upto)
        if list.ids[1] then q[#q + 1] = list end
      end
    end
  end
  if string.find(filled, 'd', 1, true) then q.due = { at = 1, before = 0, more = true } end
  return q
end

-- Returns the next id of later that is due by `latest` and its time, or nil. q.due holds the ids and times read, q.due.before the
-- number read before them; q.due is nil if later is empty.
function queue.peek_due(q, latest)
  local due = q.due
  if due.at > #due and due.more then
    local before, at_once = due.before + #due / 2, q.at_once
    due = redis.call('ZRANGEBYSCORE', q.later, '-inf', string.format('%d', latest), 'WITHSCORES', 'LIMIT', before, at_once)
    due.at, due.before, due.more = 1, before, #due == 2 * at_once
    q.due, q.at_once = due, math.min(2 * at_once, queue.CHUNK)
  end
  return due[due.at], tonumber(due[due.at + 1])
end

-- Returns when the first job of later that was not passed is due; nil if there is none. Parked
-- jobs count, at their new times.
function queue.due_next(q)
  local due, parked = q.due, q.parked and tonumber(q.parked[1])
  if not due then return parked end
  local passed = due.before + (due.at - 1) / 2
  local soonest = tonumber(redis.call('ZRANGE', q.later, passed, passed, 'WITHSCORES')[2] or parked)
  if soonest and parked then soonest = math.min(soonest, parked) end
  return soonest
end

-- Returns whether a job waits in the list that has its id. If lists hold ids of cancelled jobs, the id may by now belong to a job
-- elsewhere: of another flow, or one enqueued with a delay, in later. An id whose body cannot be read is
-- removed. For a job on its last chance no body was read.
local function waits_here(reader, q, id, job, stored)
  if job and not stored and not reader.leftovers then return true end
  if stored and string.sub(stored, 1, 1) ~= codec.QUEUED then return false end
  if not job and not (stored and codec.on_last_chance(stored, reader.last_chance)) then return false end
  if not reader.leftovers then return true end
  if reader.handled[id] then return false end
  if job and q.name then
    local name, readable = flow.from_job(job, reader.in_groups)
    if readable and name ~= q.name then return false end
  end
  if stored then return true end
  local came, delayed = codec.times(job)
  return not delayed and came > 0
end

-- Reads the bodies of jobs, except of jobs on their last chance: many of them may have to be passed.
local function read_bodies(reader, ids, metas)
  local function is_alone(i) return metas[i] and codec.on_last_chance(metas[i], reader.last_chance) end
  local some_alone = false
  for i = 1, #ids do some_alone = some_alone or metas[i] and is_alone(i) end
  if not some_alone then return redis.call('HMGET', reader.body, unpack(ids)) end
  local bodies, wanted, places = {}, {}, {}
  for i, id in ipairs(ids) do
    if not is_alone(i) then wanted[#wanted + 1], places[#places + 1] = id, i end
  end
  if #wanted == 0 then return bodies end
  for n, job in ipairs(redis.call('HMGET', reader.body, unpack(wanted))) do bodies[places[n]] = job end
  return bodies
end

-- Reads the metas and bodies of jobs into lists; each list has `counts` of the ids, in order. The lists share the tables: the values for
-- list.ids[n] are at n + list.shift.
local function read(reader, ids, lists, counts)
  if #ids == 0 then return end
  local metas = redis.call('HMGET', reader.meta, unpack(ids))
  local bodies = read_bodies(reader, ids, metas)
  local before, bytes = 0, 0
  for i = 1, #ids do
    if bodies[i] then bytes = bytes + #bodies[i] end
  end
  for i, list in ipairs(lists) do
    local n = counts[i]
    list.metas, list.bodies, list.shift, list.read = metas, bodies, before - list.read, list.read + n
    before = before + n
  end
  reader.bytes = reader.bytes + bytes
end

-- Reads the first jobs of many flows with one call each for metas and bodies, which is cheaper than one by one.
function queue.read_heads(reader, flows)
  local ids, lists, counts, i, l, most = {}, {}, {}, 0, 0, reader.at_once
  for _, f in ipairs(flows) do
    local q = f.queue
    for number = 1, #q do
      local list = q[number]
      local own, n = list.ids, list.at_once
      if n > #own then n = #own end
      if n > most - i then n = most - i end
      if n > 0 then
        l = l + 1
        lists[l], counts[l] = list, n
        for at = 1, n do ids[i + at] = own[at] end
        i = i + n
      end
    end
  end
  read(reader, ids, lists, counts)
end

-- Doubles the number of jobs that the next read of a list fetches.
local function grow(list) list.at_once = math.min(2 * list.at_once, queue.CHUNK) end

local function read_more(reader, list)
  grow(list)
  local n = math.min(#list.ids - list.read, list.at_once, reader.at_once)
  local ids = { unpack(list.ids, list.read + 1, list.read + n) }
  read(reader, ids, { list }, { n })
end

-- Returns the body and the meta of the job at the head of a list; nil for each that does not exist or was not read yet.
function queue.head(list)
  local n = list.at
  if n > list.read then return nil end
  n = n + list.shift
  return list.bodies[n], list.metas[n]
end

-- Reads the job at the head of a list, or a job of later if list is nil. Returns its body; its meta; whether it waits there; whether it is
-- on its last chance; and whether it stays for that reason, as such a job may not go: then its body was not read.
function queue.read_job(reader, list, id, may_go)
  local job, stored
  if list then job, stored = queue.head(list) else stored = redis.call('HGET', reader.meta, id) end
  local alone = stored and codec.on_last_chance(stored, reader.last_chance)
  local stays = alone and not may_go
  local kind = list and codec.QUEUED or stored and string.sub(stored, 1, 1) or codec.SCHEDULED
  local waits = list or kind == codec.SCHEDULED or kind == codec.RETRYING
  if waits and not job and not stays then
    job = redis.call('HGET', reader.body, id)
    waits = job
    if job then reader.bytes = reader.bytes + #job end
  end
  return job, stored, waits, alone, stays
end

-- Returns whether the list has a waiting job, which is then at list.at. Other ids belong to
-- cancelled jobs; they are popped without a slot.
local function peek(reader, q, list)
  while true do
    local at = list.at
    if at <= list.read then
      if waits_here(reader, q, list.ids[at], queue.head(list)) then return true end
      list.at, list.popped = at + 1, list.popped + 1
      reader.looked_at = reader.looked_at + 1
    elseif reader.looked_at >= queue.MAX_LOOKED_AT then
      return false
    elseif at <= #list.ids then
      read_more(reader, list)
    elseif list.ended then
      return false
    else
      grow(list)
      list.ids = redis.call('LRANGE', list.key, list.popped, list.popped + list.at_once)
      list.shift, list.read, list.at, list.ended = 0, 0, 1, #list.ids <= list.at_once
    end
  end
end

-- Returns the list of critical jobs, if its head precedes all others; else nil.
function queue.peek_first(reader, q)
  local list = q[1]
  if not list or list.class ~= 1 or not peek(reader, q, list) then return nil end
  local job = queue.head(list)
  return job and codec.goes_first(job) and list or nil
end

-- Returns the list whose head departs next, or nil.
function queue.peek(reader, q)
  if #q < 2 then return q[1] and peek(reader, q, q[1]) and q[1] or nil end
  local first, earliest
  for _, list in ipairs(q) do
    if peek(reader, q, list) then
      local job = queue.head(list)
      if list.class == 1 and job and codec.goes_first(job) then return list end
      local counts_as = (job and codec.times(job) or 0) + (list.class - 1) * reader.aging
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
    q.due.at = q.due.at + 2
  end
end

-- Records an id to remove from later.
function queue.take_off(q, id)
  q.gone = q.gone or {}
  q.gone[#q.gone + 1] = id
end

-- Records an id to add to later, at a time.
function queue.park(q, at, id)
  q.parked = q.parked or {}
  q.parked[#q.parked + 1], q.parked[#q.parked + 2] = at, id
end

local function holds_more(list) return list.at <= #list.ids or not list.ended end

-- Returns whether lists hold more jobs than were passed.
function queue.left(q)
  for i = 1, #q do
    if holds_more(q[i]) then return true end
  end
  return false
end

-- Returns the result of queue.left, and the places that may hold something after the run, in the format of flow.lua.
function queue.rest(q, before)
  if before == '.n' and not q.parked then
    local list = q[1]
    local left = list ~= nil and holds_more(list)
    return left, left and '.n' or '.'
  end
  local left, filled = queue.left(q), '.'
  for _, list in ipairs(q) do
    -- A list that was not read has no known priority.
    if not list.class then return left, before end
    if holds_more(list) then filled = filled .. flow.LETTERS[list.class] end
  end
  if q.parked or (q.due and queue.due_next(q)) then filled = filled .. 'd' end
  return left, filled
end


-- Removes passed jobs from the lists and removed jobs from later, and adds the parked jobs to later.
function queue.write(q)
  for i = 1, #q do
    local key, popped = q[i].key, q[i].popped
    if popped == 1 then
      redis.call('LPOP', key) -- cheaper than with a number
    elseif popped > 0 then
      redis.call('LPOP', key, popped)
    end
  end
  if q.gone then in_chunks('ZREM', q.later, q.gone) end
  if q.parked then in_chunks('ZADD', q.later, q.parked) end
end

return queue
