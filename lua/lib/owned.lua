-- owned.lua: the number of a shared resource that each caller of a bucket has: fields "<prefix><digits>" of …:count (see callers.lua for
-- the digits; no digits: without a caller). There are as many callers as API keys. A caller with 0 has no field.

local owned = {
  MOST = 2000, -- fields of …:count that a run reads
}

-- Adds to the number of a caller. Returns the new number.
function owned.add(count, prefix, digits, by)
  local field = prefix .. digits
  local n = redis.call('HINCRBY', count, field, string.format('%d', by))
  if n <= 0 then redis.call('HDEL', count, field) end
  return n
end

-- Returns the numbers of all callers, by their digits; nil if that is too much to read.
function owned.all(count, prefix)
  if redis.call('HLEN', count) > owned.MOST then return nil end
  local fields, all = redis.call('HGETALL', count), {}
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, #prefix) == prefix then all[string.sub(fields[i], #prefix + 1)] = tonumber(fields[i + 1]) end
  end
  return all
end

-- Returns the number above which callers have to give some up, so that together they give up `excess`, taken from the callers with the
-- most: 0 if these have fewer than that.
function owned.level(all, excess)
  local numbers, sum = {}, 0
  for _, n in pairs(all) do numbers[#numbers + 1] = n end
  table.sort(numbers, function(a, b) return a > b end)
  for i, n in ipairs(numbers) do
    sum = sum + n
    local level = (sum - excess) / i
    if level >= (numbers[i + 1] or 0) then return math.max(level, 0) end
  end
  return 0
end

return owned
