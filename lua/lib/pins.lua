-- pins.lua: the overrides of a bucket or a pool, for the scripts that inspect it (see
-- control.lua).

local pins = {}

-- Adds to a reply, for each field with an override: field, value of the configuration, value in
-- force, "time author".
function pins.add(reply, conf, fields)
  for _, field in ipairs(fields) do
    local pin = redis.call('HMGET', conf, 'own:' .. field, field, 'set:' .. field)
    if pin[1] then
      reply[#reply + 1] = field
      for i = 1, 3 do reply[#reply + 1] = pin[i] or '' end
    end
  end
end

return pins
