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
-- job waits for company.

local batch = { CHUNK = 500, LOOKS = 500 }

-- What settings say of batches; nil where jobs leave one by one.
function batch.rules(text)
  local size, bytes, wait = string.match(text or '', '^(%d+) (%d+) (%d+)$')
  return size and { size = size + 0, bytes = bytes + 0, wait = wait + 0 } or nil
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
-- somebody has deleted them. Returns how many.
function batch.repair(leases, riders)
  local ids, gone = redis.call('ZRANGE', riders, 0, batch.LOOKS - 1), {}
  if #ids == 0 then return 0 end
  for i, deadline in ipairs(redis.call('ZMSCORE', leases, unpack(ids))) do
    if not deadline then gone[#gone + 1] = ids[i] end
  end
  if #gone > 0 then redis.call('ZREM', riders, unpack(gone)) end
  return #gone
end

return batch
