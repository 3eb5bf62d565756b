-- record_operation.lua: writes the record of an operator's operation, before its first change and again at its end. May be sent twice.
--
-- KEYS[1]  tundish:{fleet}:audit  zset  record -> when its operation began, microseconds
-- KEYS[2]  tundish:{fleet}:audit:<bucket>  zset  the same, of those on a bucket; with no bucket behind the colon of all others
-- KEYS[3]  tundish:{fleet}:audit_records  hash  record -> "part ended count" and a line break, then its text
-- ARGV[1]  record: its id
-- ARGV[2]  text: JSON
-- ARGV[3]  part: of the operation, a name; it may come in several
-- ARGV[4]  ends: 1 at the end of the part, 0 at its begin
-- ARGV[5]  count: of the jobs or flows that this part has changed
-- Returns  {when the operation began}
-- Stores   records for 90 days, of a bucket the newest 1000, of all the newest 100,000
-- Needs    Redis 7.0

--#include lib/server_time.lua
--#include lib/text.lua

local all, own, records = KEYS[1], KEYS[2], KEYS[3]
local id, said, part, ends, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local KEPT = 7776000000000 -- microseconds: 90 days
local MOST_OWN, MOST = 1000, 100000
local AT_ONCE = 100 -- records that a run removes of each kind

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('ZREM', all, '')

local now = server_time()
local last, ended, sum = string.match(redis.call('HGET', records, id) or '', '^(%S+) (%d) (%d+)\n')
if last ~= part or tonumber(ended) < ends then -- else it came before
  sum = (tonumber(sum) or 0) + count
  redis.call('HSET', records, id, string.format('%s %d %d\n', part, ends, sum) .. said)
end
redis.call('ZADD', all, 'NX', text(now), id)
local began = redis.call('ZSCORE', all, id)
redis.call('ZADD', own, began, id)

local function remove(ids)
  if #ids == 0 then return end
  redis.call('ZREM', all, unpack(ids))
  redis.call('ZREM', own, unpack(ids))
  redis.call('HDEL', records, unpack(ids))
end
remove(redis.call('ZRANGEBYSCORE', all, '-inf', text(now - KEPT), 'LIMIT', 0, AT_ONCE))
local many = redis.call('ZCARD', own) - MOST_OWN
if many > 0 then remove(redis.call('ZRANGE', own, 0, math.min(many, AT_ONCE) - 1)) end
many = redis.call('ZCARD', all) - MOST
if many > 0 then remove(redis.call('ZRANGE', all, 0, math.min(many, AT_ONCE) - 1)) end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, text(KEPT / 1000)) end
return { tonumber(began) }
