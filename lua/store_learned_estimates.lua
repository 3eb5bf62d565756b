-- store_learned_estimates.lua: stores the learned estimates of a bucket, one for each subject, such as a model. Workers compute them from
-- the responses of the downstream. Of two estimates for a subject, the one from more responses stays, so concurrent processes do not
-- overwrite a better one. A caller may have at most as many subjects as it leaves free. May be sent twice.
--
-- KEYS[1]  …:settings  hash  settings of the bucket
-- KEYS[2]  …:learned_estimates  hash  subject, such as a model -> "answers text", and " @caller" if a caller added it; expires
-- ARGV[1]  most: subjects that the bucket keeps. Estimates of further subjects are ignored
-- ARGV[2...]  for each estimate: subject, number of responses, text, letters of the caller whose job was the first ("" none)
-- Returns  {1} the bucket is not configured; {0} done
-- Stores   the learned estimates. The key expires 31 days after its last write
-- Needs    Redis 7.0

--#include lib/callers.lua

local conf, estimates = KEYS[1], KEYS[2]
local most = tonumber(ARGV[1])
local FIRST, ARGS_EACH = 2, 4
local CALLER = ' @(%a+)$'
local KEPT = 2678400000 -- milliseconds

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', conf, '')

if not redis.call('HGET', conf, 'rate_count') then return { 1 } end
local count, held, written = redis.call('HLEN', estimates), nil, false

-- Returns whether another subject of a caller may be stored.
local function has_room(caller)
  if count >= most or caller == '' then return count < most end
  if not held then
    held = {}
    for _, stored in ipairs(redis.call('HVALS', estimates)) do
      local of = string.match(stored, CALLER)
      if of then held[of] = (held[of] or 0) + 1 end
    end
  end
  return callers.may_have(most - count, held[caller] or 0)
end

for i = FIRST, #ARGV, ARGS_EACH do
  local subject, answers, text, caller = unpack(ARGV, i, i + 3)
  local stored = redis.call('HGET', estimates, subject)
  local known = stored and tonumber((string.match(stored, '^%d+'))) or 0
  if tonumber(answers) > known and (stored or has_room(caller)) then
    if not stored then
      count = count + 1
      if held then held[caller] = (held[caller] or 0) + 1 end
    end
    local of = stored and string.match(stored, CALLER) or caller
    redis.call('HSET', estimates, subject, answers .. ' ' .. text .. (of ~= '' and ' @' .. of or ''))
    written = true
  end
end
if written then redis.call('PEXPIRE', estimates, KEPT) end
return { 0 }
