-- text.lua: the text of a whole number, with all digits.

local function text(n) return string.format('%d', n) end

return text
