-- schedule_runs.lua: returns the outcomes of the last fires of a schedule, and of their jobs. Writes nothing.
--
-- KEYS[1]  …:schedules  hash  see schedule.lua
-- KEYS[2]  …:body  hash  id -> the job, until it is settled
-- KEYS[3]  …:meta  hash  id -> state of a job that was claimed once
-- KEYS[4]  …:seen  hash  settled id -> fingerprint, state, end of its dedupe window
-- ARGV[1]  name
-- Returns  {} there is no such schedule; else for each run, the newest first: its line, and the state's code of the job that it fired, 0
--          it ended and is not remembered, -1 it fired none; at most 20 lines, of at most 1 KiB each
-- Stores   nothing
-- Needs    Redis 7.0

--#include lib/codec.lua
--#include lib/schedule.lua
--#include lib/server_time.lua

local key, body, meta, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local name = ARGV[1]
local QUEUED = 1

local now = server_time()
if not schedule.read(key, name) then return {} end

local function state_of(id)
  if redis.call('HEXISTS', body, id) == 1 then
    local stored = redis.call('HGET', meta, id)
    return stored and tonumber(string.sub(stored, 1, 1)) or QUEUED
  end
  local _, state, ends = codec.seen(redis.call('HGET', seen, id) or '')
  return state and ends > now and tonumber(state) or 0
end

local reply = {}
for line in string.gmatch(redis.call('HGET', key, name .. ':runs') or '', '[^\n]+') do
  local run = cjson.decode(line)
  reply[#reply + 1], reply[#reply + 2] = line, run.outcome == 'fired' and state_of(run.job) or -1
end
return reply
