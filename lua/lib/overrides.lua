-- overrides.lua: what the scripts that look at a bucket or a pool say of what an operator has set (see
-- control.lua).

local overrides = {}

-- Of each of some fields of a conf that is overridden: field, value of the configuration, value in force, "time who"; nil if none is.
-- A max_in_flight that rose with the rate or the burst (see in_flight.lua) has the time and the author of those.
function overrides.of(conf, fields)
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
