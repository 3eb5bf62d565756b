-- outcomes.lua: how the last attempts of a job ended, and when the first one was.
--
-- The hash …:attempts has one text for each job that had an outcome other than done, until the job is gone:
--
--   first LF line LF line
--
-- first is the time of the first attempt, in microseconds of the server's clock. It is empty after a redrive, because the age
-- of the job then begins anew. Each line is the JSON of one attempt, the newest is the last. A dispatcher writes it (attempts.go
-- of shaper/internal/codec). Scripts know its first field, {"at":<microseconds>, and its last, "result":"<word>"}.

local outcomes = { MAX_BYTES = 2048 }

-- The text of a job after one more outcome. before is the text until now, or false. keep is how many lines stay at most.
-- A text that is too long loses its oldest lines.
function outcomes.add(before, line, keep, now)
  local first, lines = string.match(before or '', '^(%d*)(.*)$')
  if first == '' then
    local at = tonumber(string.match(line, '^{"at":(%d+)') or now)
    first = string.format('%d', math.min(at, now))
  end
  if line ~= '' then lines = lines .. '\n' .. line end
  local _, n = string.gsub(lines, '\n', '')
  while n > keep or n > 0 and #first + #lines > outcomes.MAX_BYTES do
    lines, n = string.match(lines, '^\n[^\n]*(.*)$'), n - 1
  end
  return first .. lines
end

-- Whether the first attempt of a job was max_age ago, at a time of the server's clock. A job without one is never too old.
function outcomes.is_older(text, max_age, at)
  local first = string.match(text or '', '^%d+')
  return first ~= nil and first + max_age <= at
end

-- The text of a job that begins anew: its lines stay. '' if there are none.
function outcomes.restart(text) return string.match(text, '^%d*(.*)$') end

-- A line of an attempt that spends none: it was the probe of a breaker.
function outcomes.free(line) return (string.gsub(line, '"result":"%a+"}$', '"result":"held"}')) end

-- A last response (JSON) with another cause: why the job is dead, '' if it is not.
function outcomes.because(last, cause)
  local rest = string.gsub(string.gsub(last, '^{"cause":"[^"]*",?', '{'), '^{', '')
  if cause == '' then return (rest == '' or rest == '}') and '' or '{' .. rest end
  if rest == '' then rest = '}' end
  return '{"cause":"' .. cause .. '"' .. (rest == '}' and '' or ',') .. rest
end

return outcomes
