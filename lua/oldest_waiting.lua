-- oldest_waiting.lua: finds the job that was enqueued first among the heads of the lists of some flows. Dispatchers go through the flows
-- that sweep.lua names, some at a time, and the last call stores the result. May be sent twice.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:count   hash  oldest: "came seen_at id", the oldest head of a list, when it was enqueued, and when it was found
-- KEYS[3...]  for each flow its five places: …:q:<priority>:<flow>, four lists, and …:later:<flow>, a zset, which it leaves alone
-- ARGV[1]  most_bytes: of bodies to read in this call; one flow is read in any case
-- ARGV[2]  keep: 1 to keep the oldest
-- ARGV[3]  came: enqueue time of the oldest of earlier calls, microseconds; 0 none
-- ARGV[4]  id: of that job
-- Returns  {flows that were read, enqueue time of the oldest (0 none), its id}
-- Stores   the oldest, until the next audit of sweep.lua ends
-- Needs    Redis 7.0

--#include lib/codec.lua
--#include lib/flow.lua
--#include lib/server_time.lua

local body, count = KEYS[1], KEYS[2]
local most_bytes, keep, came, id = tonumber(ARGV[1]), ARGV[2] == '1', tonumber(ARGV[3]), ARGV[4]
local FIRST = 2 -- number of keys before the keys of flows

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', count, '')

local bytes, looked_at = 0, 0
for before = FIRST, #KEYS - flow.PLACES, flow.PLACES do
  if bytes > most_bytes then break end
  looked_at = looked_at + 1
  for i = before + 1, before + flow.PLACES - 1 do
    local head = redis.call('LINDEX', KEYS[i], 0)
    local job = head and redis.call('HGET', body, head)
    local at = job and codec.came(job)
    if job then bytes = bytes + #job end
    if at and (came == 0 or at < came) then came, id = at, head end
  end
end

if keep and came > 0 then
  redis.call('HSET', count, 'oldest', string.format('%d %d %s', came, server_time(), id))
end
return { looked_at, came, id }
