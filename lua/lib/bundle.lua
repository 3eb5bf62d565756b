-- bundle.lua: bundles. A bundle is a number of jobs with one callback, sent when all of them have ended. The body of a job names its
-- bundle (see codec.lua), so the script that ends the job writes a callback; move_callbacks.lua counts the job when it removes that.
-- redrive.lua marks a redriven job; cancel.lua and purge.lua write its callback. open_bundle.lua opens a bundle, before its jobs are
-- enqueued or meanwhile.
--
--   …:bundles         hash  id -> "opened changed finished size done dead dropped cancelled caller url"
--   …:bundle_ends     zset  id -> when it is forgotten, by the server's clock, microseconds
--   …:bundle_callers  zset  id -> the digits of its caller (see callers.lua), of a bundle with a caller
--
-- The times are microseconds. finished is when all had ended, 0 before; size the number of its jobs, 0 while unknown. caller
-- is its letters (see callers.lua), "-" none. A redriven dead letter has been counted as dead: its body shows that, and its next end
-- replaces that count. A count is negative if that end is counted first.
--
-- A caller has at most as many bundles as it leaves free: a single caller gets half of MOST, two callers 33 % each. Bundles
-- without a caller are limited only by MOST.

--#include lib/callbacks.lua
--#include lib/callers.lua

local bundle = {
  MOST = 10000, -- per bucket
  LIFE = 604800000000, -- microseconds that a bundle is kept after its last change: seven days
  CHUNK = 100,
  NO_CALLER = '-',
  NUMBERS = { 'opened', 'changed', 'finished', 'size', 'done', 'dead', 'dropped', 'cancelled' },
  WORDS = { ['5'] = 'dead', ['6'] = 'done', ['7'] = 'cancelled', ['8'] = 'dropped' }, -- by the codes of states
}
local TEXT = '^(%d+) (%d+) (%d+) (%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%S+) (.*)$'

-- Parses a bundle; nil for a text of another form.
function bundle.parse(text)
  local b, parts = {}, text and { string.match(text, TEXT) } or {}
  if #parts == 0 then return nil end
  for i, name in ipairs(bundle.NUMBERS) do b[name] = tonumber(parts[i]) end
  b.caller, b.url = parts[#bundle.NUMBERS + 1], parts[#bundle.NUMBERS + 2]
  return b
end

function bundle.text(b)
  local parts = {}
  for i, name in ipairs(bundle.NUMBERS) do parts[i] = string.format('%.0f', b[name]) end
  return table.concat(parts, ' ') .. ' ' .. b.caller .. ' ' .. b.url
end

-- Returns how many of its jobs have ended.
function bundle.ended(b) return b.done + b.dead + b.dropped + b.cancelled end

-- Writes a changed bundle, and its callback if its end is what changed. notified: which ends get a callback: 'all', 'own' those with a
-- URL of their own, or 'none'.
function bundle.write(key, ends, id, b, now, notified, noted)
  b.changed = now
  if b.size > 0 and b.finished == 0 and bundle.ended(b) >= b.size then
    b.finished = now
    if notified == 'all' or notified == 'own' and b.url ~= '' then callbacks.note(noted, id, 0, 'bundle', '', bundle.text(b)) end
  end
  redis.call('HSET', key, id, bundle.text(b))
  redis.call('ZADD', ends, string.format('%.0f', now + bundle.LIFE), id)
end

-- Records the caller of a bundle.
function bundle.note_caller(callers_key, id, letters)
  if letters ~= bundle.NO_CALLER then redis.call('ZADD', callers_key, callers.digits(letters), id) end
end

-- Removes the callers of bundles that no longer exist. Returns their number.
local function forget(key, callers_key, ids)
  local gone = {}
  for i, stored in ipairs(#ids > 0 and redis.call('HMGET', key, unpack(ids)) or ids) do
    if not stored then gone[#gone + 1] = ids[i] end
  end
  return #gone > 0 and redis.call('ZREM', callers_key, unpack(gone)) or 0
end

-- Returns whether a caller may open another bundle if `there` are open, and how many it has.
function bundle.may_open(key, callers_key, letters, there, now)
  if there >= bundle.MOST or letters == bundle.NO_CALLER then return there < bundle.MOST, 0 end
  local digits, free = callers.digits(letters), bundle.MOST - there
  local held = redis.call('ZCOUNT', callers_key, digits, digits)
  if not callers.may_have(free, held) then -- some may have been removed without an update here
    held = held - forget(key, callers_key, redis.call('ZRANGEBYSCORE', callers_key, digits, digits, 'LIMIT', now % held, bundle.CHUNK))
  end
  return callers.may_have(free, held), held
end

-- Removes expired bundles. Returns how many are left.
function bundle.expire(key, ends, callers_key, now)
  local gone = redis.call('ZRANGEBYSCORE', ends, '-inf', string.format('%.0f', now), 'LIMIT', 0, bundle.CHUNK)
  if #gone > 0 then
    redis.call('HDEL', key, unpack(gone))
    redis.call('ZREM', ends, unpack(gone))
    redis.call('ZREM', callers_key, unpack(gone))
  end
  local there, callers_known = redis.call('HLEN', key), redis.call('ZCARD', callers_key)
  if callers_known > there then
    forget(key, callers_key, redis.call('ZRANGE', callers_key, now % callers_known, now % callers_known + bundle.CHUNK - 1))
  end
  -- Bundles without an end came with the bucket from another pool.
  if redis.call('ZCARD', ends) < there then
    local some = redis.call('HRANDFIELD', key, bundle.CHUNK, 'WITHVALUES')
    for i = 1, #some, 2 do
      local b = bundle.parse(some[i + 1])
      redis.call('ZADD', ends, 'NX', string.format('%.0f', now + bundle.LIFE), some[i])
      if b then bundle.note_caller(callers_key, some[i], b.caller) end
    end
  end
  return there
end

return bundle
