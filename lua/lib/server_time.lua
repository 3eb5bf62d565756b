-- server_time.lua: the time of the server in microseconds. A script reads it once, so that all its steps have the same time.

local function server_time()
  local seconds, micros = unpack(redis.call('TIME'))
  return seconds * 1000000 + micros
end

return server_time
