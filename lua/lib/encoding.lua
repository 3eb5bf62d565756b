-- encoding.lua: makes Redis store a hash or a sorted set in an encoding that finds a member at once.
--
-- Redis stores a small one as a list, which it searches from the beginning: a hash of up to 512 fields, a sorted set of up to 128
-- members. With 300 jobs in flight, this took more than half of the time of a claim and of a settle. For a member of more than
-- 64 bytes Redis converts it to a table, which stays one until it is empty. So such a member is added before it grows beyond a few,
-- and removed afterwards. If the server is configured with other bounds, this changes nothing. A table needs more memory: this is for
-- members that each claim and each settle looks up, not for remembered ids.

local encoding = {
  FEW = 32,
  LONG = '-----------------------------------------------------------------', -- 65 bytes
}

local function grows(before, after) return before < encoding.FEW and after >= encoding.FEW end

-- Prepares a hash that grows from `before` to `after` fields. `write` writes these; nil if they are written.
function encoding.hash(key, before, after, write)
  local is_table = grows(before, after)
  if is_table then redis.call('HSET', key, encoding.LONG, '') end
  if write then write() end
  if is_table then redis.call('HDEL', key, encoding.LONG) end
end

-- Does the same for a sorted set.
function encoding.zset(key, before, after, write)
  local is_table = grows(before, after)
  if is_table then redis.call('ZADD', key, 0, encoding.LONG) end
  if write then write() end
  if is_table then redis.call('ZREM', key, encoding.LONG) end
end

return encoding
