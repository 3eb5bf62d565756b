-- limit_text.lua: what a rule whose state is a string reads where GET failed: nothing, if another rule has left a sorted
-- set there. What no rule can have left is an error.

local limit_text = {}

function limit_text.other(key)
  if redis.call('TYPE', key).ok == 'zset' then return false end
  return redis.call('GET', key)
end

return limit_text
