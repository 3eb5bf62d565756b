-- flows_of.lua: returns the flows of jobs, so that the caller can give the places of these flows
-- to another script. Only for a bucket with flows: other buckets have one.
--
-- KEYS[1]  …:body  hash  id -> "base time mark index envelope"
-- ARGV[1]  most_bytes: of bodies to read in this call; one is read in any case
-- ARGV[2]  levels: 1, or 2 if they are in groups
-- ARGV[3...]  ids
-- Returns  for each id, up to the last one that was read: its flow ("" if it names none, or is no job), in the
--          format of flow.from_job
-- Stores   nothing
-- Needs    Redis 7.0

--#include lib/codes.lua
--#include lib/flow.lua

local body, most_bytes, in_groups = KEYS[1], tonumber(ARGV[1]), ARGV[2] == codes.GROUPS
local FIRST_ID = 3

local reply, bytes = {}, 0
for i = FIRST_ID, #ARGV do
  bytes = bytes + redis.call('HSTRLEN', body, ARGV[i])
  if i > FIRST_ID and bytes > most_bytes then break end
  local job = redis.call('HGET', body, ARGV[i])
  reply[#reply + 1] = job and flow.from_job(job, in_groups) or in_groups and flow.path('', '') or ''
end
return reply
