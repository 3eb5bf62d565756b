-- use.lua: the usage of calls of language models, by the day of their claim. A bucket has a hash for each day, …:use:<day>, such as
-- …:use:20261126, by UTC. It lives for KEPT, so that the last 31 days are always there. Its twin in Go is use.go.
--
--   field  "caller model flow": the letters of the caller (see callers.lua), '' without one; the model, percent-escaped; and 'f' and the
--          flow, 'g' and the path of a flow in a group, '' in a bucket without flows
--   value  "calls input output": the number of calls, and their tokens
--
-- If a fallback responded with another model than requested, the model is written "model>asked". If the calls of a row were
-- charged another number of tokens than they used, the field "+" and the row's name has the difference, which may be negative.
--
-- A hash has at most 1000 such rows. The first 900 are of any caller, model and flow. After them, calls of another caller, model or flow
-- are counted in "* model *", and after 99 of these, calls of another model in "* * *". So no call is missing in the sums. At each of
-- these levels a caller has at most as many rows as it leaves free: a single caller gets half of them. Calls without a caller are limited
-- only by the total.
--
--   field  "#1", "#2": number of rows of the first and the second level; "#1 caller", "#2 caller": number of them that a caller has added
--
-- The text of a call for settle.lua is "@day model input output", and the charged tokens if that is not their sum: day is the number of
-- the day's key, from the last one. settle.lua counts no outcome without its lease, so a call counts once, however often its outcome
-- is sent.
--
--   …:use:<day>  hash  caller, model and flow -> calls and tokens of the day; in buckets with the worker llm; expires

--#include lib/callers.lua
--#include lib/codes.lua
--#include lib/pool.lua

local use = {
  MOST = { 900, 99 }, -- rows of each level. There is one more level, of one row
  KEPT = 2764800000, -- milliseconds: 32 days
  OTHER = '*', -- no escaped model and no caller has this form
  MORE = '+',
}

-- Parses the text of a job for settle.lua into its charges to budgets, its usage of a model, and the response that it names.
-- time, nth, flow and the letters of its caller: see responses.settle.
function use.note(part, text, mark, spent, uses, named, time, nth, flow)
  local at = string.find(text, '@', 1, true)
  local charged, of_budgets, of_model = at and string.sub(text, 1, at - 1) or text, nil, nil
  local kind, id, model = string.match(charged, '!(%l) (%S+) (%S*)$')
  if kind then charged = string.sub(charged, 1, string.find(charged, '!', 1, true) - 1) end
  if charged ~= '' then
    of_budgets = { part = part, text = charged }
    spent[#spent + 1] = of_budgets
  end
  if at then
    of_model = { part = part, text = string.sub(text, at + 1), mark = mark }
    uses[#uses + 1] = of_model
  end
  if not kind then return end
  named[#named + 1] = { kind = kind, id = id, model = model, time = time, nth = nth, flow = flow, spent = of_budgets, use = of_model,
    letters = string.sub(mark, callers.MARK + 1) }
end

-- Parses the usage of a call: day, model, tokens of input and output, and the difference between charged and used tokens.
function use.read(text)
  local day, model, input, output, charged = string.match(text, '^(%d+) (%S*) (%d+) (%d+) ?(%-?%d*)$')
  if not day then return nil end
  input, output = tonumber(input), tonumber(output)
  return day, model, input, output, (tonumber(charged) or input + output) - input - output
end

-- Adds a call, or a sum of calls, to the sums of a hash. letters: the caller that adds the row if there is none.
local function add(sums, field, letters, model, calls, input, output, more)
  local sum = sums[field]
  if not sum then
    sum = { letters = letters, model = model, calls = 0, input = 0, output = 0, more = 0 }
    sums[field], sums.fields[#sums.fields + 1] = sum, field
  end
  sum.calls, sum.input, sum.output, sum.more = sum.calls + calls, sum.input + input, sum.output + output, sum.more + more
end

-- Returns the value of a field with a sum added.
local function text(stored, sum)
  local calls, input, output = string.match(stored or '', '^(%d+) (%d+) (%d+)$')
  return string.format('%.0f %.0f %.0f', (calls or 0) + sum.calls, (input or 0) + sum.input, (output or 0) + sum.output)
end

-- Returns the number of rows in a field.
local function rows_in(rows, key, field)
  rows[field] = rows[field] or tonumber(redis.call('HGET', key, field) or 0)
  return rows[field]
end

-- Returns whether a caller may add another row to a level, and counts it.
local function may_make(rows, key, level, letters)
  if not use.MOST[level] then return true end
  local all = '#' .. level
  local own, free = all .. ' ' .. letters, use.MOST[level] - rows_in(rows, key, all)
  local held = letters ~= '' and rows_in(rows, key, own) or 0
  if not callers.may_have(free, held) then return false end
  rows[all], rows[own] = rows[all] + 1, letters ~= '' and held + 1 or nil
  return true
end

local function write(key, sums)
  local rows, is_new, charged = {}, false, {} -- rows: by the field that counts them
  for level = 1, #use.MOST + 1 do
    if #sums.fields == 0 then break end
    local written, rest = {}, { fields = {} }
    for i, stored in ipairs(redis.call('HMGET', key, unpack(sums.fields))) do
      local field = sums.fields[i]
      local sum = sums[field]
      if stored or may_make(rows, key, level, sum.letters) then
        written[#written + 1], written[#written + 2] = field, text(stored, sum)
        is_new = is_new or not stored
        if sum.more ~= 0 then charged[use.MORE .. field] = sum.more end
      else
        local model = level == 1 and sum.model or use.OTHER
        add(rest, use.OTHER .. ' ' .. model .. ' ' .. use.OTHER, sum.letters, model, sum.calls, sum.input, sum.output, sum.more)
      end
    end
    if #written > 0 then redis.call('HSET', key, unpack(written)) end
    sums = rest
  end
  for field, more in pairs(charged) do redis.call('HINCRBY', key, field, string.format('%.0f', more)) end
  if is_new then
    for field, n in pairs(rows) do redis.call('HSET', key, field, n) end
    redis.call('PEXPIRE', key, use.KEPT)
  end
end

-- Counts calls, 256 at most. outcomes: for each { text, part, mark }: the text for settle.lua, the part of its flow, and the job's
-- mark. Flows are in ARGV behind first_flow, if levels has any.
function use.count(outcomes, levels, first_flow, in_pool)
  local last, keys, sums_of = #KEYS - (in_pool and pool.KEYS or 0), {}, {}
  local letter = levels == codes.GROUPS and 'g' or 'f'
  for _, one in ipairs(outcomes) do
    local day, model, input, output, more = use.read(one.text)
    local key = day and KEYS[last + 1 - day]
    if key then
      local flow = levels == codes.NO_FLOWS and '' or letter .. ARGV[first_flow + one.part.n]
      if not sums_of[key] then keys[#keys + 1], sums_of[key] = key, { fields = {} } end
      local letters = string.sub(one.mark, callers.MARK + 1)
      add(sums_of[key], letters .. ' ' .. model .. ' ' .. flow, letters, model, 1, input, output, more)
    end
  end
  for _, key in ipairs(keys) do write(key, sums_of[key]) end
end

return use
