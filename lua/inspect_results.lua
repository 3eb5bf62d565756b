-- inspect_results.lua: returns the results of a bucket without their bodies, for lists, the newest first: those that are dropped last.
-- It reads a limited number of bytes: the caller asks for the rest. Writes nothing.
--
-- KEYS[1]  …:results      hash  id -> what was answered (see results.lua)
-- KEYS[2]  …:result_ends  zset  id -> when its result is dropped
-- ARGV[1]  from: results that are dropped then or sooner, microseconds, or +inf
-- ARGV[2]  skip: how many of the first ones to omit
-- ARGV[3]  most: results at most, 1 to 200
-- ARGV[4]  most_bytes: to read in this call, at most 1 MiB; one result is read however large it is
-- Returns  the bytes that were read, then for each result: its id, when it is dropped, and its head, "" if it is missing
-- Stores   nothing
-- Needs    Redis 7.0

local hash, ends, from, skip, most, most_bytes = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local found = redis.call('ZRANGE', ends, from, '-inf', 'BYSCORE', 'REV', 'LIMIT', skip, most, 'WITHSCORES')
local reply, bytes = { 0 }, 0
for i = 1, #found, 2 do
  local id = found[i]
  if i > 1 and bytes + redis.call('HSTRLEN', hash, id) > most_bytes then break end
  local text = redis.call('HGET', hash, id) or ''
  bytes = bytes + #text
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = id, string.format('%d', tonumber(found[i + 1])), string.match(text, '^[^\n]*')
end
reply[1] = bytes
return reply
