-- overrides.lua: what the scripts that look at a bucket or a pool say of what an operator has set (see
-- control.lua).

local overrides = {}

-- Adds to a reply, for each of the fields of a conf that is overridden: field, value of the configuration, value in
-- force, "time who".
function overrides.add(reply, conf, fields)
  for _, field in ipairs(fields) do
    local override = redis.call('HMGET', conf, 'own:' .. field, field, 'set:' .. field)
    if override[1] then
      reply[#reply + 1] = field
      for i = 1, 3 do reply[#reply + 1] = override[i] or '' end
    end
  end
end

return overrides
