-- allowance.lua: the use of quotas and of budgets, for people. See quota.lua and budget.lua, whose lists and texts it reads. Writes
-- nothing.

--#include lib/budget.lua
--#include lib/quota.lua

local allowance = {}

-- Returns how many departures of the list at key are later than a time: the newest is the first.
local function later_than(key, after)
  local low, high = 0, redis.call('LLEN', key)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if tonumber(redis.call('LINDEX', key, middle)) > after then low = middle + 1 else high = middle end
  end
  return low
end

-- Formats the quotas of a text "count microseconds;..." with their use: "count microseconds used frees;" for each. frees: when a used-up
-- quota allows the next departure, by the server's clock, else 0. offset: of the list's clock; latest as in quota.ready.
function allowance.text(key, text, now, offset, latest)
  if (text or '') == '' then return '' end
  local parts, i = {}, 0
  local windows = quota.windows(text)
  for count, window in string.gmatch(text, '(%d+) (%d+);') do
    i = i + 1
    local w = windows[i]
    local used, frees = math.min(later_than(key, now + offset - w.window), w.count), 0
    if used == w.count then
      frees = math.min(tonumber(redis.call('LINDEX', key, w.count - 1)), latest) + w.window - offset
    end
    parts[i] = count .. ' ' .. window .. string.format(' %d %d;', used, frees)
  end
  return table.concat(parts)
end

-- Formats budgets (see budget.lua): "unit amount window charged open frees;" for each. frees: when it allows a departure of these costs, by
-- the server's clock, else 0. Also returns when all of them do. See charges.read_levels; offset: of their clock.
function allowance.budgets(level, now, offset)
  local all, costs, parts, latest = level.all, level.costs, {}, 0
  if not all then return '', 0 end
  for i = 1, #all do
    local b = all[i]
    local frees = budget.ready({ b }, { costs[i] }, now + offset) - offset
    if frees <= now then frees = 0 end
    latest = math.max(latest, frees)
    parts[i] = b.rule.unit .. string.format(' %.0f %.0f %.0f %.0f %.0f;', b.rule.amount, b.rule.window, b.total, b.open, frees)
  end
  return table.concat(parts), latest
end

return allowance
