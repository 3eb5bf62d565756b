-- bundle.lua: bundles. A bundle is a number of jobs whose end is told once: when all of them have ended. A job of a bundle says so in its
-- body (see codec.lua), so that the script that ends it writes a callback; move_callbacks.lua counts the job when it takes that out, and
-- no other script knows bundles. A bundle is opened by open_bundle.lua, before its jobs come or while they do.
--
--   bundles      hash  id -> "opened changed finished size done dead dropped cancelled caller url"
--   bundle_ends  zset  id -> when it is forgotten, by the server's clock, microseconds
--   bundle_callers  zset  id -> the digits of its caller (see callers.lua), of a bundle with a caller
--
-- The times are microseconds. finished is when all had ended, 0 before; size how many jobs it has, 0 as long as that is not known. caller
-- is its letters (see callers.lua), "-" none. A dead letter that is redriven has been counted as dead: its body says so, and its next end
-- counts instead of that. A count is below 0 where that end is counted first.
--
-- A caller has no more bundles than it leaves free: one caller alone has half of MOST, two that want all have a third each. A bundle
-- without a caller is bounded by MOST alone. Programs that know no shares leave no entry in bundle_callers, and take none out.

--#include lib/callbacks.lua
--#include lib/callers.lua

local bundle = {
  MOST = 10000, -- of a bucket
  LIFE = 604800000000, -- microseconds that one is kept after its last change: seven days
  CHUNK = 100,
  NO_CALLER = '-',
  NUMBERS = { 'opened', 'changed', 'finished', 'size', 'done', 'dead', 'dropped', 'cancelled' },
  WORDS = { ['5'] = 'dead', ['6'] = 'done', ['7'] = 'cancelled', ['8'] = 'dropped' }, -- by the codes of states
}
local TEXT = '^(%d+) (%d+) (%d+) (%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%S+) (.*)$'

-- The bundle of a text; nil of one that is none.
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

-- How many of its jobs have ended.
function bundle.ended(b) return b.done + b.dead + b.dropped + b.cancelled end

-- Writes a changed bundle, and has its end told by a callback if that is what changed. tells: whose end is told: 'all', 'own' those with a
-- URL of their own, or 'none'.
function bundle.write(key, ends, id, b, now, tells, told)
  b.changed = now
  if b.size > 0 and b.finished == 0 and bundle.ended(b) >= b.size then
    b.finished = now
    if tells == 'all' or tells == 'own' and b.url ~= '' then callbacks.note(told, id, 0, 'bundle', '', bundle.text(b)) end
  end
  redis.call('HSET', key, id, bundle.text(b))
  redis.call('ZADD', ends, string.format('%.0f', now + bundle.LIFE), id)
end

-- Notes whose a bundle is.
function bundle.note_caller(makers_key, id, letters)
  if letters ~= bundle.NO_CALLER then redis.call('ZADD', makers_key, callers.digits(letters), id) end
end

-- Takes the callers of bundles that are gone out. Returns how many there were.
local function forget(key, makers_key, ids)
  local gone = {}
  for i, stored in ipairs(#ids > 0 and redis.call('HMGET', key, unpack(ids)) or ids) do
    if not stored then gone[#gone + 1] = ids[i] end
  end
  return #gone > 0 and redis.call('ZREM', makers_key, unpack(gone)) or 0
end

-- Whether a caller may open another bundle, where `there` are open, and how many it has.
function bundle.may_open(key, makers_key, letters, there, now)
  if there >= bundle.MOST or letters == bundle.NO_CALLER then return there < bundle.MOST, 0 end
  local digits, free = callers.digits(letters), bundle.MOST - there
  local held = redis.call('ZCOUNT', makers_key, digits, digits)
  if not callers.may_have(free, held) then -- some may be gone, without a word here
    held = held - forget(key, makers_key, redis.call('ZRANGEBYSCORE', makers_key, digits, digits, 'LIMIT', now % held, bundle.CHUNK))
  end
  return callers.may_have(free, held), held
end

-- Forgets bundles whose time is over. Returns how many are left.
function bundle.expire(key, ends, makers_key, now)
  local gone = redis.call('ZRANGEBYSCORE', ends, '-inf', string.format('%.0f', now), 'LIMIT', 0, bundle.CHUNK)
  if #gone > 0 then
    redis.call('HDEL', key, unpack(gone))
    redis.call('ZREM', ends, unpack(gone))
    redis.call('ZREM', makers_key, unpack(gone))
  end
  local there, callers_known = redis.call('HLEN', key), redis.call('ZCARD', makers_key)
  if callers_known > there then
    forget(key, makers_key, redis.call('ZRANGE', makers_key, now % callers_known, now % callers_known + bundle.CHUNK - 1))
  end
  -- Those that no time names came with the bucket from another pool.
  if redis.call('ZCARD', ends) < there then
    local some = redis.call('HRANDFIELD', key, bundle.CHUNK, 'WITHVALUES')
    for i = 1, #some, 2 do
      local b = bundle.parse(some[i + 1])
      redis.call('ZADD', ends, 'NX', string.format('%.0f', now + bundle.LIFE), some[i])
      if b then bundle.note_caller(makers_key, some[i], b.caller) end
    end
  end
  return there
end

return bundle
