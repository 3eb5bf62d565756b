-- named_reply.lua: a reply with a name for each value: name, value, name, value, and so on. Values that are 0, '' or missing are
-- omitted; readers treat all of these alike.

local named_reply = {}

-- Adds a value under a name. The value may be a list.
function named_reply.add(reply, name, value)
  if not value or value == 0 or value == '' then return end
  reply[#reply + 1] = name
  reply[#reply + 1] = value
end

-- Adds values under names with a common prefix.
function named_reply.add_all(reply, prefix, values)
  for name, value in pairs(values) do named_reply.add(reply, prefix .. name, value) end
end

return named_reply
