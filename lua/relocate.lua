-- relocate.lua: the steps by which a bucket moves to other keys, because it joins or leaves a pool. The index (see assign.lua)
-- names the keys of the bucket and a generation: a number that each change raises by one. The settings at each place store
-- the lowest valid generation. A process with an older generation can change nothing and admits no
-- job. Each step may be sent twice, and by several processes.
--
-- check (new place) -> leave (old place) -> begin (new place) -> carry or put (new place) -> assign.lua -> configure.lua (new), clear (old)
--
-- If one script may touch both places, a bucket moves with its jobs: carry renames its keys. Only a delivery in progress prevents
-- that: its outcome is for the old keys. So leave holds the bucket, as a downstream may, until no lease is left that
-- a dispatcher may still extend. If the process dies, the hold ends by itself. Expired leases move along, and a
-- sweep returns their jobs. In a cluster the places are in two slots: a bucket moves while it is empty, and put copies its settings.
--
-- begin clears the new place, so a key of the bucket that exists there later was carried. A key of that name at the old place is then a
-- remnant, made since by a script that does not read the settings, such as reserve_flows.lua. It must not replace the carried key.
--
-- KEYS[1]  …:settings  hash  settings of the bucket; at a place where it is not: only generation and left_for
-- KEYS[2]  …:parked_settings  hash  old place: the previous settings; new place: the settings to come
-- KEYS[3]  …:body    hash  its jobs: waiting, in flight and dead
-- KEYS[4]  …:leases  zset  id -> deadline, microseconds
-- KEYS[5]  …:dead    zset  id -> time of death
-- KEYS[6]  …:seen    hash  settled id -> fingerprint, state, end of its dedupe window
-- KEYS[7]  …:seen_window  list  settled ids, oldest first (see dedupe.lua)
-- KEYS[8]  …:seen_minute  list  the same for ids that the client made
-- KEYS[9] …:callback_texts  hash  callbacks that wait (see callbacks.lua)
-- KEYS[10...]  put: the key to write; begin, clear: the keys to remove; carry: a key of the old place, then its name here, and so on, 400
--          keys at most; leave: …:pace of a bucket that moves with all it holds, none where it has to be empty; look: any
--          key of the other place, so that a cluster refuses the call
-- ARGV[1]  step: check, leave, begin, carry, put or clear; look counts the bucket's contents. check and look write nothing
-- ARGV[2]  generation: of the bucket after the change
-- ARGV[3]  what: leave: the tag of the new place; put: "hash" or "list"; carry: "keep" if an existing key of the new place stays,
--          "replace" if not: an older list of departures of a flow, which begin cannot name
-- ARGV[4]  schema: leave: version of this program; put: of a list, how many elements come before these
-- ARGV[5]  revision: leave: of the configuration; put: milliseconds until the key expires, 0 or less for never
-- ARGV[6...]  put: fields and values of a hash, or elements of a list; 1000 texts at most
-- Returns  {0, tag} done, now or before; leave: the tag of the new place, which the first process decides.
--          {1} another change was made since, or is in progress. {2, waiting jobs, dead letters, leases,
--          remembered ids, microseconds until the last of these ends, callbacks}: the bucket is not empty; always for look.
--          {6, leases that prevent it, microseconds until the last of these ends unless extended} leave: the bucket is held.
--          {3, revision} a higher revision is effective. {4, schema} a newer schema is effective. {5, generation} check,
--          begin: the bucket is at this place since that generation, the caller's or a later one
-- Stores   generation and left_for, two fields at each place where the bucket ever was; no expiry: they hold off processes
--          with an older configuration. carried: number of keys carried to the new place, until it is configured. The values
--          of put. A hold of the bucket, 3 s (see downstream.lua)
-- Needs    Redis 7.0

--#include lib/downstream.lua
--#include lib/server_time.lua

local conf, parked, body, leases, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local seen, seen_window, seen_minute, callback_texts = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local step, generation, to = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local schema, revision = tonumber(ARGV[4] or 0), tonumber(ARGV[5] or 0)
local offset, ttl = schema, revision
local FIRST_KEY, FIRST = 10, 6
local HOLD, MOVES = 3000000, 'moves' -- microseconds, longer than a process waits between two tries; the reason of the hold

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', conf, '')

local now = server_time()
local stored_generation, left_for, lives = unpack(redis.call('HMGET', conf, 'generation', 'left_for', 'schema'))
local lowest = tonumber(stored_generation or 0)

local function holdings()
  local jobs, in_flight, died = redis.call('HLEN', body), redis.call('ZCARD', leases), redis.call('ZCARD', dead)
  local waiting = redis.call('HLEN', callback_texts)
  -- The newest id of each list ends last.
  local left = 0
  for _, list in ipairs({ seen_window, seen_minute }) do
    local newest = redis.call('LINDEX', list, -1)
    local settled = newest and redis.call('HGET', seen, newest)
    if settled then left = math.max(left, tonumber(string.sub(settled, 13)) - now) end
  end
  local ids = left > 0 and redis.call('HLEN', seen) or 0
  return { 2, math.max(jobs - in_flight - died, 0), died, in_flight, ids, left, waiting },
    jobs + in_flight + died + ids + waiting > 0
end
local function remove_keys()
  if #KEYS >= FIRST_KEY then redis.call('UNLINK', unpack(KEYS, FIRST_KEY)) end
end

-- Returns how many leases a dispatcher may still extend, and when the last of these ends. A dispatcher extends its leases every 33 % of
-- their length, and after an outage of Redis also those that expired meanwhile.
local function under_way(pace)
  local lease = tonumber(redis.call('HGET', pace, 'lease') or 0)
  local live = redis.call('ZCOUNT', leases, string.format('%d', now - math.floor(lease / 3) - 1000000), '+inf')
  if live == 0 then return 0, 0 end
  local last = redis.call('ZRANGE', leases, -1, -1, 'WITHSCORES')[2]
  return live, math.max(tonumber(last) - now, 0)
end

-- Holds the bucket: no claim hands out a job before the hold ends. A hold from a response stays, and is extended if it is shorter.
local function hold(pace)
  local said, ahead = unpack(redis.call('HMGET', pace, 'down', 'offset'))
  local down = downstream.read(said or nil) or downstream.new(MOVES)
  down.till = math.max(down.till, now + tonumber(ahead or 0) + HOLD)
  redis.call('HSET', pace, 'down', downstream.write(down))
end

-- Ends the hold, unless a response has changed the downstream's state since.
local function end_hold(pace)
  local down = downstream.read(redis.call('HGET', pace, 'down') or nil)
  if down and down.reason == MOVES then redis.call('HDEL', pace, 'down') end
end

if step == 'look' then return (holdings()) end
local comes = step == 'check' or step == 'begin'
if comes and lives and lowest >= generation then return { 5, lowest } end
if lowest > generation or lowest == generation and lives then return { 1 } end

if comes then
  -- Jobs that a failover has left here would mix with others. Carried jobs are the bucket's own.
  if lowest < generation and redis.call('HLEN', body) + redis.call('HLEN', callback_texts) > 0 then return (holdings()) end
  if step == 'begin' and lowest < generation then
    remove_keys()
    redis.call('DEL', conf, parked)
    redis.call('HSET', conf, 'generation', string.format('%d', generation))
  end
elseif step == 'leave' then
  if lowest == generation then return left_for and { 0, left_for } or { 1 } end
  -- A bucket that moved here and that no process has used yet still has its settings in parked_settings.
  local own_schema, own_revision, owned = unpack(redis.call('HMGET', lives and conf or parked, 'schema', 'revision', 'owned'))
  if tonumber(own_schema or 0) > schema then return { 4, tonumber(own_schema) } end
  if owned ~= '0' and tonumber(own_revision or 0) > revision then return { 3, tonumber(own_revision) } end -- see configure.lua
  local pace = KEYS[FIRST_KEY]
  if pace then
    local live, ends = under_way(pace)
    if live > 0 then
      hold(pace)
      return { 6, live, ends }
    end
    end_hold(pace)
  else
    local held, any = holdings()
    if any then return held end
  end
  if lives then redis.call('RENAME', conf, parked) else redis.call('HDEL', conf, 'carried') end
  redis.call('HSET', conf, 'generation', string.format('%d', generation), 'left_for', to)
elseif step == 'carry' then
  if lowest ~= generation or lives then return { 1 } end
  local carried = 0
  for i = FIRST_KEY, #KEYS, 2 do
    local is_there = redis.call('EXISTS', KEYS[i]) == 1
    if is_there and (to == 'replace' or redis.call('EXISTS', KEYS[i + 1]) == 0) then
      redis.call('RENAME', KEYS[i], KEYS[i + 1])
      carried = carried + 1
    end
  end
  if carried > 0 then redis.call('HSET', conf, 'carried', string.format('%d', (redis.call('HGET', conf, 'carried') or 0) + carried)) end
elseif step == 'put' then
  if lowest ~= generation then return { 1 } end
  local key = KEYS[FIRST_KEY]
  if to == 'hash' then
    redis.call('HSET', key, unpack(ARGV, FIRST))
  else
    local there = redis.call('LLEN', key)
    if there < offset then return { 1 } end
    if there - offset <= #ARGV - FIRST then redis.call('RPUSH', key, unpack(ARGV, FIRST + there - offset)) end
  end
  if ttl > 0 then redis.call('PEXPIRE', key, string.format('%d', ttl)) end
else
  if lowest ~= generation or not left_for then return { 1 } end
  remove_keys()
end
return { 0, to or '' }
