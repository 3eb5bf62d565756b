-- move_read.lua: reads some of a key, whatever its type, so that move_write.lua can write it
-- elsewhere. Nothing may change it meanwhile: see move.lua. Writes nothing.
--
-- KEYS[1]  any key of a bucket that is frozen
-- ARGV[1]  cursor: '0' at first, then what was answered
-- ARGV[2]  at_most: elements, about; 0 for none
-- Returns  {type, or 'none'; milliseconds until it expires, negative if never; how many elements it has;
--          the next cursor, '' at the end; then for a hash field and value of each, for a zset score and
--          member of each, for a list its elements, for a string its value}
-- Stores   nothing
-- Needs    Redis 7.0

local key = KEYS[1]
local cursor, at_most = ARGV[1], tonumber(ARGV[2])

local kind = redis.call('TYPE', key).ok
local ttl = redis.call('PTTL', key)
local reply = { kind, ttl, 0, '' }
local SIZE, NEXT, HEAD = 3, 4, 4

if kind == 'string' then
  reply[SIZE] = 1
  if at_most > 0 then reply[HEAD + 1] = redis.call('GET', key) end
elseif kind == 'hash' then
  reply[SIZE] = redis.call('HLEN', key)
  if at_most > 0 then
    local scan = redis.call('HSCAN', key, cursor, 'COUNT', at_most)
    reply[NEXT] = scan[1] == '0' and '' or scan[1]
    for i, text in ipairs(scan[2]) do reply[HEAD + i] = text end
  end
elseif kind == 'list' or kind == 'zset' then
  local to = tonumber(cursor) + at_most
  local last, some = string.format('%.0f', to - 1), {}
  if kind == 'list' then
    reply[SIZE] = redis.call('LLEN', key)
    if at_most > 0 then some = redis.call('LRANGE', key, cursor, last) end
    for i, text in ipairs(some) do reply[HEAD + i] = text end
  else
    reply[SIZE] = redis.call('ZCARD', key)
    if at_most > 0 then some = redis.call('ZRANGE', key, cursor, last, 'WITHSCORES') end
    for i = 1, #some, 2 do reply[HEAD + i], reply[HEAD + i + 1] = some[i + 1], some[i] end
  end
  if at_most > 0 and to < reply[SIZE] then reply[NEXT] = string.format('%.0f', to) end
end
return reply
