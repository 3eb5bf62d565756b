-- timetable.lua: when a bucket sends, and at which rate: drain windows, a rate calendar, a finish time for all jobs, and
-- drains that an operator starts.
--
-- The field timetable of the settings lists stretches of time. Go computes them (package schedule), long before they are needed. Each is
-- "from kind count per opened finish;", and ends where the next begins:
--   kind     c closed, o open, e open until the bucket is empty, x: unknown from here on, so the bucket is closed
--   count, per  the rate of the calendar; both 0: the bucket's. An operator's override of the rate precedes the calendar's
--   opened   the opening of the window that contains the stretch, 0 none
--   finish   the time by which all jobs are to be sent, 0 none
-- A bucket without the field is open at all times.
--
-- Two fields of the pace belong to it:
--   window  "opened emptied each", of the last window: its opening; 1 if it was closed because the bucket was empty; in a bucket with
--           batches the recent average of jobs per request, in thousandths, measured while more jobs waited or in a bucket with flows,
--           else 0
--   drain   "state id since count per most gone until_empty ended by", of the last drain of an operator: see timetable.RUNNING; its rate
--           if slower, else both 0; the maximum number of jobs to send, 0 any number; the number sent; whether it ends when
--           the bucket is empty; when it ended; its author
--
-- Times are of the server's clock, in microseconds. A bucket is empty if no job waits, is due or is in flight. In a bucket with flows, a
-- retry that is not due yet counts as waiting. A job enqueued with a delay does not count before its flow's turn.

--#include lib/downstream.lua
--#include lib/pacer.lua
--#include lib/text.lua

local timetable = {
  RUNNING = 'r', DONE = 'd', STOPPED = 's',
  MARGIN = 1000000, -- microseconds before the finish at which the last job is to depart; or 2 % of the time if less
  MOST = 64, -- stretches
  MEMORY = 4, -- requests
  LOOK = 500000, -- microseconds between two polls for the end of the last jobs in flight, or for jobs that raise an even rate
}


local function read_window(stored)
  local opened, emptied, each = string.match(stored or '', '^(%d+) (%d) (%d+)$')
  return { opened = tonumber(opened or 0), emptied = tonumber(emptied or 0), each = tonumber(each or 0) }
end

-- Parses a drain, nil if there was none.
function timetable.read_drain(stored)
  local state, id, since, count, per, most, gone, until_empty, ended, by =
    string.match(stored or '', '^(%a) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (%d+) (.*)$')
  if not state then return nil end
  return { state = state, id = id, since = tonumber(since), count = tonumber(count), per = tonumber(per), most = tonumber(most),
    gone = tonumber(gone), until_empty = until_empty == '1', ended = tonumber(ended), by = by }
end

function timetable.write_drain(d)
  return string.format('%s %s %d %d %d %d %d %d %d ', d.state, d.id, d.since, d.count, d.per, d.most, d.gone,
    d.until_empty and 1 or 0, d.ended) .. d.by
end

-- Opens the timetable of a bucket, from a field of its settings and two of its pace; nil if it has none and no drain runs.
function timetable.open(conf, stored, window, drain)
  local running = timetable.read_drain(drain)
  if running and running.state ~= timetable.RUNNING then running = nil end
  if (stored or '') == '' then
    if not running then return nil end
    stored = '0 o 0 0 0 0;'
  end
  return { conf = conf, text = stored, at = 1, list = {}, window = read_window(window), drain = running }
end

-- Returns the drain, while it runs.
local function running(times)
  local drain = times.drain
  return drain and drain.state == timetable.RUNNING and drain or nil
end

-- Returns the stored i-th stretch, nil if there are fewer.
local function stored(times, i)
  local list = times.list
  while #list < i do
    local from, kind, count, per, opened, finish, behind =
      string.match(times.text, '^(%d+) (%a) (%d+) (%d+) (%d+) (%d+);()', times.at)
    if not from then return nil end
    times.at = behind
    list[#list + 1] = { from = tonumber(from), kind = kind, count = tonumber(count), per = tonumber(per), opened = tonumber(opened),
      finish = tonumber(finish) }
  end
  return list[i]
end

-- Returns the number of the stretch that contains a time, from the i-th on.
local function index_of(times, at, i)
  while true do
    local following = stored(times, i + 1)
    if not following or following.from > at then return i end
    i = i + 1
  end
end

local function is_open(times, s)
  return s.kind == 'o' or s.kind == 'e' and not (times.window.emptied == 1 and times.window.opened == s.opened)
end

-- Returns the effective i-th stretch: from, till, open, known, count, per, until_empty, opened, finish, closes (its end, if the bucket
-- closes then, else 0). While a drain runs, all stretches are open and no finish counts.
local function holds(times, i, drain)
  local s, following = stored(times, i), stored(times, i + 1)
  local h = { from = s and s.from or math.huge, till = following and following.from or math.huge, open = s ~= nil,
    known = s ~= nil, count = 0, per = 0, finish = 0, opened = 0, closes = 0 }
  if not s then return h end
  h.count, h.per, h.known = s.count, s.per, s.kind ~= 'x'
  if drain then return h end
  h.open = is_open(times, s)
  h.until_empty, h.opened, h.finish = s.kind == 'e', s.opened, s.finish
  if h.open and following and not is_open(times, following) then h.closes = h.till end
  return h
end

-- Returns whether one rate is below another one.
local function is_slower(count, per, than_count, than_per) return count * than_per < than_count * per end

-- Returns the allowed rate in a stretch, as count and per; base has the rate of the settings.
local function allowed(times, h, base, drain)
  local count, per = base.rate_count, base.rate_per
  if h.count > 0 then
    if times.fixed == nil then times.fixed = redis.call('HEXISTS', times.conf, 'own:rate_count') == 1 end
    if not times.fixed then count, per = h.count, h.per end
  end
  if drain and drain.count > 0 and is_slower(drain.count, drain.per, count, per) then count, per = drain.count, drain.per end
  return count, per
end

-- Returns the allowed rate at a time, whether the bucket is open or not; base has the rate of the settings.
function timetable.rate_at(times, base, at)
  local first, drain = stored(times, 1), running(times)
  if not first then return base end
  local count, per = allowed(times, holds(times, index_of(times, math.max(at, first.from), 1), drain), base, drain)
  return { rate_count = count, rate_per = per }
end

-- Returns when the last job of a stretch with a finish is to depart.
local function target(h) return h.finish - math.min(timetable.MARGIN, (h.finish - h.opened) / 50) end

-- Returns the number of unfinished jobs, without jobs due after a time. later is the key of the only flow, nil in a bucket with flows.
function timetable.unfinished(body, dead, count, later, after)
  local jobs = redis.call('HLEN', body) - redis.call('ZCARD', dead)
  if later then return jobs - redis.call('ZCOUNT', later, '(' .. text(after), '+inf') end
  return jobs - math.max(tonumber(redis.call('HGET', count, 'scheduled') or 0), 0)
end

-- Returns the even rate that sends all jobs by the finish, if below the allowed rate, else the allowed rate. at: the first departure.
local function even(h, count, per, jobs, at)
  local left = math.floor(target(h) - at)
  if jobs > 0 and left > 0 and is_slower(jobs, left, count, per) then return jobs, left, true end
  return count, per, false
end

-- Returns whether the allowed rate is too low to send the requests by the finish, with the last request all but one interval after the
-- first. last: the last slot.
local function too_slow(h, count, per, burst, requests, at, last)
  local interval = per / count
  local first = burst > 1 and at - (burst - 1) * interval or math.max(at, last + interval)
  return requests > 0 and first + (requests - 1) * interval > h.finish
end

-- Returns the settings at the next slot of a bucket. base: its settings (see pacer.prepare); down: its downstream's state; state: of its
-- pacer; ask: clock, lead, horizon and offset, of the engine's clock; unfinished, a function of a time (see timetable.unfinished); leased,
-- the number of leases; together, the jobs per request (see timetable.together). Returns nil and when to ask again (0 unknown) if no slot
-- is within the horizon; else a table: settings; state, opened by them; changed; from and latest, the first and the last possible slot;
-- closes: when permits are void, 0 never; ahead: the stretch has not begun.
function timetable.choose(times, base, down, state, ask)
  local offset, drain = ask.offset, times.drain
  local soonest, latest = ask.clock + ask.lead, ask.clock + ask.horizon
  -- Not before the stretch of the last slot, even if that is beyond the horizon: its rate may have filled the pacer up in between.
  local at = math.max(soonest, math.min(state.last, ask.clock + pacer.MAX_HORIZON)) - offset
  if (stored(times, 1) or { from = math.huge }).from > at then return nil, 0 end -- the clock stepped far back: it will be rewritten
  local i = index_of(times, at, 1)
  for n = i, i + timetable.MOST do
    local h = holds(times, n, drain)
    if h.from + offset > latest then return nil, timetable.opens(times, h.from) end
    if h.open then
      local first = math.max(soonest, h.from + offset, state.last)
      local s, burst = {}, base.burst
      for field, value in pairs(base) do s[field] = value end
      s.rate_count, s.rate_per = allowed(times, h, base, drain)
      if h.finish > 0 then
        local jobs, is_even = ask.unfinished(h.finish) - ask.leased
        -- Jobs share the time since the last slot of the stretch, so the rate stays constant while no job arrives or departs.
        local since = state.last >= h.from + offset and state.last or first
        s.rate_count, s.rate_per, is_even = even(h, s.rate_count, s.rate_per, math.ceil(jobs / ask.together), since - offset)
        if is_even then burst, times.is_even = 1, true end
      end
      s.burst = burst
      s = pacer.prepare(s)
      if down then s = downstream.adapted(down, s, pacer.prepare) end
      local opened = { slot = state.slot, frac = state.frac, rate = state.rate, last = state.last, in_flight = state.in_flight,
        followers = state.followers }
      local changed = pacer.open(opened, s, ask.clock)
      if math.max(pacer.by_rate(opened, s, 1), soonest) < h.till + offset then
        times.stretch = h
        return { settings = s, state = opened, changed = changed, from = math.max(soonest, h.from + offset),
          latest = math.min(latest, h.till + offset - 1), closes = h.closes, ahead = h.from + offset > ask.clock }
      end
    end
  end
  return nil, 0
end

-- Returns the first time from then on at which the bucket is open; 0 if unknown.
function timetable.opens(times, at)
  if (stored(times, 1) or { from = math.huge }).from > at then return 0 end
  for i = index_of(times, at, 1), timetable.MOST + 1 do
    local h = holds(times, i, running(times))
    if h.open then return math.max(at, h.from) end
    if not h.known then return 0 end
  end
  return 0
end

-- Returns when to ask again for a slot at a time: soon if new jobs raise the rate and so move the slot.
function timetable.look_at(times, at, now)
  at = timetable.opens(times, at)
  return times.is_even and math.min(at, now + timetable.LOOK) or at
end

-- Returns the beginning of the stretch of a slot if it is in the future, else 0; and when its permits are void, 0 never.
function timetable.edges(times, slot, now)
  if (stored(times, 1) or { from = math.huge }).from > slot then return 0, 0 end
  local h = holds(times, index_of(times, slot, 1), running(times))
  return h.from > now and h.from or 0, h.closes
end

-- Limits the requests that a claim wants to the rest of a drain. Also limits the size in rules (of batches, or nil) for this claim.
function timetable.wants(times, want, rules)
  local drain = times.drain
  if not drain or drain.most == 0 then return want end
  local left = math.max(drain.most - drain.gone, 0)
  if not rules or left == 0 then return math.min(want, left) end
  rules.size = math.min(rules.size, left)
  return math.min(want, math.floor(left / rules.size))
end

-- Returns whether the bucket closes once it is empty, at present.
function timetable.ends_empty(times)
  if times.drain then return times.drain.until_empty end
  return times.stretch ~= nil and times.stretch.until_empty
end

local function end_drain(times, now)
  times.drain.state, times.drain.ended = timetable.DONE, now
end

-- Returns the new average of jobs per request. Recent requests count more: all earlier ones count as MEMORY requests.
local function average(each, jobs, requests)
  if each == 0 then return jobs / requests end
  return (each * timetable.MEMORY + jobs) / (timetable.MEMORY + requests)
end

-- Records departed jobs and requests, and whether the bucket was found empty. rules: of batches, or nil; see
-- batch.gather. A drain of a limited number of jobs shortens the last batch, so it is not measured.
function timetable.note(times, departed, requests, is_empty, now, rules)
  local w, drain, h = times.window, times.drain, times.stretch
  if rules and not (drain and drain.most > 0) then
    local jobs, measured = departed - (rules.ran_out or 0), requests - (rules.short or 0)
    if measured > 0 and (w.each > 0 or jobs > measured) then
      w.each, times.changed = math.floor(average(w.each / 1000, jobs, measured) * 1000 + 0.5), true
    end
  end
  if drain then
    drain.gone = drain.gone + departed
    if drain.most > 0 and drain.gone >= drain.most or drain.until_empty and is_empty then end_drain(times, now) end
    times.changed = times.changed or departed > 0 or drain.state ~= timetable.RUNNING
    return
  end
  if h and h.until_empty and is_empty then w.opened, w.emptied, times.changed = h.opened, 1, true end
end

-- Writes what was recorded.
function timetable.write(times, pace)
  if not times.changed then return end
  local w = times.window
  redis.call('HSET', pace, 'window', string.format('%d %d %d', w.opened, w.emptied, w.each))
  if times.drain then redis.call('HSET', pace, 'drain', timetable.write_drain(times.drain)) end
end

-- Returns the present rate of a bucket, as count and per. last: its last slot; requests: the number to send in all.
function timetable.pace(times, base, now, last, requests)
  if (stored(times, 1) or { from = math.huge }).from > now then return base.rate_count, base.rate_per end
  local drain = running(times)
  local h = holds(times, index_of(times, now, 1), drain)
  local count, per = allowed(times, h, base, drain)
  if h.open and h.finish > 0 then count, per = even(h, count, per, requests, last >= h.from and last or now) end
  return count, per
end

-- Returns the jobs per request of a bucket with batches: the recent average under this timetable,
-- or else the maximum.
function timetable.together(times, rules)
  return times.window.each > 0 and math.max(times.window.each / 1000, 1) or rules.size
end

-- Returns when a job with `ahead` jobs before it departs, if the first of them departs at `at`; 0 if unknown. base: rate_count, rate_per
-- of the settings; interval: the minimum between two departures, whatever the rate; unfinished: the number of all jobs, or math.huge
-- for the earliest departure, as if so many jobs came that the allowed rate applies instead of an even one.
function timetable.leaves(times, base, at, ahead, interval, unfinished)
  local drain, i, n, first = times.drain, 1, ahead, at
  local known = times.reached -- a stretch that a previous call has reached
  local is_fastest = unfinished == math.huge
  if known and known.at == at and known.interval == interval and known.ahead <= ahead and known.is_fastest == is_fastest then
    i, n, drain, at = known.i, ahead - known.ahead, known.drain, known.from
  elseif (stored(times, 1) or { from = math.huge }).from > at then
    return 0
  end
  for _ = 1, timetable.MOST + 1 do
    i = index_of(times, at, i)
    local h = holds(times, i, drain)
    if not h.known then return 0 end
    if h.open then
      times.reached = { at = first, interval = interval, ahead = ahead - n, i = i, drain = drain, from = at, is_fastest = is_fastest }
      local count, per = allowed(times, h, base, drain)
      -- The stretches before have sent some jobs, and one departs at `at`.
      if h.finish > 0 then count, per = even(h, count, per, unfinished - (ahead - n) - 1, at) end
      local each, room = math.max(per / count, interval), math.huge
      if h.till < math.huge then room = math.ceil((h.till - at) / each) end
      if drain and drain.most > 0 then room = math.min(room, drain.most - drain.gone) end
      if n < room then return at + n * each end
      n, at = n - room, at + room * each
      if drain and drain.most > 0 then
        local left = drain.most - drain.gone - room
        drain = left > 0 and { count = drain.count, per = drain.per, most = left, gone = 0 } or nil
      end
    elseif h.till == math.huge then
      return 0
    else
      at = math.max(at, h.till)
    end
  end
  return 0
end

-- Returns the timetable for people, at a time: open (1); rate_count and rate_per, effective now or when it opens; till: the end of the
-- stretch, 0 never; opens: when it is open next, 0 unknown; finish, for a closed bucket of its next window, 0 none; finish_jobs: how many
-- to send by then; late: 1 if the allowed rate is too low for them, 0 for a closed bucket; since: when the bucket was opened, 0 always
-- or unknown. last: the last slot; unfinished and in_flight are as for timetable.choose, together as of timetable.together.
function timetable.view(times, base, now, last, unfinished, in_flight, together)
  if (stored(times, 1) or { from = math.huge }).from > now then return {} end
  local drain = running(times)
  local h, opens = holds(times, index_of(times, now, 1), drain), timetable.opens(times, now)
  local open_now, till = h.open, h.till
  if opens > now then h = holds(times, index_of(times, opens, 1), drain) end
  local count, per = allowed(times, h, base, drain)
  local jobs, late, at = 0, 0, math.max(opens, now)
  if h.open and h.finish > 0 then
    jobs = math.max(unfinished(h.finish) - in_flight, 0)
    local requests = math.ceil(jobs / together)
    if open_now and too_slow(h, count, per, base.burst, requests, now, last) then late = 1 end
    count, per = even(h, count, per, requests, at)
  end
  return { open = open_now and 1 or 0, rate_count = count, rate_per = per, till = till < math.huge and till or 0, opens = opens,
    finish = h.finish, finish_jobs = jobs, late = late, since = open_now and (drain and drain.since or h.opened) or 0 }
end

return timetable
