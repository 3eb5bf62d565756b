-- overrides.lua: what the scripts that look at a bucket or a pool say of what an operator has set (see
-- control.lua).

local overrides = {}

-- Adds to a reply, for each of the fields of a conf that is overridden: field, value of the configuration, value in
-- force, "time who". A max_in_flight that rose with the rate or the burst (see in_flight.lua) has the time and the author of those.
function overrides.add(reply, conf, fields)
  for _, field in ipairs(fields) do
    local override = redis.call('HMGET', conf, 'own:' .. field, field, 'set:' .. field)
    if override[1] then
      local set = override[3] or redis.call('HGET', conf, 'set:rate_count') or redis.call('HGET', conf, 'set:burst') or ''
      reply[#reply + 1] = field
      reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = override[1], override[2] or '', set
    end
  end
end

return overrides
