-- limit_state.lua: reads a state again that could not be read, if it belongs to the caller's rule. Otherwise another rule has written it,
-- and it is worth nothing: a string, or a log. Anything else is an error.

local limit_state = { ENTRY = '^(%d+):%d+:(%d+):(%d+)$' } -- of a log, see sliding_window_log.lua

local function is_log(key, kind) return kind == 'list' and string.find(redis.call('LINDEX', key, '-1'), limit_state.ENTRY) end

-- own: the type of the rule's states. Returns nil if it is the state of another rule.
function limit_state.again(own, command, key, ...)
  local kind = redis.call('TYPE', key).ok
  if kind ~= own and (kind == 'string' or is_log(key, kind)) then return nil end
  return redis.call(command, key, ...)
end

return limit_state
