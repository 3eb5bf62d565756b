-- begin_session.lua: begins a session of the holder of an API key. The number of sessions per key is limited: the oldest is removed. May be
-- sent twice.
--
-- KEYS[1]  tundish:{fleet}:sessions:<key>  hash  session -> "began ends secret address"
-- ARGV[1]  session: a digest of it
-- ARGV[2]  secret: the digest of the key's secret
-- ARGV[3]  address: of the client
-- ARGV[4]  life: of the session, microseconds
-- ARGV[5]  most: sessions of the key
-- Returns  {number of sessions removed}
-- Stores   the sessions of the key until the last of them has ended
-- Needs    Redis 7.0

--#include lib/server_time.lua
--#include lib/text.lua

local sessions = KEYS[1]
local session, secret, address, life, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', sessions, '')

local now = server_time()
local kept, removed = {}, 0
local stored = redis.call('HGETALL', sessions)
for i = 1, #stored, 2 do
  local name, began, ends = stored[i], string.match(stored[i + 1], '^(%d+) (%d+) ')
  if not ends or tonumber(ends) <= now then
    removed = removed + redis.call('HDEL', sessions, name)
  elseif name ~= session then
    kept[#kept + 1] = { name = name, began = tonumber(began) }
  end
end
table.sort(kept, function(a, b) return a.began < b.began or a.began == b.began and a.name < b.name end)
for i = 1, #kept - most + 1 do removed = removed + redis.call('HDEL', sessions, kept[i].name) end
redis.call('HSET', sessions, session, string.format('%d %d %s %s', now, now + life, secret, address))
redis.call('PEXPIRE', sessions, text(math.floor(life / 1000)))
return { removed }
