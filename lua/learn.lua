-- learn.lua: stores what the workers of a bucket have learned from the answers of its downstream: a lesson on each subject, such as a
-- model. Several processes learn at once. Of two lessons on a subject the one from more answers stays, so no process wipes out what another
-- one has learned. May be sent twice.
--
-- KEYS[1]  …:settings  hash  what the bucket obeys
-- KEYS[2]  …:lessons   hash  subject -> "answers text"
-- ARGV[1]  most: subjects that the bucket keeps. A lesson on another one is left out
-- ARGV[2...]  for each lesson: subject, from how many answers, text
-- Returns  {1} the bucket is not configured; {0} done
-- Stores   the lessons. The key expires 31 days after it was written last
-- Needs    Redis 7.0

local conf, lessons = KEYS[1], KEYS[2]
local most = tonumber(ARGV[1])
local FIRST, LESSON = 2, 3
local KEPT = 2678400000 -- milliseconds

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('HDEL', conf, '')

if not redis.call('HGET', conf, 'rate_count') then return { 1 } end
local count, written = redis.call('HLEN', lessons), false
for i = FIRST, #ARGV, LESSON do
  local subject, answers, text = unpack(ARGV, i, i + 2)
  local stored = redis.call('HGET', lessons, subject)
  local known = stored and tonumber((string.match(stored, '^%d+'))) or 0
  if tonumber(answers) > known and (stored or count < most) then
    if not stored then count = count + 1 end
    redis.call('HSET', lessons, subject, answers .. ' ' .. text)
    written = true
  end
end
if written then redis.call('PEXPIRE', lessons, KEPT) end
return { 0 }
