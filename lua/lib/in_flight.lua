-- in_flight.lua: max_in_flight of a bucket whose configuration does not set it. The configuration computes the number from its rates and
-- from the time that a delivery may take. It rises here if an operator overrides the rate or the burst, and falls back afterwards.
--
-- Fields of the settings:
--   in_flight_rule  the time that a delivery may take, microseconds; "" if the configuration sets the number
--   max_in_flight, own:max_in_flight, set:max_in_flight  as for any override (see control.lua). A raised number has no "set:".

local in_flight = {
  MOST = 100000000,
}

-- Adapts max_in_flight to the present settings. An operator's own max_in_flight stays. Returns the number before and after, nil if it
-- stays.
function in_flight.follow(conf)
  local time, now, kept, set, count, per, burst, fast, large = unpack(redis.call('HMGET', conf, 'in_flight_rule', 'max_in_flight',
    'own:max_in_flight', 'set:max_in_flight', 'rate_count', 'rate_per', 'burst', 'own:rate_count', 'own:burst'))
  if set or not now then return end
  local own = kept or now
  local want = tonumber(own)
  if (time or '') ~= '' and (fast or large) then
    want = math.min(math.max(want, tonumber(burst), math.ceil(count * time / per)), in_flight.MOST)
  end
  local after = own
  if want > tonumber(own) then
    after = string.format('%d', want)
    redis.call('HSET', conf, 'max_in_flight', after, 'own:max_in_flight', own)
  elseif kept then
    redis.call('HSET', conf, 'max_in_flight', own)
    redis.call('HDEL', conf, 'own:max_in_flight')
  end
  if after ~= now then return now, after end
end

return in_flight
