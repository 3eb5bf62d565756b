-- reservation.lua: the reservation of budgets by a job (see budget.lua). Its body has it as "$unit:amount,..." (see codec.lua). tokens are
-- input and output together. For a unit that a job does not name, the bucket has a default.

local reservation = { NOTHING = '0', AS_RESERVED = '=', FIRST_FOR = 2000000 }

-- Returns the reservation of a job, by its body: "unit:amount,...", '' if it has none of its own.
function reservation.from_job(job) return string.match(job, '^%S+ %S+ [^ $]*%$([%l%d_:,-]+)') or '' end

-- Returns the same for a sealed job, without the two words before it.
function reservation.from_sealed(sealed) return string.match(sealed, '^[^ $]*%$([%l%d_:,-]+)') or '' end

-- Parses the amounts of such a text, by their units.
function reservation.amounts(text)
  local all = {}
  for unit, amount in string.gmatch(text, '([%l_-]+):(%d+)') do all[unit] = tonumber(amount) end
  if all.input or all.output then all.tokens = (all.tokens or 0) + (all.input or 0) + (all.output or 0) end
  return all
end

-- Parses the job that waits first for the budgets of a bucket or a pool, "time id reserves" (see charges.lua): id, text and amounts.
-- nil if it has not asked for FIRST_FOR microseconds.
function reservation.first(text, now)
  local asked, id, reserves = string.match(text or '', '^(%d+) (%S+) (%S*)$')
  if not id or math.abs(now - asked) > reservation.FIRST_FOR then return nil end
  return { id = id, text = reserves, amounts = reservation.amounts(reserves) }
end

-- Returns the cost of a job for a rule, by its amounts: never more than the whole budget. default: for a unit that it does not name.
function reservation.cost(rule, amounts, default)
  local cost, most = amounts[rule.unit] or default, rule.amount
  return cost < most and cost or most
end

-- Returns the same for each rule of a level.
function reservation.costs(rules, amounts, default)
  local costs = {}
  for i = 1, #rules do costs[i] = reservation.cost(rules[i], amounts, default) end
  return costs
end

-- Adds the default amounts for units of the rules that the text does not name, to the text and to amounts.
function reservation.with(text, amounts, rules, default)
  for i = 1, #rules do
    local unit = rules[i].unit
    if not amounts[unit] then
      amounts[unit] = default
      text = text .. (text == '' and '' or ',') .. unit .. string.format(':%.0f', default)
    end
  end
  return text
end

-- Parses the usage of a departure: AS_RESERVED, NOTHING, or amounts. Returns the amounts by their units, and the amount of any other
-- unit; nil as much as it reserved.
function reservation.used(text)
  if text == reservation.AS_RESERVED then return {}, nil end
  return reservation.amounts(text), text == reservation.NOTHING and 0 or nil
end

-- Returns the number of a rule whose amount is smaller than the reservation of a job, and the reserved amount; nil if there is none.
function reservation.impossible(rules, amounts)
  for i = 1, #rules do
    local amount = amounts[rules[i].unit] or 0
    if amount > rules[i].amount then return i, amount end
  end
end

return reservation
