-- overrides.lua: the overrides of an operator, for scripts that inspect a bucket or a pool (see
-- control.lua).

local overrides = {}

-- Returns for each overridden field of `fields`: field, configured value, effective value, "time author"; nil if there is none.
-- A max_in_flight that rose with the rate or the burst (see in_flight.lua) has their time and author.
function overrides.list(conf, fields)
  local list
  for _, field in ipairs(fields) do
    local own, in_force, set = unpack(redis.call('HMGET', conf, 'own:' .. field, field, 'set:' .. field))
    if own then
      list = list or {}
      set = set or redis.call('HGET', conf, 'set:rate_count') or redis.call('HGET', conf, 'set:burst') or ''
      for _, text in ipairs({ field, own, in_force or '', set }) do list[#list + 1] = text end
    end
  end
  return list
end

return overrides
