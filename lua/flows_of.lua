-- flows_of.lua: of which flow jobs are, so that the caller can name the places
-- of that flow to another script. Only of a bucket with flows: others have one.
--
-- KEYS[1]  …:body  hash  id -> "base time mark index envelope"
-- ARGV[1]  most_bytes: of bodies to read in this call; one is read in any case
-- ARGV[2...]  ids
-- Returns  for each id, up to the last one that was read: its flow ("" of one that names none, or is no job)
-- Stores   nothing
-- Needs    Redis 7.0

local body, most_bytes = KEYS[1], tonumber(ARGV[1])

local reply, bytes = {}, 0
for i = 2, #ARGV do
  bytes = bytes + redis.call('HSTRLEN', body, ARGV[i])
  if i > 2 and bytes > most_bytes then break end
  local job = redis.call('HGET', body, ARGV[i])
  reply[#reply + 1] = job and flow.of(job) or ''
end
return reply
