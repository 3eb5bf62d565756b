-- limit_text.lua: the state that a rule reads if its state is a string and GET failed. It is empty if another rule
-- has left a sorted set there. Any other type is an error.

local limit_text = {}

function limit_text.other(key)
  if redis.call('TYPE', key).ok == 'zset' then return false end
  return redis.call('GET', key)
end

return limit_text
