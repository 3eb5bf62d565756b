-- outbox.lua: stores the events of a bucket until a dispatcher sends them to hooks (transactional outbox). A script that changes the state
-- stores the event in the same run. A dispatcher reads the events with move_events.lua, and enqueues a job for each hook.
--
-- An event has a kind, such as "job.dead", and belongs to a flow or to the whole bucket. Events of the same kind and flow are aggregated:
-- hooks get at most one per minute, with the number of events.
--   …:outbox        zset  events for hooks: "kind flow", or "kind" -> when to move it on, by the server's clock, microseconds
--   …:outbox_texts  hash  the same -> "moving since more first caller LF detail"
--     moving  number of events being moved on, the first of them at since
--     more    number of events after these, the first of them at first
--     caller  the letters of the caller of the first job; for an event without a caller also without its space (see callers.lua)
--     detail  of the last one, JSON
-- The outbox has at most MOST entries, and one caller at most as many as are still free. Further events are counted as dropped.
--
-- Events of closed windows are not aggregated: the name "window.closed" is followed by the time at which the window opened.

--#include lib/callers.lua
--#include lib/window_tally.lua

local outbox = {
  MOST = 1000,
  PAUSE = 60000000, -- microseconds between two events of a kind and a flow
  OWN = 'tundish-hook-', -- prefix of the ids of jobs that a hook made: such a job raises no events
  CLOSED = 'window.closed',
}

-- Opens the outbox of a bucket, nil if no hook is set. kinds: the kinds of events that hooks want, from the field events of
-- the settings.
function outbox.open(kinds, key, texts, count, now)
  if not kinds or kinds == '' then return nil end
  return { kinds = ' ' .. kinds .. ' ', key = key, texts = texts, count = count, now = now, found = {} }
end

-- Returns whether a hook made the job with an id.
function outbox.is_own(id) return string.sub(id, 1, #outbox.OWN) == outbox.OWN end

-- Returns whether hooks want events of a kind.
function outbox.wants(box, kind) return string.find(box.kinds, ' ' .. kind .. ' ', 1, true) end

-- Records ended jobs for the report of their window: how is sent, dead or dropped. outbox.write counts them.
function outbox.ends(box, how, n)
  if n == 0 or not outbox.wants(box, outbox.CLOSED) then return end
  box.ended = box.ended or {}
  box.ended[how] = (box.ended[how] or 0) + n
end

-- Records n events, for outbox.write. flow is its name in Redis, nil for the whole bucket. detail: a table
-- of texts. caller: the letters of the job's caller, nil none.
function outbox.note(box, kind, flow, n, detail, caller)
  if not box or n == 0 or not outbox.wants(box, kind) then return end
  local name = flow and kind .. ' ' .. flow or kind
  local event = box.found[name]
  if not event then
    event = { n = 0, caller = caller or '' }
    box.found[name], box.found[#box.found + 1] = event, name
  end
  event.n, event.detail = event.n + n, detail
end

-- Records dead letters of a flow, by their ids. mark is the mark of one of them, with the letters of its caller.
function outbox.note_dead(box, flow, ids, cause, mark)
  if not box then return end
  local n, last = 0, nil
  for _, id in ipairs(ids) do
    if not outbox.is_own(id) then n, last = n + 1, id end
  end
  outbox.note(box, 'job.dead', flow, n, { job = last, reason = cause }, callers.letters(mark))
  outbox.ends(box, 'dead', #ids)
end

local HEAD = '^(%d+) (%d+) (%d+) (%d+)([^\n]*)\n'

-- The letters of the caller in the tail of a head: what stands behind its numbers.
local function caller_in(tail) return string.match(tail or '', '^ (%a+)') or '' end

local function text_of(moving, since, more, first, tail, detail)
  return string.format('%d %d %d %d', moving, since, more, first) .. tail .. '\n' .. detail
end

local function read(text)
  local moving, since, more, first, tail, detail = string.match(text or '', HEAD .. '(.*)$')
  return tonumber(moving or 0), tonumber(since or 0), tonumber(more or 0), tonumber(first or 0), tail or '', detail or '{}'
end

-- Returns whether there is room for another event of a caller. Above half of MOST, the caller's events are counted in the texts.
local function has_room(box, caller)
  local there = redis.call('HLEN', box.texts)
  local free = outbox.MOST - there
  if caller == '' or there < free then return free > 0 end
  if not box.held then
    box.held = {}
    for _, text in ipairs(redis.call('HVALS', box.texts)) do
      local its = caller_in(select(5, string.match(text, HEAD)))
      box.held[its] = (box.held[its] or 0) + 1
    end
  end
  if not callers.may_have(free, box.held[caller] or 0) then return false end
  box.held[caller] = (box.held[caller] or 0) + 1
  return true
end

-- Writes the recorded events.
function outbox.write(box)
  if box and box.ended then window_tally.add(box.count, box.ended, box.now) end
  for _, name in ipairs(box and box.found or {}) do
    local event = box.found[name]
    local text = redis.call('HGET', box.texts, name)
    if not text and not has_room(box, event.caller) then
      redis.call('HINCRBY', box.count, 'events_dropped', event.n)
    else
      local moving, since, more, first, tail = read(text)
      if not text and event.caller ~= '' then tail = ' ' .. event.caller end
      first = more > 0 and first or box.now
      redis.call('HSET', box.texts, name, text_of(moving, since, more + event.n, first, tail, cjson.encode(event.detail)))
      redis.call('ZADD', box.key, 'NX', string.format('%d', box.now), name)
    end
  end
end

-- Removes moved events from the outbox, unless another dispatcher did. since is the value that outbox.take returned.
function outbox.is_moved(key, texts, name, since, now)
  local moving, from, more, first, tail, detail = read(redis.call('HGET', texts, name))
  if moving == 0 or from ~= since then return end
  redis.call('HSET', texts, name, text_of(0, 0, more, first, tail, detail))
  redis.call('ZADD', key, string.format('%d', now + outbox.PAUSE), name)
end

-- Returns the due events: name, number, time of the first, detail of each. They stay until outbox.is_moved.
function outbox.take(key, texts, at_most, now)
  local taken = {}
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', string.format('%d', now), 'LIMIT', 0, at_most)) do
    local moving, since, more, first, tail, detail = read(redis.call('HGET', texts, name))
    if moving == 0 then moving, since, more, first = more, first, 0, 0 end
    if moving == 0 then
      redis.call('ZREM', key, name)
      redis.call('HDEL', texts, name)
    else
      redis.call('HSET', texts, name, text_of(moving, since, more, first, tail, detail))
      for _, value in ipairs({ name, moving, since, detail }) do taken[#taken + 1] = value end
    end
  end
  return taken
end

return outbox
