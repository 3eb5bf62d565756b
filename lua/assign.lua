-- assign.lua: writes the place of a bucket into the index, if the index has not changed since the caller read it.
-- This one write decides a change of pool: every process reads the index before it configures a bucket.
-- May be sent twice: the second time it returns 0, and the caller reads the index again.
--
-- KEYS[1]  tundish:buckets  hash  bucket -> tag of its keys; "<bucket>:generation" -> a number that each change raises,
--          and the tag of the bucket's previous place, while its keys there are not removed yet
-- ARGV[1]  bucket
-- ARGV[2]  tag_read: tag that the caller has read
-- ARGV[3]  generation_read: text of the generation that the caller has read, '' for none: the bucket has never changed its place
-- ARGV[4]  tag: to write
-- ARGV[5]  generation: to write
-- Returns  1 written; 0 the index has other values
-- Stores   two fields for each bucket that ever existed; no expiry: programs find jobs by them
-- Needs    Redis 7.0

local index = KEYS[1]
local bucket, old_tag, old_generation, tag, generation = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', index, '')

local field = bucket .. ':generation'
local stored_tag, stored_generation = unpack(redis.call('HMGET', index, bucket, field))
if (stored_tag or '') ~= old_tag or (stored_generation or '') ~= old_generation then return 0 end
redis.call('HSET', index, bucket, tag, field, generation)
return 1
