-- usual.lua: the usual case of enqueue.lua in one piece: a bucket without flows, new jobs
-- that are alike, room and tokens for all of them. Its text goes in front of that
-- script's, and KEYS and ARGV are that script's. Where it does not apply it wrote nothing,
-- and enqueue.lua decides. It does what that does with half of the calls and none of the
-- functions: a small batch takes three quarters of the time, a large one nine tenths.
--
-- Jobs whose ids were made for this batch (ARGV[6] is 2) are new unless the batch is here
-- for the second time. As they are alike, none of them got in then but with the first: so
-- that one alone is looked for.

local body, conf, pace, count, dead, seen = KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local channel, bucket_name, known_rev, limit_count, jobs = ARGV[1], ARGV[2], ARGV[3], ARGV[4] + 0, ARGV[5] + 0
local alike, flows_known = ARGV[6], ARGV[7]
local HEAD, FIRST_LIMIT_KEY, LISTS, MOST = 9, 11, 5, 500 -- MOST: jobs that unpack takes
local KEYS_OF_LIMIT, ARGS_OF_LIMIT = 3, 6
local SHED = { 'shed_high', 'shed_high', 'shed_normal', 'shed_low' } -- by priority; critical is never shed

if alike == '2' and flows_known == '0' and jobs <= MOST then
  local before = #ARGV - 2 * jobs -- the jobs' arguments follow; before them: priority, flow, a key for each limit
  local priority, first_id, queue = ARGV[before - 1 - limit_count] + 0, ARGV[before + 1], #KEYS - LISTS

  local obeys = redis.call('HMGET', conf, 'capacity', 'limits_rev', 'flows', 'rate_count', 'rate_per', 'paused', SHED[priority],
    'dead_capacity', 'dead_max_bytes', 'dead_drop')
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local usual = obeys[1] and (obeys[2] or '') == known_rev and (obeys[3] or '0') == '0'
  local held
  if usual then
    local bound = obeys[1] + 0
    if priority > 1 then bound = math.ceil(bound * (obeys[7] or 100) / 100) end
    -- Dead letters and scheduled jobs do not count, and are looked for where that matters.
    held = redis.call('HLEN', body)
    local full = held + jobs - bound
    if full > 0 then full = full - redis.call('ZCARD', dead) - math.max(redis.call('HGET', count, 'scheduled') or 0, 0) end
    usual = full <= 0 and redis.call('HEXISTS', body, first_id) == 0 and redis.call('HEXISTS', seen, first_id) == 0
  end
  if usual and obeys[8] and obeys[10] ~= '1' then
    local most, most_bytes = dlq.bounds(obeys[1], obeys[8], obeys[9])
    local bytes = most_bytes < math.huge and redis.call('HGET', count, 'dead_bytes') or 0
    -- There are no more dead letters than jobs.
    usual = bytes + 0 < most_bytes and (held < most or redis.call('ZCARD', dead) < most)
  end
  local rules, states = {}, {}
  for i = 1, limit_count do
    local key = ARGV[before - limit_count + i] + 0
    if usual and key > 0 then
      local at, max = HEAD + (key - 1) * ARGS_OF_LIMIT, ARGV[HEAD + key * ARGS_OF_LIMIT - 1] + 0
      local rule, place = limits.rule(ARGV[at + 1]), KEYS[FIRST_LIMIT_KEY + (key - 1) * KEYS_OF_LIMIT + 1]
      local state = rule.read(place, now, ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4] + 0)
      -- The first write in a span of the last argument counts the key.
      usual = rule.check(state, jobs) == 0 and (max == 0 or (state.at or 0) - now >= -(now % ARGV[at + 6]))
      rules[i], states[i], state.place = rule, state, place
    end
  end

  if usual then
    -- The first write, which a server without memory refuses.
    local prefix = string.format('%.0f %.0f ', redis.call('HINCRBY', count, 'seq', jobs) - jobs, now)
    local bodies, ids, n = { unpack(ARGV, before + 1) }, {}, 1
    for at = 2, 2 * jobs, 2 do
      ids[n], bodies[at], n = bodies[at - 1], prefix .. bodies[at], n + 1
    end
    redis.call('HSET', body, unpack(bodies))
    local waited = redis.call('RPUSH', KEYS[queue + priority], unpack(ids)) - jobs

    local ahead, reply = waited, { 0, now, 1, 0, 0, obeys[4] + 0, obeys[5] + 0 }
    for i = 1, limit_count do
      local rule, state, remaining, reset = rules[i], states[i], -1, 0
      if rule then
        rule.take(state, jobs)
        remaining, reset = rule.answer(state)
        rule.write(state.place, state, reset)
      end
      reply[6 + 2 * i], reply[7 + 2 * i] = remaining, reset
    end
    -- All lists were empty if one is not now.
    local alone = waited >= held -- all that the bucket held waits in this list
    if waited == 0 and (alone or redis.call('EXISTS', unpack(KEYS, queue + 1, queue + 4)) == 1) then
      redis.call('PUBLISH', channel, bucket_name)
    end
    if priority > 1 and not alone and redis.call('EXISTS', unpack(KEYS, queue + 1, queue + priority - 1)) > 0 then
      for i = 1, priority - 1 do ahead = ahead + redis.call('LLEN', KEYS[queue + i]) end
    end
    reply[4] = ahead
    if not obeys[6] then
      local interval, last = reply[7] / reply[6], redis.call('HGET', pace, 'slot') or now
      reply[5] = math.floor(math.max(last + interval, now) + ahead * interval)
    end
    return reply
  end
end
