-- learn.lua: stores what the workers of a bucket have learned from the answers of its downstream: a lesson on each subject, such as a
-- model. Several processes learn at once. Of two lessons on a subject the one from more answers stays, so no process wipes out what another
-- one has learned. A caller has lessons on no more subjects than it leaves free. May be sent twice.
--
-- KEYS[1]  …:settings  hash  what the bucket obeys
-- KEYS[2]  …:lessons   hash  subject -> "answers text", then " @caller" of one that has a caller
-- ARGV[1]  most: subjects that the bucket keeps. A lesson on another one is left out
-- ARGV[2...]  for each lesson: subject, from how many answers, text, the letters of the caller whose job was the first, "" none
-- Returns  {1} the bucket is not configured; {0} done
-- Stores   the lessons. The key expires 31 days after it was written last
-- Needs    Redis 7.0

--#include lib/callers.lua

local conf, lessons = KEYS[1], KEYS[2]
local most = tonumber(ARGV[1])
local FIRST, LESSON = 2, 4
local CALLER = ' @(%a+)$'
local KEPT = 2678400000 -- milliseconds

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('HDEL', conf, '')

if not redis.call('HGET', conf, 'rate_count') then return { 1 } end
local count, held, written = redis.call('HLEN', lessons), nil, false

-- Whether there is room for another subject of a caller.
local function has_room(caller)
  if count >= most or caller == '' then return count < most end
  if not held then
    held = {}
    for _, stored in ipairs(redis.call('HVALS', lessons)) do
      local of = string.match(stored, CALLER)
      if of then held[of] = (held[of] or 0) + 1 end
    end
  end
  return callers.may_have(most - count, held[caller] or 0)
end

for i = FIRST, #ARGV, LESSON do
  local subject, answers, text, caller = unpack(ARGV, i, i + 3)
  local stored = redis.call('HGET', lessons, subject)
  local known = stored and tonumber((string.match(stored, '^%d+'))) or 0
  if tonumber(answers) > known and (stored or has_room(caller)) then
    if not stored then
      count = count + 1
      if held then held[caller] = (held[caller] or 0) + 1 end
    end
    local of = stored and string.match(stored, CALLER) or caller
    redis.call('HSET', lessons, subject, answers .. ' ' .. text .. (of ~= '' and ' @' .. of or ''))
    written = true
  end
end
if written then redis.call('PEXPIRE', lessons, KEPT) end
return { 0 }
