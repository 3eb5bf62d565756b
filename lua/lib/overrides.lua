-- overrides.lua: what the scripts that look at a bucket or a pool say of what an operator has set (see
-- control.lua).

local overrides = {}

-- Of each of some fields of a conf that is overridden: field, value of the configuration, value in force, "time who"; nil if none is.
-- A max_in_flight that rose with the rate or the burst (see in_flight.lua) has the time and the author of those.
function overrides.of(conf, fields)
  local list
  for _, field in ipairs(fields) do
    local override = redis.call('HMGET', conf, 'own:' .. field, field, 'set:' .. field)
    if override[1] then
      list = list or {}
      local set = override[3] or redis.call('HGET', conf, 'set:rate_count') or redis.call('HGET', conf, 'set:burst') or ''
      for _, text in ipairs({ field, override[1], override[2] or '', set }) do list[#list + 1] = text end
    end
  end
  return list
end

return overrides
