-- outside_turn_queue.lua: returns which flows are not in the turn queue of their group. sweep.lua, which names them, lacks the keys of
-- their groups' turn queues.
--
-- KEYS[1...]  for each flow: …:due:<group>  zset  flow -> its turn in the turn queue
-- ARGV[1...]  flows
-- Returns  for each flow: 1 if it is not in it, 0 if it is
-- Stores   nothing
-- Needs    Redis 7.0

local reply = {}
for i = 1, #ARGV do reply[i] = redis.call('ZSCORE', KEYS[i], ARGV[i]) and 0 or 1 end
return reply
