-- own_settings.lua: changes the text of a flow's, or a group's, own settings (see flow.lua).
--
-- Its first line has the numbers, then when it was paused, then for a disabled flow "time/reason": its deliveries ended for good
-- at that time (server's clock, microseconds); reason is one word. The second line is the note of the pause. Lines for programs
-- follow, and last the budgets and the quotas (see flow.lua). "-" means: no such setting.

local own_settings = { NUMBERS = 6, PAUSED = 7, DISABLED = 8, NOTE = 2, BUDGETS = 6, QUOTAS = 7 } -- fields of the first line; lines

-- Returns the fields of the first line, and the lines.
function own_settings.read(text)
  local fields, lines = {}, {}
  for line in string.gmatch(text .. '\n', '([^\n]*)\n') do lines[#lines + 1] = line end
  for word in string.gmatch(string.match(text, '^[^\n]*'), '%S+') do fields[#fields + 1] = word end
  for i = #fields + 1, own_settings.DISABLED do fields[i] = '-' end
  lines[own_settings.NOTE] = lines[own_settings.NOTE] or '-'
  return fields, lines
end

-- Changes a line that holds a list of texts, as JSON; "-" is an empty list. change is JSON: {"drop": to remove,
-- "put": to add at the front unless present, "most": the maximum}. Returns the new line, or nil if it would exceed the
-- maximum. Repeating the change has no effect.
function own_settings.change_list(line, change)
  local wanted = cjson.decode(change)
  local there, dropped, list = {}, {}, {}
  local before = line ~= '-' and cjson.decode(line) or {}
  for _, text in ipairs(wanted.drop or {}) do dropped[text] = true end
  for _, text in ipairs(before) do there[text] = true end
  for _, text in ipairs(wanted.put or {}) do
    if not there[text] then list[#list + 1] = text end
    there[text] = true
  end
  for _, text in ipairs(before) do
    if not dropped[text] then list[#list + 1] = text end
  end
  if #list > wanted.most then return nil end
  return #list > 0 and cjson.encode(list) or '-'
end

-- Formats the settings, '' if there are none.
function own_settings.text(fields, lines)
  if lines[own_settings.QUOTAS] == '-' then lines[own_settings.QUOTAS] = nil end -- readers of budgets use the last line
  local says_something = false
  for _, word in ipairs(fields) do says_something = says_something or word ~= '-' end
  for i = own_settings.NOTE + 1, #lines do says_something = says_something or lines[i] ~= '-' end
  if not says_something then return '' end
  local first = table.concat(fields, ' ', 1, fields[own_settings.DISABLED] == '-' and own_settings.PAUSED or own_settings.DISABLED)
  return first .. '\n' .. table.concat(lines, '\n', own_settings.NOTE)
end

-- Adds the units of one more line of budgets to the known units: words, each followed by a space. nil if the line has none.
function own_settings.units(known, line)
  local all = known
  for unit in string.gmatch(line, '([%l_-]+) %d+ %d+;') do
    if not string.find(' ' .. all, ' ' .. unit .. ' ', 1, true) then all = all .. unit .. ' ' end
  end
  return string.find(line, ';', 1, true) and all or nil
end

-- Disables a flow. The zset disabled lists the disabled flows: flow -> when empty_disabled.lua checks it next.
function own_settings.disable(key, disabled, name, now, reason)
  local fields, lines = own_settings.read(redis.call('HGET', key, name) or '')
  fields[own_settings.DISABLED] = string.format('%d/', now) .. reason
  redis.call('HSET', key, name, own_settings.text(fields, lines))
  redis.call('ZADD', disabled, string.format('%d', now), name)
end

return own_settings
