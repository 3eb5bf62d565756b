-- inspect_result.lua: returns whether a job has ended, and its response, if that is stored.
-- Records that a process that waited for it has read it.
--
-- KEYS[1]  …:body    hash  id -> see codec.lua
-- KEYS[2]  …:meta    hash  id -> see codec.lua
-- KEYS[3]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[4]  …:results hash  id -> the stored response (see results.lua)
-- KEYS[5]  …:result_ends  zset  id -> when its result is dropped
-- KEYS[6]  …:settings  hash  settings of the bucket
-- ARGV[1]  id
-- ARGV[2]  waited: 1 if the caller has waited for the result, else 0
-- Returns  {} unknown; {state's code, 0 (it has not ended: any code of a job that is not settled)}; {state's code, 1} it has ended, and
--          its response is not stored; {state's code (0 not remembered any more), 2, head and body, as one text with a line feed
--          between them}
-- Stores   nothing: it only makes a result expire sooner
-- Needs    Redis 7.0

--#include lib/codec.lua
--#include lib/results.lua
--#include lib/server_time.lua

local body, meta, seen, results_key, ends_key, conf = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id, waited = ARGV[1], ARGV[2] == '1'
local NOT_ENDED, NOT_KEPT, KEPT = 0, 1, 2

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', ends_key, '')

local now = server_time()
local state = 0
if redis.call('HEXISTS', body, id) == 1 then
  state = string.match(redis.call('HGET', meta, id) or codec.QUEUED, '^%d')
  if state ~= codec.DEAD then return { tonumber(state), NOT_ENDED } end
else
  local settled = redis.call('HGET', seen, id)
  local ends = settled and tonumber(string.sub(settled, 13))
  if ends and ends > now then state = string.sub(settled, 12, 12) end
end
state = tonumber(state)
local kept = redis.call('HGET', results_key, id)
if kept then
  local retention = waited and redis.call('HGET', conf, 'result_retention')
  if waited then results.was_read(results.open(retention or 0, nil, nil, now, { results_key, ends_key }), id) end
  return { state, KEPT, kept }
end
if state == 0 then return {} end
return { state, NOT_KEPT }
