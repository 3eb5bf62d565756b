-- control_flow.lua: changes of one flow, or of one group, by an operator. It pauses or resumes
-- the flow, gives it settings of its own over those of all flows, or removes them. A release ends a hold and an open breaker of a
-- flow, and forgets its adaptive rate; a group has none of these.
-- All processes obey from the next script on. If the flow may go again after the change, it
-- returns to the calendar. May be sent twice.
--
-- KEYS[1]  …:settings    hash  settings of the bucket
-- KEYS[2]  …:pace    hash  offset: of the calendar's clock
-- KEYS[3]  …:flows   hash  flow -> its state (see flow.lua); …:groups for a group
-- KEYS[4]  …:flow_settings  hash  flow -> its own settings; …:group_settings for a group
-- KEYS[5]  …:due:    zset  flow -> its turn in calendar time; where flows are in groups …:due_groups, group -> its turn
-- KEYS[6...]  of a flow its five places: …:q:<priority>:<flow>, four lists, the most important first, then
--          …:later:<flow>, a zset; where flows are in groups then what group.load wants. Of a group …:due:<group>, a zset
-- ARGV[1]  channel: to wake dispatchers on
-- ARGV[2]  bucket: the message to publish
-- ARGV[3]  name: of the flow, or of the group
-- ARGV[4]  action: pause, resume, release, set or reset (which leaves a pause)
-- ARGV[5]  kind: 1 a flow, 2 a flow in a group, 3 a group
-- ARGV[6...]  pause: a note of the author and the reason, one line; set: rate_count, rate_per, burst, capacity, max_in_flight,
--          weight, then any number of lines that are kept for programs; each "" to leave it as it is, "-" to have
--          none
-- Returns  {1} the bucket is not configured; else {0, now, 1 if the bucket has flows, 2 if they are in
--          groups, else 0 (if there is no such level, nothing was changed), text of the settings before ("" none),
--          text after, text of the downstream before ("" none, see downstream.lua)}
-- Stores   the settings as text: the line of flow.lua, a line with the note of the pause ("-" none), the other
--          lines; no expiry: they are obeyed until they are taken back
-- Needs    Redis 7.0

--#include lib/downstream.lua
--#include lib/flow.lua
--#include lib/group.lua

local conf, pace, flows, flow_settings, due_flows = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local channel, bucket, name, action, what = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local FIRST, FIRST_PLACE = 6, 5
local GROUP = '3'
local NUMBERS, PAUSED = 6, 7

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('HDEL', conf, '')

local known = redis.call('HMGET', conf, 'rate_count', 'flows')
if not known[1] then return { 1 } end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local parted = known[2] or '0'
if parted ~= (what == GROUP and '2' or what) then return { 0, now, tonumber(parted), '', '', '' } end

-- The text as a list: the fields of the first line, then the other lines.
local text = redis.call('HGET', flow_settings, name) or ''
local fields, lines = {}, {}
for line in string.gmatch(text .. '\n', '([^\n]*)\n') do lines[#lines + 1] = line end
for word in string.gmatch(lines[1], '%S+') do fields[#fields + 1] = word end
for i = #fields + 1, PAUSED do fields[i] = '-' end
lines[2] = lines[2] or '-'

if action == 'pause' then
  -- Paused again, it stays paused since the first time.
  if not tonumber(fields[PAUSED]) then fields[PAUSED] = string.format('%.0f', now) end
  lines[2] = ARGV[FIRST]
elseif action == 'resume' then
  fields[PAUSED], lines[2] = '-', '-'
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
    elseif value ~= '' then
      lines[line] = value
    end
  end
end

local says_something = false
lines[1] = table.concat(fields, ' ')
for word in string.gmatch(lines[1], '%S+') do says_something = says_something or word ~= '-' end
for i = 3, #lines do says_something = says_something or lines[i] ~= '-' end
local after = says_something and table.concat(lines, '\n') or ''
if says_something then
  redis.call('HSET', flow_settings, name, after)
else
  redis.call('HDEL', flow_settings, name)
end

-- Waiting jobs may go, or sooner than before.
local calendar = flow.calendar(due_flows, pace)
local loaded = flow.load(conf, flows, flow_settings, { name }, what == GROUP and group.OF_ALL or nil)
local f = loaded[1]
local said = f.state.down and downstream.write(f.state.down) or ''
if action == 'release' and f.state.down then
  f.state.down, f.settings = nil, f.configured
  flow.save(flows, f, now + calendar.offset)
end
if what == GROUP then
  f.due = KEYS[FIRST_PLACE + 1]
  f.turn = tonumber(redis.call('ZRANGE', f.due, 0, 0, 'WITHSCORES')[2])
  group.recall(calendar, f, now)
else
  local groups = parted == '2' and group.load(conf, KEYS, FIRST_PLACE + flow.PLACES, loaded)
  flow.recall(calendar, f, KEYS, FIRST_PLACE, now, flow.next(KEYS, FIRST_PLACE, now))
  group.close(groups, now, calendar)
end
if calendar.sooner or action == 'resume' then redis.call('PUBLISH', channel, bucket) end
return { 0, now, tonumber(parted), text, after, said }
