-- batch.lua: batches. A batch is several jobs of one flow that leave as one request: one slot, one permit.
--
-- The first job of a batch takes the slot and is counted in flight. The others are its riders: they are leased like any job, but the rate,
-- quotas and bounds in flight do not count them. So the requests in flight are the leases less the riders. If the lease of the first job
-- ends before those of its riders, one rider is counted in its place.
--
-- The zset riders has id -> number of the batch, for each rider that is leased. In the meta of each job of a batch the claim is
-- "<claim>#<number>". A job that leaves alone has neither. The field batches of count is the last number.
--
-- The field batch of settings is "size bytes wait": how many jobs, how many bytes of payload, and for how many microseconds a
-- job waits for riders.
--
-- Riders follow their job in its flow and agree with it: see codec.agreement.

--#include lib/codec.lua
--#include lib/queue.lua

local batch = {
  CHUNK = 500, LOOKS = 500,
  MAX_JOBS = 500, -- of an answer
  MAX_READ = 4194304, -- bytes of bodies that a run reads, those of expired jobs too
}

-- What settings say of batches; nil where jobs leave one by one.
function batch.rules(text)
  local size, bytes, wait = string.match(text or '', '^(%d+) (%d+) (%d+)$')
  return size and { size = size + 0, bytes = bytes + 0, wait = wait + 0 } or nil
end

-- Whether a job of that size fits into the answer of a claim (see handout.lua), with all of its batch, of which none is begun that may be
-- cut short. bytes: of a batch, nil where jobs leave one by one.
function batch.fits(rules, out, size, bytes, most_bytes)
  if out.count == 0 then return true end
  return out.bytes + math.max(size, bytes or 0) <= most_bytes and not (rules and out.count + rules.size > batch.MAX_JOBS)
end

-- How many requests are in flight.
function batch.in_flight(leases, riders) return redis.call('ZCARD', leases) - redis.call('ZCARD', riders) end

-- The number of the batch that a claim in a meta names, nil of a job that left alone.
function batch.number(claim)
  local at = string.find(claim, '#', 1, true)
  return at and string.sub(claim, at + 1)
end

-- Notes that the lease of a job of a batch ends. of: a table, whose field riders becomes how many riders less there are then.
function batch.ends(ending, number, id, of)
  local ids = ending[number]
  if not ids then
    ids = { number = number, of = of }
    ending[number], ending[#ending + 1] = ids, ids
  end
  ids[#ids + 1] = id
end

-- Takes the riders off whose leases end. Where the first job of a batch ends before its riders, one of these is counted in its place.
function batch.close(ending, riders)
  for _, ids in ipairs(ending) do
    local off = 0
    for i = 1, #ids, batch.CHUNK do
      off = off + redis.call('ZREM', riders, unpack(ids, i, math.min(i + batch.CHUNK - 1, #ids)))
    end
    if off < #ids then
      local heir = redis.call('ZRANGEBYSCORE', riders, ids.number, ids.number, 'LIMIT', 0, 1)[1]
      if heir then off = off + redis.call('ZREM', riders, heir) end
    end
    ids.of.riders = (ids.of.riders or 0) + off
  end
end

-- Takes riders off that have no lease, if the oldest ones are such: a program that knows no batches has taken their leases back, or
-- they were deleted by hand. Returns how many.
function batch.repair(leases, riders)
  local ids, gone = redis.call('ZRANGE', riders, 0, batch.LOOKS - 1), {}
  if #ids == 0 then return 0 end
  for i, deadline in ipairs(redis.call('ZMSCORE', leases, unpack(ids))) do
    if not deadline then gone[#gone + 1] = ids[i] end
  end
  if #gone > 0 then redis.call('ZREM', riders, unpack(gone)) end
  return #gone
end

-- Until when a job that waits in a list waits for others to ride along: half of the time until it expires at most. A job that came with a
-- delay has its own time, and does not wait.
local function patience(rules, job)
  local came, delayed, expires = codec.told(job)
  if delayed then return 0 end
  return came + (expires and math.min(rules.wait, math.floor((expires - came) / 2)) or rules.wait)
end

-- Whether a job was in a process that crashed, and so leaves alone, by its meta.
function batch.has_crashed(stored) return stored and string.match(stored, '^%d %d+ %d+ %d+ (%d+)') ~= '0' end

-- Where the lists of a flow are read, to go back there, before the first job of a batch is passed; false if the batch does not wait
-- for riders. list is nil of a job of later.
function batch.bookmark(rules, q, job, list, at)
  if rules.wait == 0 or not list or patience(rules, job) <= at then return false end
  local marks = {}
  for i, one in ipairs(q) do
    local mark = {}
    for field, value in pairs(one) do mark[field] = value end
    marks[i] = mark
  end
  return marks
end

local function go_back(reader, q, marks, id, riders)
  for i, mark in ipairs(marks) do
    for field, value in pairs(mark) do q[i][field] = value end
  end
  reader.handled[id] = nil
  for _, rider in ipairs(riders) do reader.handled[rider.id] = nil end
end

-- The next job of a flow as batch.gather wants it; nil if there is none. latest: as for queue.peek_due.
local function next_rider(reader, q, at, latest)
  local due_id, due_time
  if q.due then due_id, due_time = queue.peek_due(q, latest) end
  if due_id and due_time <= at and not queue.peek_first(reader, q) then
    local job, stored = queue.read_job(reader, nil, due_id, true)
    return due_id, stored, job, nil
  end
  local list = queue.peek(reader, q)
  if not list then return nil end
  local job, stored = queue.head(list)
  return list.ids[list.at], stored, job, list
end

-- Passes the jobs that ride along with a job, which was passed: those behind it, in their order, as long as they agree with it and fit.
-- from: what batch.bookmark has returned; room: bytes of bodies that the answer has left; may_ride(id, stored, job, at): whether nothing
-- else keeps a job. Returns the riders, each with id, stored and job, nil if there are none; or nil and until when the batch waits for more
-- jobs: then nothing was passed. In a bucket without flows, rules.ran_out and rules.short count the jobs and the requests that left while
-- nothing else waited: they say nothing of how full batches are while jobs wait.
function batch.gather(rules, reader, q, id, job, from, at, latest, room, may_ride)
  local riders, agreement, payload = {}, codec.agreement(job), codec.payload_size(job)
  if agreement == codec.GOES_ALONE then return nil end
  local wait, ran_out = from and patience(rules, job), false
  while #riders + 1 < rules.size do
    local rider_id, stored, rider, list = next_rider(reader, q, at, latest)
    if not rider_id then
      if not wait or wait <= at then
        ran_out = true
        break
      end
      go_back(reader, q, from, id, riders)
      return nil, wait
    end
    if not rider or reader.bytes > batch.MAX_READ or codec.agreement(rider) ~= agreement or not may_ride(rider_id, stored, rider, at) then
      break
    end
    payload, room = payload + codec.payload_size(rider), room - #rider
    if payload > rules.bytes or room < 0 then break end
    queue.pass(q, list)
    if list then
      wait = wait and math.min(wait, patience(rules, rider))
    else
      wait = false
      queue.take_off(q, rider_id)
    end
    if reader.leftovers then reader.handled[rider_id] = true end
    riders[#riders + 1] = { id = rider_id, stored = stored, job = rider }
  end
  if ran_out and not q.name then
    rules.ran_out, rules.short = (rules.ran_out or 0) + #riders + 1, (rules.short or 0) + 1
  end
  return riders[1] and riders
end

return batch
