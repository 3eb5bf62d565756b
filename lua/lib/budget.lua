-- budget.lua: budgets of a bucket, a flow, a group or a pool. A budget is an amount of a unit in a sliding window. A departure may go if
-- its cost and all charges in the window are at most the amount.
--
-- Charges are summed in SLICES slices of the window: a charge is in the slice of its departure, at the slot. A slice counts until its last
-- instant is out of the window. As with quotas, the window is longer by a margin (see quota.lua). So memory is bounded, a budget is never
-- exceeded, and about 3 % of it stay unused.
--
-- A budget with a window of at most an hour is spread evenly over the window, unless its burst is the whole amount. In 10 % of the window
-- departures then spend at most 10 % of the amount, plus the burst, one slice and one departure.
--
-- Spreading uses the generic cell rate algorithm with a variable increment (ITU-T I.371, as in pacer.lua). `tat` is the theoretical arrival
-- time. A charge of 1 % of the amount moves tat forward by 1 % of the window, and a departure may go at most `back` before tat.
-- tat is computed from the slices, so a refund causes no burst: each slice gives its begin plus the time of all charges from it on, and
-- tat is the latest of these times. `since` is the slice that gives tat; earlier charges have no effect. While jobs wait for the budget,
-- tat moves further, so the burst returns only when no job waits. Otherwise the burst would repeat in each window.
--
-- The stored form has a text for each budget, with the slices oldest first. The newest slice is in the head:
--   "unit amount window total tat since newest sum open mean waits count;" then for each slice four digits of its number, and its sum
--   window      microseconds, without the margin
--   total       of all slices
--   newest, sum the number of the newest slice, and its sum; a slice's number is its begin divided by the length of slices
--   open        reservations of departures that are not settled yet
--   mean        of the reservations of recent departures
--   waits       when the budget allows the job that it holds back, 0 none
-- Amounts are whole numbers, times microseconds of the clock of the level. After a change of the amount or the window, each slice is
-- charged to the new slice that contains its end; a new budget starts without charges.

--#include lib/quota.lua

local budget = {
  SLICES = 100,
  WIDTH = 17, -- characters of a slice
  ROUND = 10000, -- modulus: four digits of the number of a slice are stored
  LARGEST = 9999999999999, -- sum of a slice
  LEARNED = 16, -- weight of the mean: it follows about this many departures
  SPREAD = 3600000000, -- microseconds
  HELD = 2000000, -- microseconds after which a held job no longer counts as held
}

local HEAD = '^([%l_-]+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+);()'

-- Returns the rule of a budget. part: the part of the amount that may depart at once if the window is at most SPREAD.
local function new_rule(unit, amount, window, part)
  local counted = window + math.min(math.ceil(window / 50), quota.MARGIN)
  local slice = math.ceil(counted / budget.SLICES)
  return { unit = unit, amount = amount, window = window, counted = counted, slice = slice, per = (counted + slice) / amount,
    back = part < 1 and window <= budget.SPREAD and part * counted or nil }
end

-- Parses budgets, "unit amount window;...". burst: per cent of the amount that may depart at once if the window is at most SPREAD.
function budget.rules(text, burst)
  local rules, part = {}, tonumber(burst or 100) / 100
  for unit, amount, window in string.gmatch(text or '', '([%l_-]+) (%d+) (%d+);') do
    rules[#rules + 1] = new_rule(unit, tonumber(amount), tonumber(window), part)
  end
  return rules
end

-- Return the number and the sum of the slice at a place. The base is explicit, as miniredis reads a leading 0 as octal.
local function number_at(b, place) return b.newest - (b.newest - tonumber(string.sub(b.slices, place, place + 3), 10)) % budget.ROUND end
local function sum_at(b, place) return tonumber(string.sub(b.slices, place + 4, place + budget.WIDTH - 1), 10) end
local function slice_text(number, sum) return string.format('%04d%013d', number % budget.ROUND, math.min(sum, budget.LARGEST)) end

-- Removes the slices that are out of the window. Then tat is at most what it would be with the whole total in the newest slice. So
-- charges above the budget, or older than a reduction of the amount, hold jobs back only until they are out of the window.
local function expire(b, now)
  local rule, at, size, before = b.rule, 1, #b.slices, b.total
  while at <= size and (number_at(b, at) + 1) * rule.slice + rule.counted <= now do
    b.total = b.total - sum_at(b, at)
    at = at + budget.WIDTH
  end
  if at > 1 then b.slices = string.sub(b.slices, at) end
  if at > size and (b.newest + 1) * rule.slice + rule.counted <= now then b.sum, b.total = 0, 0 end
  if b.total < before then
    local latest = b.newest * rule.slice + math.ceil(b.total * rule.per)
    if b.tat > latest then b.tat, b.since = latest, 0 end
  end
end

-- Adds a charge to the slice of a time, or to the newest one if that is newer.
local function add(b, amount, at)
  local rule = b.rule
  local number = math.floor(at / rule.slice)
  if number > b.newest then
    if b.sum > 0 then b.slices = b.slices .. slice_text(b.newest, b.sum) end
    b.newest, b.sum = number, 0
  end
  b.sum, b.total = b.sum + amount, b.total + amount
  local begins = b.newest * rule.slice
  if b.tat < begins then b.tat, b.since = begins, b.newest end
  b.tat = b.tat + math.ceil(amount * rule.per)
end

local function new(rule)
  return { rule = rule, total = 0, tat = 0, since = 0, newest = 0, sum = 0, open = 0, mean = 0, waits = 0, slices = '' }
end

-- Parses the stored budgets.
local function read(text)
  local stored, at = {}, 1
  while true do
    local unit, amount, window, total, tat, since, newest, sum, open, mean, waits, count, behind =
      string.match(text, HEAD, at)
    if not unit then return stored end
    at = behind + count * budget.WIDTH
    stored[#stored + 1] = { unit = unit, amount = amount + 0, window = window + 0, total = total + 0, tat = tat + 0, since = since + 0,
      newest = newest + 0, sum = sum + 0, open = open + 0, mean = mean + 0, waits = waits + 0, slices = string.sub(text, behind, at - 1) }
  end
end

-- Returns the rule of a stored budget, without a burst.
local function rule_of(s) return new_rule(s.unit, s.amount, s.window, 1) end

-- Converts a stored budget of another amount or window to its current rule.
local function changed(s, rule)
  local b, of_before = new(rule), rule_of(s)
  b.open, b.mean = s.open, s.mean
  local function keep(number, sum) add(b, sum, (number + 1) * of_before.slice - 1) end
  for place = 1, #s.slices, budget.WIDTH do keep(number_at(s, place), sum_at(s, place)) end
  if s.sum > 0 then keep(s.newest, s.sum) end
  return b
end

-- Removes the stored budget for a rule from the list and returns it: the same unit and window, else the same unit.
local function take(stored, rule)
  local found
  for i, s in ipairs(stored) do
    if s.unit == rule.unit and (not found or s.window == rule.window) then
      found = i
      if s.window == rule.window then break end
    end
  end
  return found and table.remove(stored, found)
end

-- Opens the budgets of a level at a time of its clock, from its rules and the stored text (nil or false without one). Returns nil without
-- rules; of the functions, ready, charge and settle_earlier accept that. changed: they are to be stored; lasts_longer: the stored text
-- counts longer than before.
function budget.open(rules, text, now)
  if #rules == 0 then return nil end
  local all, stored = { rules = rules, now = now, changed = false }, text and read(text) or {}
  for i, rule in ipairs(rules) do
    local s = take(stored, rule)
    if s and (s.amount ~= rule.amount or s.window ~= rule.window) then s, all.changed, all.lasts_longer = changed(s, rule), true, true end
    all[i] = s or new(rule)
    all[i].rule = rule
    expire(all[i], now)
  end
  return all
end

-- Opens the budgets of a text with their stored rules; nil without a text.
function budget.open_stored(text, now)
  if not text then return nil end
  local all, rules = read(text), {}
  for i = 1, #all do
    rules[i] = rule_of(all[i])
    all[i].rule = rules[i]
    expire(all[i], now)
  end
  all.rules, all.now, all.changed = rules, now, false
  return all
end

-- Returns when enough charges are out of the window for an amount to be free.
local function frees(b, amount)
  local place, size = 1, #b.slices
  local missing = b.total + amount - b.rule.amount
  if missing <= 0 then return 0 end
  local last = b.newest
  while place <= size do
    missing = missing - sum_at(b, place)
    if missing <= 0 then
      last = number_at(b, place)
      break
    end
    place = place + budget.WIDTH
  end
  return (last + 1) * b.rule.slice + b.rule.counted
end

-- Returns tat at the time when enough charges are out of the window for an amount to be free. If the budget was exceeded, tat is later than
-- in a full budget, and falls as slices expire (see expire). Then the result is its bound at that time.
local function tat_beside(b, amount)
  local rule = b.rule
  local begins = b.newest * rule.slice
  if b.tat <= begins + rule.counted + rule.slice then return b.tat end
  return begins + math.max(rule.amount - amount, 0) * rule.per
end

-- Returns when a departure with these costs, one for each budget, may go, no earlier than `at`. besides: costs of a job that waits
-- longer and that need room too; nil none. A cost above the amount waits until all charges are out of the window.
function budget.ready(all, costs, at, besides)
  local ready = at
  if not all then return ready end
  for i = 1, #all do
    local b, before = all[i], besides and besides[i] or 0
    local time = frees(b, costs[i] + before)
    if b.rule.back then time = math.max(time, math.ceil(tat_beside(b, costs[i] + before) + before * b.rule.per - b.rule.back)) end
    b.ready = time
    if time > ready then ready = time end
  end
  return ready
end

-- Returns when a departure with n others before it goes, if the first goes no sooner than `first`, and each reserves as much as recent
-- ones; 1 if none did yet. own: its own costs; nil for recent ones. besides: costs of a job that waits longer; nil none.
function budget.leaves(all, n, first, own, besides)
  local at = first
  for i = 1, #all do
    local b = all[i]
    local rule, cost = b.rule, math.max(b.mean, 1)
    local ahead = n * cost
    if besides then ahead = ahead + math.max(besides[i] - (n > 0 and cost or 0), 0) end
    local wanted = ahead + (own and own[i] or cost)
    local by = frees(b, math.min(wanted, rule.amount))
    if wanted > rule.amount then by = math.max(by, first) + (wanted - rule.amount) * rule.per end
    -- A burst is paid back in the same window.
    local back = b.total + wanted <= rule.amount and rule.back or 0
    if rule.back then by = math.max(by, math.max(tat_beside(b, wanted), first) + ahead * rule.per - back) end
    if by > at then at = by end
  end
  return at
end

-- Returns the time at which a charge made now counts: no earlier than the newest slices.
function budget.not_before(all, at)
  for i = 1, #all do at = math.max(at, all[i].newest * all[i].rule.slice) end
  return at
end

-- Records that the job of the last budget.ready waits for the budgets that do not allow it at `at`.
function budget.hold(all, at)
  for i = 1, #all do
    local b = all[i]
    if b.ready > at then b.waits, all.changed = b.ready, true end
  end
end

-- Charges a departure with these costs at a time.
function budget.charge(all, costs, at)
  if not all then return end
  all.changed = true
  for i = 1, #all do
    local b, cost = all[i], costs[i]
    local back, newest = b.rule.back, b.newest
    add(b, cost, at)
    if b.newest > newest then all.lasts_longer = true end
    if b.waits > 0 and at <= b.waits + budget.HELD and back and b.tat < at + back then b.tat = math.ceil(at + back) end
    b.waits = 0
    b.open = b.open + cost
    b.mean = b.mean == 0 and cost or math.ceil(b.mean + (cost - b.mean) / budget.LEARNED)
  end
end

-- Reads the nth slice of a budget, if there is one, into the lists numbers and sums, which `correct` changes. The first is the newest
-- slice. The slices before the nth must be read already.
local function read_back(b, n)
  if not b.numbers then b.numbers, b.sums, b.unread = { b.newest }, { b.sum }, #b.slices end
  local place = b.unread - budget.WIDTH + 1
  if b.numbers[n] or place < 1 then return end
  b.numbers[n], b.sums[n], b.unread = number_at(b, place), sum_at(b, place), place - 1
end

-- Returns the slices in stored form, and the sum of the newest one.
local function slices_of(b)
  local numbers, sums = b.numbers, b.sums
  if not numbers then return b.slices, b.sum end
  local texts = { string.sub(b.slices, 1, b.unread) }
  for n = #numbers, 2, -1 do texts[#texts + 1] = slice_text(numbers[n], sums[n]) end
  return table.concat(texts), sums[1]
end

-- Changes the charge in the slice of a number. If the slice is missing, a refund is ignored: a claim with a later clock has
-- dropped it. An additional charge goes to the next newer slice.
local function correct(b, number, change)
  read_back(b, 1)
  local numbers, sums, n, newer, latest, slice, per = b.numbers, b.sums, 1, 0, 0, b.rule.slice, b.rule.per
  while numbers[n] and numbers[n] > number do
    newer = newer + sums[n]
    local by = numbers[n] * slice + newer * per
    if by > latest then latest = by end
    n = n + 1
    if not numbers[n] then read_back(b, n) end
  end
  if numbers[n] ~= number then
    if change < 0 then return end
    n = n - 1
  end
  local part = math.max(change, -sums[n])
  sums[n], b.total = sums[n] + part, b.total + part
  if change > 0 then
    b.tat = b.tat + math.ceil(change * per)
  elseif number >= b.since then
    b.tat = math.max(b.tat + math.ceil(part * per), math.ceil(latest))
  end
end

-- Replaces the reservation in the nth budget of a departure at `at` by its usage. The reservation is no longer open.
function budget.settle(all, n, reserved, used, at)
  local b = all[n]
  local rule, number, open = b.rule, math.floor(at / b.rule.slice), b.open - reserved
  all.changed, b.open = true, open > 0 and open or 0
  if used == reserved then return end
  if number > b.newest then number = b.newest end
  if (number + 1) * rule.slice + rule.counted > all.now then correct(b, number, used - reserved) end
end

-- Replaces the charges of earlier requests to the nth budget by their total usage. requests: for each its amounts, and the time of its
-- charge in the field `clock`. A surplus is refunded in the slices of these charges, as far as they still count. A deficit, also of
-- charges that no longer count, is charged at `at`. Returns whether something is free now.
local function settle_earlier(all, n, requests, clock, used, at)
  local b = all[n]
  local rule, charged, counts, newest = b.rule, 0, {}, b.newest
  for i, q in ipairs(requests) do
    local number = math.min(math.floor(q[clock] / rule.slice), newest)
    if (number + 1) * rule.slice + rule.counted > all.now then
      counts[i] = math.min(q.amounts[rule.unit] or 0, rule.amount)
      charged = charged + counts[i]
    end
  end
  if used == charged then return false end
  all.changed = true
  if used > charged then
    correct(b, math.min(math.floor(at / rule.slice), newest), used - charged)
    return false
  end
  local surplus = charged - used
  for i = #requests, 1, -1 do
    local part = math.min(counts[i] or 0, surplus)
    if part > 0 then correct(b, math.min(math.floor(requests[i][clock] / rule.slice), newest), -part) end
    surplus = surplus - part
  end
  return true
end

-- Does the same for each budget, with the requests and the usage of an outcome.
function budget.settle_earlier(all, outcome, clock, at)
  local is_free = false
  for i = 1, all and #all or 0 do
    local used = outcome.used[all[i].rule.unit]
    if used then is_free = settle_earlier(all, i, outcome.requests, clock, used, at) or is_free end
  end
  return is_free
end

-- Returns the mean reservation of recent departures for each budget, at least 1.
function budget.mean_costs(all)
  local means = {}
  for i = 1, #all do means[i] = math.max(all[i].mean, 1) end
  return means
end

-- Formats the budgets for storage, '' if none has charges or open reservations. A recent charge of 0 is stored too:
-- its departure may use more than it reserved.
function budget.text(all)
  local parts, says_something = {}, false
  for i = 1, #all do
    local b = all[i]
    local slices, sum = slices_of(b)
    says_something = says_something or b.total > 0 or b.open > 0 or (b.newest + 1) * b.rule.slice + b.rule.counted > all.now
    parts[i] = string.format('%s %d %d %d %d %d %d %d %d %d %d %d;%s', b.rule.unit, b.rule.amount, b.rule.window, b.total, b.tat, b.since,
      b.newest, sum, b.open, b.mean, b.waits, #slices / budget.WIDTH, slices)
  end
  return says_something and table.concat(parts) or ''
end

-- Returns whether no charge of a text counts any more at a time.
function budget.has_ended(text, now)
  local at = 1
  while true do
    local unit, amount, window, _, _, _, newest, _, _, _, _, count, behind = string.match(text, HEAD, at)
    if not unit then return true end
    local rule = new_rule(unit, amount + 0, window + 0, 1)
    if (newest + 1) * rule.slice + rule.counted > now then return false end
    at = behind + count * budget.WIDTH
  end
end

-- Returns how long texts of these rules count, in milliseconds; 0 without any.
function budget.lasts(rules)
  local longest = 0
  for _, rule in ipairs(rules) do longest = math.max(longest, rule.counted + 2 * rule.slice) end
  return math.ceil(longest / 1000)
end

return budget
