-- window_tally.lua: counts the jobs that end in a drain window, for the event window.closed. A bucket without a hook for that event has no
-- tally.
--
-- The field window of the counts is "opened ends sent dead dropped": the opening and the end of the window that is open or, if the bucket
-- is closed, of the next one; and how many of its jobs were done, became dead letters and were dropped. close_window.lua writes the first
-- two. A job counts when it ends, from the opening until the window is reported. So each job counts in one report at most.

local window_tally = {}

-- Parses a tally, nil if there is none.
function window_tally.read(stored)
  local opened, ends, sent, dead, dropped = string.match(stored or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not opened then return nil end
  return { opened = tonumber(opened), ends = tonumber(ends), sent = tonumber(sent), dead = tonumber(dead), dropped = tonumber(dropped) }
end

-- Writes a tally.
function window_tally.write(count, w)
  redis.call('HSET', count, 'window', string.format('%d %d %d %d %d', w.opened, w.ends, w.sent, w.dead, w.dropped))
end

-- Adds jobs that ended: a table of sent, dead and dropped.
function window_tally.add(count, ended, now)
  local w = window_tally.read(redis.call('HGET', count, 'window'))
  if not w or now < w.opened then return end
  for how, n in pairs(ended) do w[how] = w[how] + n end
  window_tally.write(count, w)
end

return window_tally
