-- reserve_flows.lua: the second step of a claim in a bucket with groups. It returns the flows whose
-- turn it is, of the groups that reserve.lua has chosen. Each group gets as many flows as it has
-- slots; groups with more flows get the remaining slots. It moves the turns of these flows a
-- second ahead, as reserve.lua does with groups. Sent twice, it returns other flows, or none.
--
-- KEYS[1]  …:pace    hash  clock, offset, steps: of the engine's clock (see pacer.lua)
-- KEYS[2...]  …:due:<group>, for each group: zset  flow -> its turn in the turn queue
-- ARGV[1]  want: flows at most, 1 to 500
-- ARGV[2]  horizon: microseconds to look ahead, up to 400000
-- ARGV[3]  again: how many of the last groups reserve.lua has named because settings have changed
-- ARGV[4]  expected: the latest time of the clock of Redis that the dispatcher expects, 0 unknown (see pacer.is_unexpected)
-- Returns  {0, now, and for each flow: its name, its turn in the turn queue}
-- Stores   clock and offset, as reserve.lua does
-- Needs    Redis 7.0

--#include lib/pacer.lua
--#include lib/server_time.lua
--#include lib/text.lua

local pace = KEYS[1]
local want, horizon, again, expected = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local MOST_AGAIN = 2000 -- flows whose turn one run moves

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', pace, '')

local now = server_time()
if pacer.is_unexpected(now, expected) then return { 0, now } end
local clock_text, offset_text, steps_text = unpack(redis.call('HMGET', pace, 'clock', 'offset', 'steps'))
local offset, steps = pacer.clock(now, clock_text, offset_text, steps_text, 0, 0)
local clock = now + offset
local latest, reserved = text(clock + horizon), text(clock + pacer.RESERVED)
redis.call('HSET', pace, 'clock', text(clock), 'offset', text(offset), 'steps', text(steps))

-- Flows of these groups wait for turns under the previous settings: it is the turn of all of them now, and claim.lua computes
-- when each may go.
local left = MOST_AGAIN
for n = #KEYS - again + 1, #KEYS do
  local waiting = redis.call('ZRANGEBYSCORE', KEYS[n], string.format('(%d', clock + pacer.RESERVED), '+inf', 'LIMIT', 0, left)
  local turns = {}
  for i, name in ipairs(waiting) do turns[2 * i - 1], turns[2 * i] = text(clock), name end
  for i = 1, #turns, 1000 do redis.call('ZADD', KEYS[n], unpack(turns, i, math.min(i + 999, #turns))) end
  left = left - #waiting
end

-- Adds flows of a group, behind those already added, and returns their number. Numbers for Redis are texts, which is
-- cheaper.
local reply, size, moved, groups = { 0, now }, 2, {}, #KEYS - 1
local function name(n, most)
  local own = moved[n]
  local before = #own
  local found = redis.call('ZRANGEBYSCORE', KEYS[n + 1], '-inf', latest, 'WITHSCORES', 'LIMIT', before == 0 and '0' or before / 2, most)
  for i = 1, #found, 2 do
    reply[size + i], reply[size + i + 1] = found[i], found[i + 1] + 0 -- a number in the reply, which has no fraction
    own[before + i], own[before + i + 1] = reserved, found[i]
  end
  size, want = size + #found, want - #found / 2
  return #found / 2
end

local each, more = math.max(math.floor(want / groups), 1), {}
local each_text = text(each)
for n = 1, groups do
  moved[n] = {}
  if want > 0 and name(n, want < each and want or each_text) == each then more[#more + 1] = n end
end
for _, n in ipairs(more) do
  if want > 0 then name(n, want) end
end
for n = 1, groups do
  if #moved[n] > 0 then redis.call('ZADD', KEYS[n + 1], unpack(moved[n])) end
end
return reply
