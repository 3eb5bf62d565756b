-- inspect_jobs.lua: returns the stored texts of many jobs, for lists. It reads a limited number of bytes: the caller asks for the rest.
-- Writes nothing.
--
-- KEYS[1]  …:body      hash  id -> see codec.lua
-- KEYS[2]  …:meta      hash  id -> see codec.lua
-- KEYS[3]  …:attempts  hash  id -> see outcomes.lua
-- ARGV[1]  most_bytes: to read in this call, at most 1 MiB; one job is read however large it is
-- ARGV[2]  bare: 1 without the payloads, else 0
-- ARGV[3...]  ids
-- Returns  the bytes that were read, then for each job up to the last one that was read: its body, its meta and its attempts, "" if
--          missing
-- Stores   nothing
-- Needs    Redis 7.0

local body, meta, attempts, most_bytes, bare = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1]), ARGV[2] == '1'
local FIRST_ID = 3

local reply, bytes = { 0 }, 0
for i = FIRST_ID, #ARGV do
  local id = ARGV[i]
  if i > FIRST_ID and bytes + redis.call('HSTRLEN', body, id) > most_bytes then break end
  local job = redis.call('HGET', body, id) or ''
  local stored, tried = redis.call('HGET', meta, id) or '', redis.call('HGET', attempts, id) or ''
  bytes = bytes + #job + #stored + #tried
  local head = bare and string.find(job, '\n', 1, true)
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = head and string.sub(job, 1, head) or job, stored, tried
end
reply[1] = bytes
return reply
