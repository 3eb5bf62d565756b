-- disabled_deaths.lua: returns when the jobs of a flow died that became dead letters because the flow was disabled. It reads each dead
-- letter of the bucket once, whatever its flow, and stores the times for all flows: the next call continues behind the last dead letter. So
-- a call costs as much as the deaths since the previous one. It is the only script that writes the index.
-- The times are a hint: dead letters may have been removed, and others died in between. May be sent twice.
--
-- KEYS[1]  …:body    hash  id -> "base time mark index envelope"
-- KEYS[2]  …:meta    hash  id -> "state epoch attempts lost crashes claim last"
-- KEYS[3]  …:pace    hash  offset: of the engine's clock, which says whether the server's clock has stepped
-- KEYS[4]  …:count   hash  disabled_deaths: "time offset id", the last dead letter that it read, and the offset then
-- KEYS[5]  …:dead    zset  id -> time of death
-- KEYS[6]  …:disabled_deaths  hash  flow -> "from-to from-to", microseconds: when its jobs died, the earliest first
-- ARGV[1]  flow
-- ARGV[2]  levels: 1, or 2 if flows are in groups
-- ARGV[3]  cause: of the dead letters, a word
-- ARGV[4]  at_most: dead letters to read in this call
-- ARGV[5]  most_bytes: of bodies to read in this call; one is read however large
-- Returns  {1 if there are more dead letters to read, then from and to of each span of the flow}
-- Stores   at most 16 spans per flow, the last one the widest; they restart after a step of the clock, and when the
--          hash has 1000 flows more than there are dead letters
-- Needs    Redis 7.0

--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/flow.lua

local body, meta, pace, count, dead, deaths = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local name, in_groups, at_most, most_bytes = ARGV[1], ARGV[2] == codes.GROUPS, tonumber(ARGV[4]), tonumber(ARGV[5])
local CAUSE = '{"cause":"' .. ARGV[3] .. '"'
local NEAR = 50000 -- microseconds between two deaths of one span: the jobs of a flow die a chunk at a time
local MOST_SPANS, SPARE = 16, 1000

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', count, '')

local offset = redis.call('HGET', pace, 'offset') or '0'
local from, before, last_id = string.match(redis.call('HGET', count, 'disabled_deaths') or '', '^(%d+) (%S+) (.*)$')
if before ~= offset or redis.call('HLEN', deaths) > redis.call('ZCARD', dead) + SPARE then
  redis.call('UNLINK', deaths)
  from, last_id = '0', ''
end

-- The dead letters behind the last one. Dead letters of one instant are in the order of their ids.
local ids, times, skipped, ended = {}, {}, 0, false
while #ids == 0 and not ended do
  local page = redis.call('ZRANGEBYSCORE', dead, from, '+inf', 'WITHSCORES', 'LIMIT', skipped, at_most)
  skipped, ended = skipped + at_most, #page < 2 * at_most
  for i = 1, #page, 2 do
    if tonumber(page[i + 1]) > tonumber(from) or page[i] > last_id then
      ids[#ids + 1], times[#times + 1] = page[i], tonumber(page[i + 1])
    end
  end
end

local oldest = tonumber(redis.call('ZRANGE', dead, 0, 0, 'WITHSCORES')[2] or 0)
local found, bytes, looked = {}, 0, 0
local function spans_of(text)
  local spans = {}
  for first, last in string.gmatch(text or '', '(%d+)%-(%d+)') do spans[#spans + 1] = { first = tonumber(first), last = tonumber(last) } end
  return spans
end
local function note(flow_name, time)
  local spans = found[flow_name] or spans_of(redis.call('HGET', deaths, flow_name))
  while spans[1] and spans[1].last < oldest do table.remove(spans, 1) end
  local newest = spans[#spans]
  if newest and (time - newest.last <= NEAR or #spans >= MOST_SPANS) then
    newest.last = math.max(newest.last, time)
  else
    spans[#spans + 1] = { first = time, last = time }
  end
  found[flow_name] = spans
end

for i, id in ipairs(ids) do
  local _, _, _, _, _, last = codec.numbers(redis.call('HGET', meta, id))
  if string.sub(last, 1, #CAUSE) == CAUSE then
    bytes = bytes + redis.call('HSTRLEN', body, id)
    if i > 1 and bytes > most_bytes then break end
    local job = redis.call('HGET', body, id)
    if job then note((flow.from_job(job, in_groups)), times[i]) end
  end
  looked = i
end

for flow_name, spans in pairs(found) do
  local texts = {}
  for i, span in ipairs(spans) do texts[i] = string.format('%d-%d', span.first, span.last) end
  redis.call('HSET', deaths, flow_name, table.concat(texts, ' '))
end
if looked > 0 then
  redis.call('HSET', count, 'disabled_deaths', string.format('%d %s ', times[looked], offset) .. ids[looked])
end

local reply = { (ended and looked == #ids) and 0 or 1 }
for _, span in ipairs(spans_of(redis.call('HGET', deaths, name))) do
  reply[#reply + 1], reply[#reply + 2] = span.first, span.last
end
return reply
