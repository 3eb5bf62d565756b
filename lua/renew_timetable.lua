-- renew_timetable.lua: writes the next stretches of a bucket's timetable, before the present ones end. They are computed from the plan
-- in the settings. If the plan has changed meanwhile, nothing is written: the stretches came with it. May be sent twice.
--
-- KEYS[1]  …:settings  hash  plan; timetable: see timetable.lua
-- ARGV[1]  channel: to wake dispatchers on
-- ARGV[2]  bucket: the message to publish
-- ARGV[3]  plan: the source of the stretches
-- ARGV[4]  timetable: the stretches, at most 65
-- Returns  1 they were written, 0 the plan has changed
-- Stores   the stretches, until they are renewed
-- Needs    Redis 7.0

local settings = KEYS[1]
local channel, bucket, plan, timetable = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', settings, '')

if redis.call('HGET', settings, 'plan') ~= plan then return 0 end
redis.call('HSET', settings, 'timetable', timetable)
redis.pcall('PUBLISH', channel, bucket)
return 1
