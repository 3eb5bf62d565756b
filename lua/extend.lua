-- extend.lua: the heartbeat of leases: moves the deadlines of leases that are still held: those
-- that the dispatcher names, and the leases of its running claim. While the reply of that claim is on a slow
-- link, or was lost, the dispatcher cannot know their ids.
-- May be sent twice.
--
-- KEYS[1]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[2]  …:leases  zset  id -> deadline, microseconds
-- KEYS[3]  …:claims  hash  dispatcher -> its last claim (see claim_reply.lua)
-- ARGV[1]  lease: microseconds from now
-- ARGV[2]  dispatcher: its id
-- ARGV[3]  claim: the id of the running claim, '' none
-- ARGV[4...]  for each lease: id, epoch, claim, without the number of a batch
-- Returns  for each lease 1 extended or 0 lost
-- Stores   the new deadlines
-- Needs    Redis 7.0

--#include lib/claim_reply.lua
--#include lib/codec.lua
--#include lib/in_chunks.lua
--#include lib/server_time.lua

local meta, leases, claims = KEYS[1], KEYS[2], KEYS[3]
local lease, dispatcher, under_way = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local FIRST_ARG, WIDTH = 3, 3
local CHUNK = 500
local lease_count = (#ARGV - FIRST_ARG) / WIDTH

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', leases, '')

local deadline = string.format('%d', server_time() + lease)
local ids, epochs, claim_of = {}, {}, {}
local function name(id, epoch, claim)
  ids[#ids + 1], epochs[#epochs + 1], claim_of[#claim_of + 1] = id, epoch, claim
end
for i = 1, lease_count do
  local at = FIRST_ARG + (i - 1) * WIDTH
  name(ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
end
local last = under_way ~= '' and redis.call('HGET', claims, dispatcher)
if last and claim_reply.is_of(last, under_way) then
  for _, leased in ipairs(claim_reply.jobs(last)) do name(leased.id, leased.epoch, under_way) end
end

local reply, deadlines = {}, {}
for from = 1, #ids, CHUNK do
  local stored = redis.call('HMGET', meta, unpack(ids, from, math.min(from + CHUNK - 1, #ids)))
  for n, text in ipairs(stored) do
    local i, held = from + n - 1, false
    if text then
      local state, epoch, claim = string.match(text, '^(%d) (%d+) %d+ %d+ %d+ ([^%s#]+)')
      held = state == codec.IN_FLIGHT and epoch == epochs[i] and claim == claim_of[i]
    end
    if i <= lease_count then reply[i] = held and 1 or 0 end
    if held then deadlines[#deadlines + 1], deadlines[#deadlines + 2] = deadline, ids[i] end
  end
end
in_chunks('ZADD', leases, deadlines)
return reply
