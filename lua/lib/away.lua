-- away.lua: what the scripts know of dispatchers that were sent away as all turns are
-- reserved, or that step back as others serve. Where there are few flows, or few groups, one
-- dispatcher may have reserved all: the calendar then begins a second ahead, although claim.lua
-- puts them back some milliseconds later.
--
-- Who has workers for another claim such as its last one comes back by itself when half of the horizon is
-- left, and serves those turns too: nobody else need look. Who has not wakes one of those that were sent
-- away, in time for the slots behind its own. So nobody polls, and a
-- claim wakes one at most, however many dispatchers there are.
--
-- They are noted in the zset sent_away: dispatcher -> when it was told to come back, in calendar
-- time (see flow.lua); of one that has woken another, when it did. One that misses its wake-up comes at that time. Who steps
-- back comes when it sees fit, mostly before the second that it is noted for.

local away = {
  RESERVED = 1000000, -- microseconds that turns are reserved for
  KEPT = '2000', -- milliseconds: longer than any of them waits
}

-- Notes a dispatcher that is told to come back at the head of the calendar. If that is within its horizon, or later than any
-- reservation ends, it is no reserved turn that keeps it away. clock is that of the calendar.
function away.note(sent_away, dispatcher, head, latest, clock)
  if head <= latest or head > clock + away.RESERVED then return end
  redis.call('ZADD', sent_away, string.format('%.0f', head), dispatcher)
  redis.call('ZREMRANGEBYSCORE', sent_away, '-inf', string.format('(%.0f', clock)) -- who came back in time, or died
  redis.call('PEXPIRE', sent_away, away.KEPT)
end

-- Has a dispatcher wake one that would come back later than the head of the calendar is now: the one that was sent away
-- first.
function away.wake(sent_away, dispatcher, head, clock, channel, bucket)
  local first = redis.call('ZRANGEBYSCORE', sent_away, string.format('(%.0f', math.max(head, clock)), '+inf', 'LIMIT', 0, 1)[1]
  if not first then return end
  redis.call('ZADD', sent_away, string.format('%.0f', clock), dispatcher) -- first: it expires with the key
  redis.call('ZREM', sent_away, first)
  redis.call('PUBLISH', channel, bucket .. ' ' .. first)
end

return away
