-- control_flow.lua: changes of one flow, or of one group, by an operator. It pauses or resumes
-- the flow, gives it its own settings instead of the defaults, or removes them. A release ends a hold and an open breaker of a
-- flow, and resets its adaptive rate. Enable lets a disabled flow run again. Remove does all of these. A group has none of them.
-- All processes obey from the next script on. If the flow may go again after the change, it
-- returns to the turn queue. May be sent twice.
--
-- KEYS[1]  …:settings    hash  settings of the bucket
-- KEYS[2]  …:pace    hash  offset: of the engine's clock
-- KEYS[3]  …:flows   hash  flow -> its state (see flow.lua); …:groups for a group
-- KEYS[4]  …:flow_settings  hash  flow -> its own settings; …:group_settings for a group
-- KEYS[5]  …:due:    zset  flow -> its turn, by the engine's clock; where flows are in groups …:due_groups, group -> its turn
-- KEYS[6] …:disabled  zset  disabled flow -> when empty_disabled.lua checks it next
-- KEYS[7] …:count   hash  events that were lost
-- KEYS[8] …:outbox  zset  events -> when to move them on (see outbox.lua)
-- KEYS[9] …:outbox_texts  hash  their texts
-- KEYS[10...]  of a flow its five places: …:q:<priority>:<flow>, four lists, the most important first, then
--          …:later:<flow>, a zset; where flows are in groups then what group.load wants. Of a group …:due:<group>, a zset
-- ARGV[1]  channel: to wake dispatchers on
-- ARGV[2]  bucket: the message to publish
-- ARGV[3]  name: of the flow, or of the group
-- ARGV[4]  action: pause, resume, release, enable, remove, set or reset (which keeps a pause, and a disabled flow disabled)
-- ARGV[5]  kind: 1 a flow, 2 a flow in a group, 3 a group
-- ARGV[6...]  pause: a note of the author and the reason, one line; set: rate_count, rate_per, burst, capacity, max_in_flight,
--          weight, then any number of lines that are kept for programs, of which the fourth has budgets and the fifth quotas (see
--          flow.lua); each "" to leave it as it is, "-" to have none. "~" and an argument of own_settings.change_list change a line that
--          holds a list
-- Returns  {1} the bucket is not configured; else {0, now, 1 if the bucket has flows, 2 if they are in
--          groups, else 0 (if there is no such level, nothing was changed), text of the settings before ("" none),
--          text after, text of the downstream before ("" none, see downstream.lua), why nothing was changed (see codes.lua; else 0);
--          how far the clock of the downstream's times is ahead of the server's}
-- Stores   the settings as text: the line of flow.lua, a line with the note of the pause ("-" none), the other lines; and own_budgets,
--          the units of own budgets that flows and groups have or had; no expiry: they are effective until they are removed
-- Needs    Redis 7.0

--#include lib/codes.lua
--#include lib/downstream.lua
--#include lib/flow.lua
--#include lib/group.lua
--#include lib/outbox.lua
--#include lib/own_settings.lua
--#include lib/server_time.lua

local conf, pace, flows, flow_settings, due_flows, disabled = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local count, outbox_key, outbox_texts = KEYS[7], KEYS[8], KEYS[9]
local channel, bucket, name, action, what = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local FIRST, FIRST_PLACE = 6, 9
local GROUP = '3'
local NUMBERS, PAUSED = own_settings.NUMBERS, own_settings.PAUSED

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', conf, '')

local rate_count, levels_text, events, batches, own_budgets, max_flows =
  unpack(redis.call('HMGET', conf, 'rate_count', 'flows', 'events', 'batch', 'own_budgets', 'max_flows'))
if not rate_count then return { 1 } end
local now = server_time()
local parted = levels_text or codes.NO_FLOWS
if parted ~= (what == GROUP and codes.GROUPS or what) then return { 0, now, tonumber(parted), '', '', '', 0, 0 } end

local text, units = redis.call('HGET', flow_settings, name) or '', nil
local fields, lines = own_settings.read(text)

if action == 'pause' then
  -- A repeated pause keeps the time of the first.
  if not tonumber(fields[PAUSED]) then fields[PAUSED] = string.format('%d', now) end
  lines[own_settings.NOTE] = ARGV[FIRST]
elseif action == 'resume' then
  fields[PAUSED], lines[own_settings.NOTE] = '-', '-'
elseif action == 'enable' then
  local box = outbox.open(fields[own_settings.DISABLED] ~= '-' and events, outbox_key, outbox_texts, count, now)
  outbox.note(box, 'flow.recovered', name, 1, { reason = 'enabled' })
  outbox.write(box)
  fields[own_settings.DISABLED] = '-'
  redis.call('ZREM', disabled, name)
elseif action == 'remove' then
  fields, lines = own_settings.read('')
  redis.call('ZREM', disabled, name)
elseif action == 'reset' then
  for i = 1, NUMBERS do fields[i] = '-' end
  for i = #lines, 3, -1 do lines[i] = nil end
elseif action == 'set' then
  for i = FIRST, #ARGV do
    local n, value = i - FIRST + 1, ARGV[i]
    local line = n - NUMBERS + 2
    if n > NUMBERS and not lines[line] then lines[line] = '-' end
    if value ~= '' and n <= NUMBERS then
      fields[n] = value
    elseif string.sub(value, 1, 1) == '~' then
      lines[line] = own_settings.change_list(lines[line], string.sub(value, 2))
      if not lines[line] then return { 0, now, tonumber(parted), text, text, '', codes.LIST_TOO_LONG, 0 } end
    elseif value ~= '' then
      lines[line] = value
      if line == own_settings.BUDGETS then units = own_settings.units(own_budgets or '', value) end
    end
  end
end

if units and (batches or '') ~= '' then return { 0, now, tonumber(parted), text, text, '', codes.BUDGETS_OF_BATCH, 0 } end
local after = own_settings.text(fields, lines)
if text == '' and after ~= '' and max_flows and redis.call('HLEN', flow_settings) >= tonumber(max_flows) then
  return { 0, now, tonumber(parted), text, text, '', codes.TOO_MANY_OWN, 0 }
end
if units and units ~= (own_budgets or '') then redis.call('HSET', conf, 'own_budgets', units) end
if after ~= '' then
  redis.call('HSET', flow_settings, name, after)
else
  redis.call('HDEL', flow_settings, name)
end

-- Waiting jobs may go now, or sooner.
local turn_queue = flow.turn_queue(due_flows, pace)
local loaded = flow.load(conf, flows, flow_settings, { name }, what == GROUP and group.OF_ALL or nil)
local f = loaded[1]
local said = f.state.down and downstream.write(f.state.down) or ''
if (action == 'release' or action == 'remove') and f.state.down then
  if f.state.down.breaker ~= downstream.CLOSED and f.configured.disabled == 0 then
    local box = outbox.open(events, outbox_key, outbox_texts, count, now)
    outbox.note(box, 'flow.recovered', name, 1, { reason = action .. 'd' })
    outbox.write(box)
  end
  f.state.down, f.settings = nil, f.configured
  flow.save(flows, f, now + turn_queue.offset)
end
if what == GROUP then
  f.due = KEYS[FIRST_PLACE + 1]
  f.turn = tonumber(redis.call('ZRANGE', f.due, 0, 0, 'WITHSCORES')[2])
  group.recall(turn_queue, f, now)
else
  local groups = parted == codes.GROUPS and group.load(conf, KEYS, FIRST_PLACE + flow.PLACES, loaded)
  flow.recall(turn_queue, f, KEYS, FIRST_PLACE, now, flow.next(KEYS, FIRST_PLACE, now))
  group.close(groups, now, turn_queue)
end
if turn_queue.sooner or action == 'resume' or action == 'enable' or action == 'remove' then redis.pcall('PUBLISH', channel, bucket) end
return { 0, now, tonumber(parted), text, after, said, 0, turn_queue.offset }
