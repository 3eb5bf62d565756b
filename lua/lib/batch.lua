-- batch.lua: batches. A batch is several jobs of one flow that are sent as one request, with one slot and one permit.
--
-- The first job of a batch takes the slot and counts as in flight. The other members (followers in the code) are leased like any job, but
-- rate, quotas and in-flight bounds do not count them. So the requests in flight are the leases minus these members. If the lease of the
-- first job ends before theirs, one of them is counted in its place.
--
-- The zset followers has id -> number of the batch, for each leased member but the first. In the meta of each job of a batch the claim is
-- "<claim>#<number>". A job that is sent alone has neither. The field batches of count is the last number.
--
-- The field batch of settings is "size bytes wait": maximum jobs, maximum bytes of payload, and for how many microseconds a
-- job waits for further members.
--
-- The members follow the first job in its flow and agree with it: see codec.agreement.

--#include lib/codec.lua
--#include lib/queue.lua

local batch = {
  CHUNK = 500, LOOKS = 500,
  MAX_JOBS = 500, -- of a claim's reply
  MAX_READ = 4194304, -- bytes of bodies that a run reads, including expired jobs
}

-- Parses the batch rules; nil if jobs are sent one by one.
function batch.rules(text)
  local size, bytes, wait = string.match(text or '', '^(%d+) (%d+) (%d+)$')
  return size and { size = size + 0, bytes = bytes + 0, wait = wait + 0 } or nil
end

-- Returns whether a job of this size fits into the reply of a claim (see claim_reply.lua), with its whole batch: the reply never cuts a
-- batch short. bytes: the maximum of a batch, nil if jobs are sent one by one.
function batch.fits(rules, out, size, bytes, most_bytes)
  if out.count == 0 then return true end
  return out.bytes + math.max(size, bytes or 0) <= most_bytes and not (rules and out.count + rules.size > batch.MAX_JOBS)
end

-- Returns the number of requests in flight.
function batch.in_flight(leases, followers) return redis.call('ZCARD', leases) - redis.call('ZCARD', followers) end

-- Returns the batch number in the claim of a meta, nil for a job that was sent alone.
function batch.number(claim)
  local at = string.find(claim, '#', 1, true)
  return at and string.sub(claim, at + 1)
end

-- Records that the lease of a batch member ends. of: a table; its field followers becomes the number of members removed from the zset.
function batch.ends(ending, number, id, of)
  local ids = ending[number]
  if not ids then
    ids = { number = number, of = of }
    ending[number], ending[#ending + 1] = ids, ids
  end
  ids[#ids + 1] = id
end

-- Removes the members whose leases end. If the first job of a batch ends before the others, one of them is counted in its place.
function batch.close(ending, followers)
  for _, ids in ipairs(ending) do
    local off = 0
    for i = 1, #ids, batch.CHUNK do
      off = off + redis.call('ZREM', followers, unpack(ids, i, math.min(i + batch.CHUNK - 1, #ids)))
    end
    if off < #ids then
      local heir = redis.call('ZRANGEBYSCORE', followers, ids.number, ids.number, 'LIMIT', 0, 1)[1]
      if heir then off = off + redis.call('ZREM', followers, heir) end
    end
    ids.of.followers = (ids.of.followers or 0) + off
  end
end

-- Removes members without a lease, if they are among the oldest: their leases were deleted by hand. Returns their number.
function batch.repair(leases, followers)
  local ids, gone = redis.call('ZRANGE', followers, 0, batch.LOOKS - 1), {}
  if #ids == 0 then return 0 end
  for i, deadline in ipairs(redis.call('ZMSCORE', leases, unpack(ids))) do
    if not deadline then gone[#gone + 1] = ids[i] end
  end
  if #gone > 0 then redis.call('ZREM', followers, unpack(gone)) end
  return #gone
end

-- Returns until when a job in a list waits for further batch members: at most half of the time until it expires. A job enqueued with a
-- delay does not wait.
local function patience(rules, job)
  local came, delayed, expires = codec.times(job)
  if delayed then return 0 end
  return came + (expires and math.min(rules.wait, math.floor((expires - came) / 2)) or rules.wait)
end

-- Returns whether the process of a job crashed, by the job's meta: such a job is sent alone.
function batch.has_crashed(stored) return stored and string.match(stored, '^%d %d+ %d+ %d+ (%d+)') ~= '0' end

-- Returns the read positions of a flow's lists before the first job of a batch is passed, so that gather can restore them; false if the
-- batch does not wait for members. list is nil for a job of later.
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

local function go_back(reader, q, marks, id, followers)
  for i, mark in ipairs(marks) do
    for field, value in pairs(mark) do q[i][field] = value end
  end
  reader.handled[id] = nil
  for _, follower in ipairs(followers) do reader.handled[follower.id] = nil end
end

-- Returns the next job of a flow for batch.gather; nil if there is none. latest: as for queue.peek_due.
local function next_follower(reader, q, at, latest)
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

-- Passes the further members of a job's batch: the jobs behind it, in order, while they agree with it and fit. The job itself is passed.
-- from: the result of batch.bookmark; room: bytes of bodies left in the reply; may_follow(id, stored, job, at): whether nothing else
-- holds the job back. Returns the members, each with id, stored and job, or nil if there are none. Returns nil and a time if the batch
-- waits for more jobs until then: nothing was passed. In a bucket without flows, rules.ran_out and rules.short count jobs and requests
-- sent when the lists ran out: they do not show how full batches are while jobs wait.
function batch.gather(rules, reader, q, id, job, from, at, latest, room, may_follow)
  local followers, agreement, payload = {}, codec.agreement(job), codec.payload_size(job)
  if agreement == codec.GOES_ALONE then return nil end
  local wait, ran_out = from and patience(rules, job), false
  while #followers + 1 < rules.size do
    local follower_id, stored, follower, list = next_follower(reader, q, at, latest)
    if not follower_id then
      if not wait or wait <= at then
        ran_out = true
        break
      end
      go_back(reader, q, from, id, followers)
      return nil, wait
    end
    if not follower or reader.bytes > batch.MAX_READ or codec.agreement(follower) ~= agreement
      or not may_follow(follower_id, stored, follower, at) then
      break
    end
    payload, room = payload + codec.payload_size(follower), room - #follower
    if payload > rules.bytes or room < 0 then break end
    queue.pass(q, list)
    if list then
      wait = wait and math.min(wait, patience(rules, follower))
    else
      wait = false
      queue.take_off(q, follower_id)
    end
    if reader.leftovers then reader.handled[follower_id] = true end
    followers[#followers + 1] = { id = follower_id, stored = stored, job = follower }
  end
  if ran_out and not q.name then
    rules.ran_out, rules.short = (rules.ran_out or 0) + #followers + 1, (rules.short or 0) + 1
  end
  return followers[1] and followers
end

return batch
