-- arrivals.lua: writes the jobs that enqueue.lua admits: their bodies, their places, their flows and groups, and the turns of these.
--
-- bucket and parts are the ones of placement.lua. …:pace has the size of the largest body since the bucket was empty,
-- and whether any job expires (see queue.lua).

--#include lib/encoding.lua
--#include lib/expiries.lua
--#include lib/flow.lua
--#include lib/flow_owners.lua
--#include lib/idle.lua
--#include lib/in_chunks.lua
--#include lib/pacer.lua

local arrivals = { CHUNK = 500 }

-- Opens the list of admitted jobs. there: number of bodies; largest and expiring: from …:pace. Once they are written, waited
-- has for each part the length of the last list that got jobs, before it got them.
function arrivals.open(bucket, there, largest, expiring)
  local was_empty = there == 0
  return { bodies = {}, size = 0, expire = {}, waited = {}, flows_before = bucket.there, stored_largest = tonumber(largest),
    was_expiring = expiring, largest = was_empty and 0 or tonumber(largest), expiring = not was_empty and expiring }
end

-- Records when a job expires, if it does: its text has ~ and a number behind its mark.
local function note_expiry(new, bucket, id, sealed)
  local digit = string.byte(sealed, 18)
  if digit > 57 or digit < 48 then return end
  new.expiring, bucket.hurries = '1', true
  expiries.note(new.expire, id, bucket.now, sealed, 17)
end

-- Adds the body of a job.
function arrivals.add(new, bucket, id, stored, sealed)
  local bodies, n, largest = new.bodies, new.size, new.largest
  bodies[n + 1], bodies[n + 2] = id, stored
  new.size = n + 2
  if largest and #stored > largest then new.largest = #stored end
  if string.byte(sealed, 17) == 126 then note_expiry(new, bucket, id, sealed) end
end

-- Adds the bodies of jobs that are alike, the first ones of a run: each is the prefix and a value of ARGV: of the first job at
-- first + 2, of each other one width further.
function arrivals.add_all(new, bucket, ids, prefix, first, width)
  local bodies, args, byte, largest, at = new.bodies, ARGV, string.byte, new.largest or math.huge, first + 2
  for j = 1, #ids do
    local sealed = args[at]
    local stored = prefix .. sealed
    bodies[2 * j - 1], bodies[2 * j] = ids[j], stored
    if #stored > largest then largest = #stored end
    if byte(sealed, 17) == 126 then note_expiry(new, bucket, ids[j], sealed) end
    at = at + width
  end
  new.size = 2 * #ids
  if new.largest then new.largest = largest end
end

-- Writes the bodies. known is the field expires of the settings.
function arrivals.write_bodies(new, body, pace, conf, expiries_key, known)
  in_chunks('HSET', body, new.bodies)
  expiries.write(expiries_key, conf, new.expire, known)
  local largest = new.largest
  if largest and largest ~= new.stored_largest then redis.call('HSET', pace, 'largest', string.format('%d', largest)) end
  if new.expiring and not new.was_expiring then redis.call('HSET', pace, 'expiring', '1') end
  if new.was_expiring and not new.expiring then redis.call('HDEL', pace, 'expiring') end
end

-- Removes the idle flows and groups that were found, and records the callers of new flows.
function arrivals.forget(bucket, idle_key)
  if bucket.flow_owners then flow_owners.write(bucket.flow_owners) end
  if bucket.idle then idle.forget(bucket.idle, idle_key, bucket.flows, bucket.groups and bucket.groups.key) end
end

-- Returns the score of a turn. Many turns are now.
local function score(bucket, turn)
  if turn ~= bucket.scored then bucket.scored, bucket.score = turn, string.format('%d', turn + bucket.offset) end
  return bucket.score
end

-- Puts a flow in the turn queue of its group.
local function turn_in_group(bucket, part, turn)
  local g = part.group
  redis.call('ZADD', g.due, 'LT', score(bucket, turn), part.name)
  turn = turn + bucket.offset
  g.turn = math.min(g.turn or turn, turn)
end

-- Stores the groups. Adds their turns to the turns to write, and returns the earliest,
-- by the server's clock.
local function write_groups(bucket, turns)
  local texts, earliest = {}, nil
  for _, g in ipairs(bucket.groups) do
    if g.changed then texts[#texts + 1], texts[#texts + 2] = g.name, flow.write(g.state) end
    if g.turn and not pacer.is_held(g) then
      local turn = math.max(g.turn - bucket.offset, g.ready)
      turns[#turns + 1], turns[#turns + 2] = score(bucket, turn), g.name
      earliest = math.min(earliest or turn, turn)
    end
  end
  if #texts > 0 then
    local new = redis.call('HSET', bucket.groups.key, unpack(texts))
    encoding.hash(bucket.groups.key, bucket.groups_there - new, bucket.groups_there)
  end
  return earliest
end

-- Pushes the jobs for the lists. Returns how many of these were empty, and the length
-- of the last of them before the push.
local function push(part)
  local were_empty, waited = 0, 0
  for priority, pushed in pairs(part.pushed or {}) do
    local key, n, length = KEYS[part.at + priority], #pushed, nil
    for i = 1, n, arrivals.CHUNK do
      local to = i + arrivals.CHUNK - 1
      length = redis.call('RPUSH', key, unpack(pushed, i, to < n and to or n))
    end
    waited = length - n
    if part.state then flow.fill(part.state, flow.LETTERS[priority]) end
    if waited == 0 then were_empty = were_empty + 1 end
  end
  return were_empty, waited
end

-- Returns whether to check jobs that wait for batch members: the new jobs complete a batch, or one of them expires.
local function ends_wait(bucket, part)
  local rules = bucket.batch
  if not rules or rules.wait == 0 or not part.pushed then return false end
  local came, waiting = 0, 0
  for _, pushed in pairs(part.pushed) do came = came + #pushed end
  for priority = 1, 4 do waiting = waiting + redis.call('LLEN', KEYS[part.at + priority]) end
  return bucket.hurries or waiting >= rules.size and waiting - came < rules.size
end

-- Writes the admitted jobs of a flow. Returns the length of the last list that got jobs, before it got them. In a
-- bucket without flows it also returns whether to wake a dispatcher. In a bucket with flows it returns an upper bound
-- of the flow's turn, or nil if the flow keeps its turn.
local function write_part(bucket, part)
  local were_empty, waited = push(part)
  local first, wake, turn = part.first_due, false, nil
  local looks = bucket.batch and ends_wait(bucket, part)
  if bucket.has_flows then
    if were_empty > 0 or looks then turn = part.ready > bucket.now and part.ready or bucket.now end
    if first then turn = math.min(turn or math.huge, math.max(first, part.ready)) end
  else
    -- All lists were empty if as many exist now as were filled.
    wake = looks or were_empty > 0 and redis.call('EXISTS', unpack(KEYS, part.at + 1, part.at + 4)) == were_empty
  end
  if first then
    local later, delayed = KEYS[part.at + flow.PLACES], part.delayed
    if part.state then flow.fill(part.state, 'd') end
    if not bucket.has_flows then
      local head = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')[2]
      wake = wake or not head or first < tonumber(head)
    end
    in_chunks('ZADD', later, delayed)
  end
  return waited, wake, turn
end

-- Writes the parts. Returns whether to wake a dispatcher.
function arrivals.write(new, bucket, parts, idle_key)
  local wake, turns, texts, text_count, earliest, has_flows = false, {}, {}, 0, nil, bucket.has_flows
  for n = 1, #parts do
    local part = parts[n]
    if part.pushed or part.first_due then
      local waits, wakes, turn = write_part(bucket, part)
      new.waited[n], wake = waits, wake or wakes
      if turn and part.group then
        turn_in_group(bucket, part, turn)
      elseif turn then
        turns[#turns + 1], turns[#turns + 2] = score(bucket, turn), part.name
        if not earliest or turn < earliest then earliest = turn end
      end
      if has_flows then
        texts[text_count + 1], texts[text_count + 2] = part.name, flow.write(part.state)
        text_count = text_count + 2
      end
    end
  end
  if not has_flows then return wake end
  arrivals.forget(bucket, idle_key)
  redis.call('HSET', bucket.flows, unpack(texts))
  encoding.hash(bucket.flows, new.flows_before, bucket.there)
  if bucket.groups then earliest = write_groups(bucket, turns) end
  if not earliest then return wake end
  local turn_queue = bucket.turn_queue
  local head = redis.call('ZRANGE', turn_queue, 0, 0, 'WITHSCORES')[2]
  local added = redis.call('ZADD', turn_queue, 'LT', unpack(turns))
  if added > 0 then
    local placed = redis.call('ZCARD', turn_queue)
    encoding.zset(turn_queue, placed - added, placed)
  end
  return not head or earliest + bucket.offset < tonumber(head)
end

return arrivals
