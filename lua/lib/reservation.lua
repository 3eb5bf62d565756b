-- reservation.lua: what a job reserves of budgets (see budget.lua). Its body says it as "$unit:amount,..." (see codec.lua). tokens are
-- input and output together. Of a unit that a job does not name it reserves what the bucket says.

local reservation = { NOTHING = '0', AS_RESERVED = '=' }

-- What a job reserves, by its body: "unit:amount,...", '' nothing of its own.
function reservation.of(job) return string.match(job, '^%S+ %S+ [^ $]*%$([%l%d_:,-]+)') or '' end

-- The same of a job as it comes, without the two words before it.
function reservation.of_new(sealed) return string.match(sealed, '^[^ $]*%$([%l%d_:,-]+)') or '' end

local function amounts(text)
  local all = {}
  for unit, amount in string.gmatch(text, '([%l_-]+):(%d+)') do all[unit] = tonumber(amount) end
  if all.input or all.output then all.tokens = (all.tokens or 0) + (all.input or 0) + (all.output or 0) end
  return all
end

-- The costs of a job for each rule of a level: never more than the whole budget. default: of a unit that the text does not name.
function reservation.costs(rules, text, default)
  local all, costs = amounts(text), {}
  for i, rule in ipairs(rules) do costs[i] = math.min(all[rule.unit] or default, rule.amount) end
  return costs
end

-- The text with amounts for units that it does not name.
function reservation.with(text, units, default)
  local all = amounts(text)
  for _, unit in ipairs(units) do
    if not all[unit] then
      all[unit] = default
      text = text .. (text == '' and '' or ',') .. unit .. string.format(':%.0f', default)
    end
  end
  return text
end

-- What a departure has used, for each rule, by the text of it: AS_RESERVED, NOTHING, or amounts. reserved: see reservation.costs.
function reservation.used(rules, text, reserved)
  if text == reservation.AS_RESERVED then return reserved end
  local all, used = amounts(text), {}
  for i, rule in ipairs(rules) do used[i] = all[rule.unit] or text == reservation.NOTHING and 0 or reserved[i] end
  return used
end

-- Which rule a job reserves more of than there is, by its number, and how much that is; nil none.
function reservation.impossible(rules, text)
  local all = amounts(text)
  for i, rule in ipairs(rules) do
    local amount = all[rule.unit] or 0
    if amount > rule.amount then return i, amount end
  end
end

return reservation
