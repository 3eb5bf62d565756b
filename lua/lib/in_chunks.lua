-- in_chunks.lua: runs a command with a list of arguments, 500 at a time: Lua accepts only some thousand. With an empty list it does
-- nothing.

local CHUNK = 500 -- even: pairs stay together

local function in_chunks(command, key, list)
  for from = 1, #list, CHUNK do
    redis.call(command, key, unpack(list, from, math.min(from + CHUNK - 1, #list)))
  end
end

return in_chunks
