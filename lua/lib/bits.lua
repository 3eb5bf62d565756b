-- bits.lua: refuses a server that is built for 32 bits.
-- Whole numbers become text by string.format('%d'), in half the time of '%.0f'. On a 32-bit server it loses digits of a time.

local bits = {}

function bits.check()
  if string.format('%d', 9007199254740991) == '9007199254740991' then return end
  error('this Redis is built for 32 bits, which is too few for times in microseconds: use one that is built for 64', 0)
end

return bits
