-- quota.lua: quotas on departures. A quota is a number of departures in a sliding window: one more
-- may go when the count-th before it is older than the window. It is exact, because a list holds the
-- times of the last departures, newest first: one list for all windows of a bucket or of a
-- flow. A returned permit counts.
--
-- The receiver counts arrivals. Calls take different times: to wake, to connect, over the network.
-- A window of the receiver can contain all departures of a window that is longer by that difference. So a quota counts in a window
-- that is longer by a margin: 2 %, and at most MARGIN, which is more than the longest permit_ttl (10 s).
--
-- A time in the future means that the clock stepped back. It is cut to the latest possible
-- time, so that no departure waits longer than a window. The list is cut too, because otherwise the time would
-- stay as far ahead for ever. The quota of a pool counts in the server's time, not the engine's: after a step forwards it lets a job go
-- sooner by the step.
--
--   …:departed  list  times of the last departures of the bucket, the newest first; expires
--   …:departed:<flow>  list  the same of a flow; expires
--   …:departed_group:<group>  list  the same of a group; expires

--#include lib/in_chunks.lua

local quota = {
  MARGIN = 11000000,
  KEPT = 3600000, -- milliseconds beyond the longest window: keys expire by the server's clock, which may step forwards
}

-- Parses the windows "count microseconds;...", each with its margin. longest and most: the longest window and the largest count.
function quota.windows(text)
  local windows = { longest = 0, most = 0 }
  for count, window in string.gmatch(text or '', '(%d+) (%d+);') do
    count, window = tonumber(count), tonumber(window)
    window = window + math.min(math.ceil(window / 50), quota.MARGIN)
    windows[#windows + 1] = { count = count, window = window }
    windows.longest, windows.most = math.max(windows.longest, window), math.max(windows.most, count)
  end
  return windows
end

-- Returns the windows of a flow, or of a group: from its own text, else the default. Nil if it has none.
function quota.own(text, of_all)
  if not text then return of_all and of_all[1] and of_all or nil end
  local windows = quota.windows(text)
  return windows[1] and windows or nil
end

-- Opens the departures of the list at key; some_ahead of them are read at once. Nil without
-- windows; of the functions, ready, add and write accept that.
function quota.open(key, windows, some_ahead)
  if #windows == 0 then return nil end
  local read = {}
  for i = 1, #windows do read[i] = {} end
  return { key = key, windows = windows, read = read, some_ahead = some_ahead, added = {} }
end

-- Returns the time of the nth last departure, in window i; nil if there was none.
local function departed(q, i, n)
  local added = #q.added
  if n <= added then return q.added[added + 1 - n] end
  local place = n - added - 1
  local read = q.read[i]
  if read[place] == nil then
    local first = math.max(place - q.some_ahead + 1, 0)
    local times = redis.call('LRANGE', q.key, first, place)
    for at = first, place do read[at] = tonumber(times[at - first + 1] or '') or false end
  end
  return read[place] or nil
end

-- Returns the earliest time of the next departure; latest: no time is later. With ahead, returns the time of the departure with
-- that many before it, if all of them go at once; later than latest if it has to wait for one of these.
function quota.ready(q, latest, ahead)
  if not q then return 0 end
  local ready = 0
  for i, w in ipairs(q.windows) do
    local n = w.count - (ahead or 0)
    local at = latest
    if n > 0 then at = departed(q, i, n) end
    if at and at > latest then at, q.cut = latest, latest end
    if at then ready = math.max(ready, at + w.window) end
  end
  return ready
end

-- Returns when a departure with n others before it goes, if the first of them goes no sooner than `first`, and each no sooner than `each`
-- after the previous one.
function quota.leaves(q, n, first, each, latest)
  local at = first + n * each
  for i, w in ipairs(q.windows) do
    local by
    if n >= w.count then
      by = quota.leaves(q, n % w.count, first, each, latest) + math.floor(n / w.count) * w.window
    else
      by = departed(q, i, w.count - n)
      by = by and math.min(by, latest) + w.window
    end
    if by and by > at then at = by end
  end
  return at
end

-- Returns the number of the window that allows the next departure latest; 0 if each allows it at once. latest is as in quota.ready.
function quota.holding(q, now, latest)
  local number, last = 0, now
  for i, w in ipairs(q.windows) do
    local at = departed(q, i, w.count)
    if at and math.min(at, latest) + w.window > last then number, last = i, math.min(at, latest) + w.window end
  end
  return number
end

-- Returns the time of the last departure, at most latest; 0 if there was none.
function quota.newest(q, latest) return math.min(departed(q, 1, 1) or 0, latest) end

function quota.add(q, at)
  if q then q.added[#q.added + 1] = at end
end

-- Returns the list, with each time cut to the latest possible one.
local function cut(q)
  local times = redis.call('LRANGE', q.key, 0, -1)
  for i, at in ipairs(times) do
    if tonumber(at) > q.cut then times[i] = string.format('%d', q.cut) end
  end
  redis.call('DEL', q.key)
  in_chunks('RPUSH', q.key, times)
end

-- Stores the added times, for as long as they count and longer.
function quota.write(q)
  if not q or (#q.added == 0 and not q.cut) then return end
  if q.cut then cut(q) end
  local times = {}
  for i, at in ipairs(q.added) do times[i] = string.format('%d', at) end
  if #times > 0 then redis.call('LPUSH', q.key, unpack(times)) end
  redis.call('LTRIM', q.key, 0, q.windows.most - 1)
  redis.call('PEXPIRE', q.key, math.ceil(q.windows.longest / 1000) + quota.KEPT)
end

return quota
