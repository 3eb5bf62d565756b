-- text.lua: the text of a whole number, of which no digit is lost.

local function text(n) return string.format('%d', n) end

return text
