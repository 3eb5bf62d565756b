-- inspect_budgets.lua: returns the charges of the budgets and the departures counted by the quotas of some flows or groups. Writes nothing.
--
-- KEYS[1]  …:settings    hash  settings of the bucket
-- KEYS[2]  …:pace    hash  offset: of the engine's clock
-- KEYS[3]  …:charges  hash  charges to budgets (see charges.lua)
-- KEYS[4]  …:flow_settings  hash  flow -> its own settings
-- KEYS[5]  …:group_settings  hash  group -> its own settings
-- KEYS[6...]  for each name the times of its departures: …:departed:<flow>, or …:departed_group:<group>, a list
-- ARGV[1]  of_groups: 1 if the names are of groups, 0 of flows
-- ARGV[2...]  names: flows or groups, 32 at most
-- Returns  the server's time in microseconds, then for each name its budgets, what is used of each and when it is free (see
--          allowance.budgets), and its quotas (see allowance.text), each "" without any
-- Stores   nothing
-- Needs    Redis 7.0

--#include lib/allowance.lua
--#include lib/charges.lua
--#include lib/flow.lua
--#include lib/pacer.lua
--#include lib/server_time.lua

local conf, pace, charges_key, flow_settings, group_settings = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local of_groups, names = ARGV[1] == '1', { unpack(ARGV, 2) }
local FIRST = 6 -- key of departures

local now = server_time()
local offset = tonumber(redis.call('HGET', pace, 'offset') or 0)
local own_texts = flow.own_texts(of_groups and group_settings or flow_settings, names)
local settings = flow.all_settings(own_texts, {}, #names)
local quotas = redis.call('HGET', conf, of_groups and 'group_quotas' or 'flow_quotas')
local clock = now + offset
local reply = { now }
for n, name in ipairs(names) do
  local part = { name = name, settings = settings[n] }
  local charged = charges.read_levels(conf, charges_key, now, offset, not of_groups and part or nil, of_groups and part or nil)
  reply[2 * n] = (allowance.budgets(of_groups and charged.group or charged.flow, now, offset))
  reply[2 * n + 1] = allowance.text(KEYS[FIRST + n - 1], part.settings.quotas or quotas, now, offset, clock + pacer.MAX_HORIZON)
end
return reply
