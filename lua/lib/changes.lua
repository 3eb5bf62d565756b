-- changes.lua: the record of changes of the settings of a bucket or a pool, for people.
--
--   …:settings  hash  what the scripts obey: plan, timetable, rate, burst, quotas, bounds, limits, pause, overrides (with the
--          configured values as own:<field>), schema, revision, generation; what clients need; its writer (owned, by, started), created
--          and its changes
--
-- Fields of the settings:
--   changes  a line of JSON for each change, newest first: at (microseconds), by, action, and changes, a list of {field, before, after}.
--            action is "set" or "reset" by an operator; a process that writes its configuration has none. At most 20 lines and
--            16 KB are kept, always the newest line, and 200 bytes of each value
--   changing "begin last": when the last changes began and ended; changes within SERIES of each other are one series, so a bucket whose
--            settings change all the time is judged by verdicts too

local changes = {
  COUNT = 20, BYTES = 16384, VALUE_BYTES = 200,
  SERIES = 60000000, -- microseconds
  FOLLOWS = { generation = true, timetable = true, in_flight_rule = true }, -- derived fields: not recorded
}

-- Records a change. names: the written fields; values: field -> {before, after}; differs: field -> whether to record it.
-- For a rate both fields are recorded, as one alone is meaningless. Returns how many fields were recorded.
function changes.note(conf, now, by, action, names, values, differs)
  local noted = {}
  for _, name in ipairs(names) do
    local other = string.match(name, '^(.*rate_)count$')
    other = other and other .. 'per' or string.match(name, '^(.*rate_)per$') and string.gsub(name, 'per$', 'count')
    if (differs[name] or other and differs[other]) and not changes.FOLLOWS[name] then
      noted[#noted + 1] = { name, string.sub(values[name][1], 1, changes.VALUE_BYTES), string.sub(values[name][2], 1, changes.VALUE_BYTES) }
    end
  end
  if #noted == 0 then return 0 end
  local record = cjson.encode({ at = string.format('%d', now), by = by, action = action, changes = noted })
  local count = 1
  for entry in string.gmatch(redis.call('HGET', conf, 'changes') or '', '[^\n]+') do
    if count == changes.COUNT or #record + #entry >= changes.BYTES then break end
    record, count = record .. '\n' .. entry, count + 1
  end
  local began, last = string.match(redis.call('HGET', conf, 'changing') or '', '^(%d+) (%d+)$')
  if not began or now - last > changes.SERIES then began = now end
  redis.call('HSET', conf, 'changes', record, 'changing', string.format('%.0f %.0f', began, now))
  return #noted
end

return changes
