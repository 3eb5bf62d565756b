-- pool.lua: what the scripts know of pools; its text goes in front of theirs. A pool is
-- a downstream that several buckets share: its rate, its quotas and its bound of jobs in
-- flight hold over all of them, together with their own. They have the pool's name as
-- their tag, so a script of one of them may touch what the pool keeps.
--
-- The last four KEYS of a script of a bucket in a pool are the pool's:
--   …:p:<pool>:conf      hash  rate_count, rate_per, burst, quotas, max_in_flight, revision
--   …:p:<pool>:pace      hash  slot, frac, rate: the last slot of any of its buckets, as in the pace of a bucket
--   …:p:<pool>:departed  list  times of departures, for the quotas
--   …:p:<pool>:buckets   hash  bucket -> what is kept of it:
--     "weight in_flight virtual busy_until horizon ready interval held denied seen"
--     weight      its share of what all want
--     in_flight   its leases, written by whoever adds or removes some: so what is wrong heals itself
--     virtual     its virtual time (see share.lua)
--     busy_until  until when it is known to have something to send, 0 it is not
--     horizon     microseconds that its claims look ahead
--     ready, interval  when its own bounds let it depart next, and how long the next one takes
--     held        1 if it waits for a place in flight in the pool: then it is woken when one is free
--     denied      since when it has left free places to others, 0 it has not
--     seen        when one of its own scripts wrote this: of a bucket that left the configuration with leases
--                 nobody takes them back, and they do not count for longer than a lease can be

local pool = {
  GRACE = 250000, -- microseconds that a bucket may be late and still be known to have something to send
  MAX_HORIZON = 200000, -- see claim.lua
  KEPT = 3900000000, -- microseconds: longer than a lease, and than the time between two sweeps
  RENEW = 60000000,
  LONGEST = 31000000, -- microseconds that a mark may lie ahead of now: dispatchers look every 30 s at least
}

-- Whether a bucket is known to have something to send that no bound of the pool holds back.
function pool.is_busy(m, now) return m.busy_until > now and m.busy_until <= now + pool.LONGEST end

-- Whether it is known to have something to send.
function pool.has_work(m, now) return m.held > 0 or pool.is_busy(m, now) end

-- What is kept of a bucket from its text, or that of one that is new.
function pool.read(name, text)
  local n, numbers = 0, {}
  for number in string.gmatch(text or '', '%d+') do n, numbers[n + 1] = n + 1, tonumber(number) end
  local weight, in_flight, virtual, busy_until, horizon, ready, interval, held, denied, seen = unpack(numbers, 1, 10)
  return { name = name, weight = math.max(weight or 1, 1), in_flight = in_flight or 0, virtual = virtual or 0,
    busy_until = busy_until or 0, horizon = horizon or 0, ready = ready or 0, interval = interval or 0, held = held or 0,
    denied = denied or 0, seen = seen or 0 }
end

function pool.write(buckets, m)
  redis.call('HSET', buckets, m.name, string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f', m.weight, m.in_flight,
    m.virtual, m.busy_until, m.horizon, m.ready, m.interval, m.held, m.denied, m.seen))
end

-- What is kept of all buckets of the pool; of one of them, apart; and how many jobs are in flight, of
-- which in_flight are that one's.
function pool.load(buckets, name, in_flight, now)
  local all, others, own, sum = redis.call('HGETALL', buckets), {}, nil, in_flight
  for i = 1, #all, 2 do
    local m = pool.read(all[i], all[i + 1])
    if m.name == name then
      own = m
    else
      others[#others + 1] = m
      if math.abs(now - m.seen) < pool.KEPT then sum = sum + m.in_flight end
    end
  end
  return others, own or pool.read(name), sum
end

-- Notes how many leases a bucket has now, and wakes those that wait for a place in
-- flight if there is one. name is '' of a bucket in no pool.
function pool.note(name, keys, leases, now, channel)
  if name == '' then return end
  local conf, buckets = keys[#keys - 3], keys[#keys]
  local in_flight = redis.call('ZCARD', leases)
  local others, own, sum = pool.load(buckets, name, in_flight, now)
  local changed = own.in_flight ~= in_flight or math.abs(now - own.seen) > pool.RENEW
  own.in_flight, own.seen = in_flight, now
  local most = tonumber(redis.call('HGET', conf, 'max_in_flight') or 0)
  others[#others + 1] = own
  for _, m in ipairs(others) do
    local wakes = m.held > 0 and (most == 0 or sum < most)
    -- It has until its claim comes to be reckoned with: else who is first takes the place again and again.
    if wakes then m.held, m.busy_until = 0, now + pool.MAX_HORIZON + pool.GRACE end
    if wakes or (m == own and changed) then pool.write(buckets, m) end
    if wakes then redis.call('PUBLISH', channel, m.name) end
  end
end

return pool
