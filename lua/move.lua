-- move.lua: the steps by which a bucket gets another tag, each of them on the keys of one tag:
-- the one that it leaves, or the one that it comes to. They are in two slots, so no script sees both: a mark at
-- each says how far the move is, and no step undoes what another has decided. While a mark stands here, and
-- the bucket has not arrived, no script does anything to it: the conf that they ask for first is aside, and
-- configure.lua writes none. May be sent twice, and by several who carry out the same move.
--
-- Where it leaves:  freeze -> frozen -> gone (it stays: who has an old configuration finds it)
--                   thaw: back to no mark, when the move is given up
-- Where it comes:   expect -> clearing -> clear -> coming -> ready -> ready -> open -> arrived -> done
--                   refuse -> refused -> done: given up; once ready, it is not given up any more
--                   keep: notes that an operator wants it here, so that it leaves by no other's wish
--                   evict -> evicted: of a move that is known not to be under way any more
--
-- No id freezes a bucket twice. A move is thawed only by who had it refused before, and until then its
-- refused stays; so one that is ready, and whose bucket is seen to be frozen by it after that, is completed.
--
-- KEYS[1]  …:move    hash  the mark: state, move, tag, since, by, at_most
-- KEYS[2]  …:conf    hash  what the bucket obeys
-- KEYS[3]  …:conf_moving  hash  the same, while nobody is to obey it
-- KEYS[4]  …:body    hash  its jobs
-- KEYS[5]  …:leases  zset  id -> deadline, microseconds
-- KEYS[6]  …:seen    hash  ids of settled jobs
-- KEYS[7]  …:flows   hash  flow -> its state
-- ARGV[1]  step, one of the above
-- ARGV[2]  move: its id
-- ARGV[3]  tag: the other one
-- ARGV[4]  by: who does it
-- ARGV[5]  at_most: freeze a bucket that has no jobs, and no more ids and flows than so many, paused or not; ''
--          freeze one that is paused, whatever it has
-- ARGV[6]  channel to wake dispatchers on
-- ARGV[7]  bucket: what to publish there
-- Returns  {code, number, state, move, tag, since, by, at_most}: the mark as it is then, '' where there is none.
--          code: 0 done, now or before; 1 the bucket is not configured; 2 it is not paused; 3 leases are out:
--          number of them; 4 the mark says otherwise; 5 it holds jobs: number of them, or it is in use; 6 it has too
--          many ids or flows: number of them; 7 an operator wants it here, and nobody else takes it away
-- Stores   moved, a field of the conf: when and by whom it was moved here; the mark: of where it came to until all is
--          done, of where it was for as long as nothing moves there; no expiry
-- Needs    Redis 7.0

local mark, conf, aside, body, leases, seen, flows = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local step, move, tag, by, at_most, channel, bucket = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local FIELDS = { 'state', 'move', 'tag', 'since', 'by', 'at_most' }

-- A write that is accepted when Redis is out of memory opens the door for the others.
redis.call('HDEL', mark, '')

local stored = redis.call('HMGET', mark, unpack(FIELDS))
local state = stored[1] or ''
local ours = stored[2] == move
local is_free = state == '' or state == 'gone' or state == 'evicted' -- for a move to come
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function answer(code, number)
  local reply = { code, number or 0 }
  for _, text in ipairs(redis.call('HMGET', mark, unpack(FIELDS))) do reply[#reply + 1] = text or '' end
  return reply
end
local function write(new)
  redis.call('DEL', mark)
  redis.call('HSET', mark, 'state', new, 'move', move, 'tag', tag, 'since', string.format('%.0f', now), 'by', by,
    'at_most', at_most)
  return answer(0)
end
local function advance(new)
  redis.call('HSET', mark, 'state', new)
  return answer(0)
end
local function rename(from, to)
  if redis.call('EXISTS', from) == 1 then redis.call('RENAME', from, to) end
end

if step == 'freeze' then
  if state == 'frozen' and stored[3] == tag then return answer(0) end
  if state ~= '' then return answer(4) end
  if at_most == '' then
    local settings = redis.call('HMGET', conf, 'rate_count', 'paused')
    if not settings[1] then return answer(1) end
    if not settings[2] then return answer(2) end
    -- Those that ran out are taken back where the jobs come to.
    local out = redis.call('ZCOUNT', leases, string.format('(%.0f', now), '+inf')
    if out > 0 then return answer(3, out) end
  else
    if redis.call('HEXISTS', conf, 'moved') == 1 then return answer(7) end
    local jobs, kept = redis.call('HLEN', body), redis.call('HLEN', seen) + redis.call('HLEN', flows)
    if jobs > 0 then return answer(5, jobs) end
    if kept > tonumber(at_most) then return answer(6, kept) end
  end
  rename(conf, aside)
  return write('frozen')
elseif step == 'thaw' then
  if state == '' then return answer(0) end
  if state ~= 'frozen' or not ours then return answer(4) end
  rename(aside, conf)
  redis.call('DEL', mark)
  redis.call('PUBLISH', channel, bucket)
  return answer(0)
elseif step == 'gone' then
  if not ours or (state ~= 'frozen' and state ~= 'gone') then return answer(4) end
  return advance('gone')
elseif step == 'expect' then
  if ours and (state == 'clearing' or state == 'coming' or state == 'ready') then return answer(0) end
  if not is_free then return answer(4) end
  -- Nobody knows of jobs here, unless they are what a move has left. With settings, the bucket lives here: who
  -- asks comes late.
  local jobs = redis.call('HLEN', body)
  if state == '' and (jobs > 0 or redis.call('EXISTS', conf) == 1) then return answer(5, jobs) end
  return write('clearing')
elseif step == 'clear' then
  if not ours or (state ~= 'clearing' and state ~= 'coming') then return answer(4) end
  return advance('coming')
elseif step == 'ready' then
  if ours and (state == 'ready' or state == 'arrived') then return answer(0) end
  if not ours or state ~= 'coming' then return answer(4) end
  return advance('ready')
elseif step == 'open' then
  if state == '' or ours and state == 'arrived' then return answer(0) end
  if not ours or state ~= 'ready' then return answer(4) end
  rename(aside, conf)
  redis.call('PUBLISH', channel, bucket)
  return advance('arrived')
elseif step == 'keep' then
  if state ~= '' and state ~= 'arrived' then return answer(4) end
  if redis.call('EXISTS', conf) == 1 then redis.call('HSET', conf, 'moved', string.format('%.0f', now) .. ' ' .. by) end
  return answer(0)
elseif step == 'refuse' then
  local begun = ours and (state == 'clearing' or state == 'coming' or state == 'refused')
  if not begun and not is_free then return answer(4) end
  local jobs = redis.call('HLEN', body)
  if state == '' and (jobs > 0 or redis.call('EXISTS', conf) == 1) then return answer(5, jobs) end
  return write('refused')
elseif step == 'evict' then
  if ours and (state == 'clearing' or state == 'coming' or state == 'ready' or state == 'refused') then return advance('evicted') end
  return answer(0)
elseif step == 'done' then
  if state == '' then return answer(0) end
  if not ours or (state ~= 'arrived' and state ~= 'refused') then return answer(4) end
  redis.call('DEL', mark)
  return answer(0)
end
return answer(4)
