-- company.lua: which jobs leave together with a job, as its riders (see batch.lua). They follow it in its flow and agree with it.

--#include lib/codec.lua
--#include lib/queue.lua

local company = { MAX_JOBS = 500, MAX_READ = 4194304 } -- jobs of an answer; bytes of bodies that a run reads, those of expired jobs too

-- Until when a job that waits in a list waits for company: half of the time until it expires at most. A job that came with a delay has its
-- own time, and does not wait.
local function patience(rules, job)
  local came, delayed, expires = codec.told(job)
  if delayed then return 0 end
  return came + (expires and math.min(rules.wait, math.floor((expires - came) / 2)) or rules.wait)
end

-- Whether a job was in a process that crashed, and so leaves alone, by its meta.
function company.has_crashed(stored) return stored and string.match(stored, '^%d %d+ %d+ %d+ (%d+)') ~= '0' end

-- Where the lists of a flow are read, to go back there, before the first job of a batch is passed; false if the batch does not wait
-- for company. list is nil of a job of later.
function company.bookmark(rules, q, job, list, at)
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

-- The next job of a flow as company.gather wants it; nil if there is none. latest: as for queue.peek_due.
local function next_rider(reader, q, at, latest)
  local due_id, due_time
  if q.due then due_id, due_time = queue.peek_due(q, latest) end
  if due_id and due_time <= at then
    local stored = redis.call('HGET', reader.meta, due_id)
    local kind = stored and string.sub(stored, 1, 1) or codec.SCHEDULED
    local job = (kind == codec.SCHEDULED or kind == codec.RETRYING) and redis.call('HGET', reader.body, due_id)
    if job then reader.bytes = reader.bytes + #job end
    return due_id, stored, job, nil
  end
  local list = queue.peek(reader, q)
  if not list then return nil end
  local job, stored = queue.head(list)
  return list.ids[list.at], stored, job, list
end

-- Passes the jobs that ride along with a job, which was passed: those behind it, in their order, as long as they agree with it and fit.
-- from: what company.bookmark has returned; room: bytes of bodies that the answer has left; may_ride(id, stored, job, at): whether nothing
-- else keeps a job. Returns the riders, each with id, stored and job, nil if there are none; or nil and until when the batch waits for more
-- jobs: then nothing was passed. In a bucket without flows, rules.ran_out and rules.short count the jobs and the requests that left while
-- nothing else waited: they say nothing of how full batches are while jobs wait.
function company.gather(rules, reader, q, id, job, from, at, latest, room, may_ride)
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
    if not rider or reader.bytes > company.MAX_READ or codec.agreement(rider) ~= agreement or not may_ride(rider_id, stored, rider, at) then
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

return company
