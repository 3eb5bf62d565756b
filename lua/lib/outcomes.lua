-- outcomes.lua: the outcomes of the last attempts of a job, and the time of the first one.
--
-- The hash …:attempts has one text for each job that had an outcome other than done, until the job is removed:
--
--   first LF line LF line
--
-- first is the time of the first attempt, in microseconds of the server's clock. It is empty after a redrive, because the age
-- of the job then starts from 0. Each line is the JSON of one attempt, the newest is the last. A dispatcher writes it (attempts.go
-- of shaper/internal/codec). Scripts know its first field, {"at":<microseconds>, and its last, "result":"<word>"}.

local outcomes = { MAX_BYTES = 2048 }

-- Returns the text of a job after one more outcome. before is the previous text, or false. keep is the maximum number of lines.
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

-- Returns whether the first attempt of a job was max_age ago, at a time of the server's clock. A job without one is never too old.
function outcomes.is_older(text, max_age, at)
  local first = string.match(text or '', '^%d+')
  return first ~= nil and first + max_age <= at
end

-- Returns the text of a redriven job: its lines stay. '' if there are none.
function outcomes.restart(text) return string.match(text, '^%d*(.*)$') end

-- Returns a line of an attempt that does not count: it was the probe of a breaker.
function outcomes.free(line) return (string.gsub(line, '"result":"%a+"}$', '"result":"held"}')) end

-- Returns a last response (JSON) with another cause: why the job is dead, '' if it is not.
function outcomes.with_cause(last, cause)
  local rest = string.gsub(string.gsub(last, '^{"cause":"[^"]*",?', '{'), '^{', '')
  if cause == '' then return (rest == '' or rest == '}') and '' or '{' .. rest end
  if rest == '' then rest = '}' end
  return '{"cause":"' .. cause .. '"' .. (rest == '}' and '' or ',') .. rest
end

return outcomes
