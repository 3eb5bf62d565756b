-- answer.lua: an answer in which each value has its name: name, value, name, value, and so on. What is 0, '' or missing is left out, and
-- means the same to who reads it.

local answer = {}

-- Adds a value. That of a name may be a list.
function answer.tell(reply, name, value)
  if not value or value == 0 or value == '' then return end
  reply[#reply + 1] = name
  reply[#reply + 1] = value
end

-- Adds values under names that begin alike.
function answer.tell_all(reply, prefix, values)
  for name, value in pairs(values) do answer.tell(reply, prefix .. name, value) end
end

return answer
