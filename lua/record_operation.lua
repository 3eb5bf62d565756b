-- record_operation.lua: writes the record of an operation, before its first change and again at its end. May be sent twice.
--
-- Each record is in one class: begun (it may have changed something), changed (it ended, and is done or failed), or nothing (it was
-- refused, or there was nothing to change). A class has bounds of its own, so no refused operation removes the record of a change.
-- A record beyond its author's share of the class removes the author's oldest one of the class; above the bound of the class, the
-- author that holds the most of it loses its oldest one. Equal operations that changed nothing are counted in one record.
-- An operation that has just begun usually ends and leaves the class, so it does not remove a record of an operation that did not end.
-- Its record does not count for its author's share, and no record of its author counts for the bound of the class begun. So that class
-- exceeds its bound by at most a share.
--
-- KEYS[1]  tundish:{fleet}:<book>:lists  zset  all of score 0, "list began record": list is all or b:<bucket>; and "list newest record":
--          list is a<class>:<author>; both times have 16 digits
-- KEYS[2]  tundish:{fleet}:<book>:texts  hash  record -> "began part class author bucket seal token times newest count" and a line
--          break, then its text; begun, changed, nothing -> the bytes of the class
-- KEYS[3]  tundish:{fleet}:<book>:begun  zset  author -> the bytes of its records of this class
-- KEYS[4]  tundish:{fleet}:<book>:changed  zset  the same
-- KEYS[5]  tundish:{fleet}:<book>:nothing  zset  the same
-- ARGV[1]  record: its id
-- ARGV[2]  text: JSON
-- ARGV[3]  part: the id of this request; an operation may take several
-- ARGV[4]  ends: 1 at the end of the part, 0 at its begin
-- ARGV[5]  count: of the jobs or flows changed by this part
-- ARGV[6]  author: a digest of it
-- ARGV[7]  bucket: the record is in its list; "-" in none
-- ARGV[8]  seal: a digest of all common values of the parts of one operation; "-" there is one part
-- ARGV[9]  token: that the next part shows; "-" none
-- ARGV[10] joins: at the begin, the record whose token the client shows; "" none
-- ARGV[11] shown: this token
-- ARGV[12] into: at the end, the record that counts equal operations that changed nothing; "" this one stands alone
-- ARGV[13] rest: the record that counts operations of this author and hour that would begin a further record; "" where into is
-- ARGV[14] share: bytes of one author's records in each of the classes begun and changed
-- ARGV[15] most: bytes of all records in each of them
-- ARGV[16] share_of_nothing: bytes of one author's records in the class nothing
-- ARGV[17] most_of_nothing: bytes of all records in it
-- Returns  {when the operation began, 1 if this part has joined an earlier one, else 0, 1 if rest counts it, else 0}
-- Stores   records for 90 days within these bounds
-- Needs    Redis 7.0

--#include lib/server_time.lua
--#include lib/text.lua

local lists, texts, begun, changed, nothing = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, said, part, ends, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local author, bucket, seal, token = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local joins, shown, into, rest, share, most = ARGV[10], ARGV[11], ARGV[12], ARGV[13], tonumber(ARGV[14]), tonumber(ARGV[15])
local share_of_nothing, most_of_nothing = tonumber(ARGV[16]), tonumber(ARGV[17])
local BEGUN, CHANGED, NOTHING = 0, 1, 2
local CLASSES = {
  [BEGUN] = { name = 'begun', shares = begun, share = share, most = most },
  [CHANGED] = { name = 'changed', shares = changed, share = share, most = most },
  [NOTHING] = { name = 'nothing', shares = nothing, share = share_of_nothing, most = most_of_nothing },
}
local KEPT = 7776000000000 -- microseconds: 90 days
local JOINABLE = 600000000 -- microseconds that may pass between two parts
local LONGEST = 86400000000 -- microseconds from the first part to the last: a record goes 90 days after the first one
local HOUR, AN_HOUR = 3600000000, 20 -- microseconds; records of one author that count equal operations
local ENTRIES = 512 -- bytes that count for the entries of a record in the lists
local AT_ONCE = 100 -- records that a run removes for each reason
local HEAD = '^(%d+) (%S+) ([012]) (%S+) (%S+) (%S+) (%S+) (%d+) (%d+) (%d+)[^\n]*\n' -- a newer program may add to it

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('ZREM', lists, '')

local now = server_time()
-- Redis may have evicted one of them alone.
if redis.call('EXISTS', lists, texts) < 2 then redis.call('UNLINK', lists, texts, begun, changed, nothing) end

local function find(record)
  local stored = redis.call('HGET', texts, record)
  if not stored then return nil end
  local r = { bytes = #stored + ENTRIES }
  r.began, r.part, r.class, r.author, r.bucket, r.seal, r.token, r.times, r.newest, r.count = string.match(stored, HEAD)
  r.class = tonumber(r.class)
  return r.began and r
end

local function list_of(class, owner) return string.format('a%d:%s', class, owner) end

local function entries(record, r)
  local function behind(time) return string.format(' %016d ', tonumber(time)) .. record end
  local list = { 'all' .. behind(r.began), list_of(r.class, r.author) .. behind(r.newest) }
  if r.bucket ~= '-' then list[#list + 1] = 'b:' .. r.bucket .. behind(r.began) end
  return list, list_of(r.class, r.author) .. behind(r.began)
end

local function charge(r, bytes)
  local class = CLASSES[r.class]
  redis.call('HINCRBY', texts, class.name, bytes)
  local held = (tonumber(redis.call('ZSCORE', class.shares, r.author)) or 0) + bytes
  if held > 0 then redis.call('ZADD', class.shares, text(held), r.author) else redis.call('ZREM', class.shares, r.author) end
end

local function forget(record, r)
  local list, older = entries(record, r)
  redis.call('ZREM', lists, older, unpack(list))
  redis.call('HDEL', texts, record)
  charge(r, -r.bytes)
end

local written, written_bytes -- the class of the record that this run has written, and its bytes
local function put(record, r, old)
  if old then forget(record, old) end
  r.newest = now
  local head = string.format('%s %s %d %s %s ', r.began, r.part, r.class, r.author, r.bucket)
  local stored = head .. string.format('%s %s %d %d %d\n', r.seal, r.token, r.times, r.newest, r.count) .. said
  redis.call('HSET', texts, record, stored)
  for _, entry in ipairs(entries(record, r)) do redis.call('ZADD', lists, 0, entry) end
  charge(r, #stored + ENTRIES)
  written, written_bytes = r.class, #stored + ENTRIES
end

-- oldest returns the oldest record of a list, up to a text that follows its name.
local function oldest(list, up_to)
  local entry = redis.call('ZRANGE', lists, '[' .. list .. ' ', '(' .. list .. up_to, 'BYLEX', 'LIMIT', 0, 1)[1]
  if not entry then return nil end
  local record = string.match(entry, '^%S+ %d+ (.*)$')
  local r = find(record)
  if not r then redis.call('ZREM', lists, entry) end
  return record, r
end

-- trim removes the oldest records of lists, as long as is_above reports an excess.
local function trim(list, up_to, is_above)
  for _ = 1, AT_ONCE do
    if not is_above() then return end
    local record, r = oldest(list(), up_to)
    if not record then return end
    if r then forget(record, r) end
  end
end

local began, joined = text(now), 0
if ends == 0 and joins ~= '' then
  local r = find(joins)
  local is_same = r and r.token ~= '-' and r.token == shown and r.seal == seal and r.author == author
  local is_late = is_same and (tonumber(r.newest) < now - JOINABLE or tonumber(r.began) < now - LONGEST)
  if is_same and not is_late then id, token, joined = joins, r.token, 1 end
end
local mine, is_rest = find(id), 0
if into ~= '' and not find(into) then
  local list = list_of(NOTHING, author)
  local recent = redis.call('ZLEXCOUNT', lists, string.format('[%s %016d', list, now - now % HOUR), '(' .. list .. '!')
  if find(rest) or recent >= AN_HOUR then into, is_rest = rest, 1 end
end
if into ~= '' and mine and tonumber(mine.count) == 0 then
  local same = find(into)
  began = same and same.began or mine.began
  forget(id, mine)
  put(into, { began = began, part = part, class = NOTHING, author = author, bucket = mine.bucket, seal = '-', token = '-',
    times = (same and same.times or 0) + 1, count = 0 }, same)
elseif into == '' or mine then
  began = mine and mine.began or began
  if not mine or mine.part ~= part or mine.class < ends then -- otherwise this is a repetition
    local kept = mine or { bucket = bucket, token = token, count = 0 }
    put(id, { began = began, part = part, class = ends == 1 and CHANGED or BEGUN, author = author, bucket = kept.bucket, seal = seal,
      token = kept.token, times = 1, count = kept.count + count }, mine)
  end
else -- a repetition: it is counted already
  local same = find(into)
  began = same and same.began or began
end

trim(function() return 'all' end, string.format(' %016d', now - KEPT), function() return true end)
if written then
  local class = CLASSES[written]
  local function held() return tonumber(redis.call('ZSCORE', class.shares, author)) or 0 end
  local has_begun = written == BEGUN
  local spared = has_begun and written_bytes or 0
  trim(function() return list_of(written, author) end, '!', function() return held() - spared > class.share end)
  local function greatest()
    local first, second = unpack(redis.call('ZRANGE', class.shares, 0, 1, 'REV'))
    return list_of(written, has_begun and first == author and second or first or '')
  end
  trim(greatest, '!', function()
    return (tonumber(redis.call('HGET', texts, class.name)) or 0) - (has_begun and held() or 0) > class.most
  end)
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, text(KEPT / 1000)) end
return { tonumber(began), joined, is_rest }
