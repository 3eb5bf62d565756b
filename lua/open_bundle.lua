-- open_bundle.lua: opens a bundle, or changes an open one: the number of its jobs, and the URL of its callback. A bundle whose jobs have
-- all ended finishes here, once their number is known. May be sent twice.
--
-- KEYS[1]  …:settings  hash  settings of the bucket
-- KEYS[2]  …:bundles  hash  id -> see bundle.lua
-- KEYS[3]  …:bundle_ends  zset  id -> when it is forgotten
-- KEYS[4]  …:callbacks  zset  callbacks -> when to hand them out (see callbacks.lua)
-- KEYS[5]  …:callback_texts  hash  their texts
-- KEYS[6]  …:callback_counts  hash  number of callbacks of each flow and group
-- KEYS[7]  …:bundle_callers  zset  id -> its caller
-- ARGV[1]  id
-- ARGV[2]  caller: its letters, "-" none
-- ARGV[3]  size: number of its jobs, 0 unchanged
-- ARGV[4]  url: of its callback, "" unchanged
-- ARGV[5]  levels: 1 if the bucket has flows, 2 if they are in groups, else 0
-- ARGV[6]  notified: which bundles get a callback: "all", "own" those with a URL, "none"
-- Returns  {1} the bucket is not configured, or has no flows although levels says so, or the reverse; else {0, 0, the bundle's text};
--          {0, 1} another caller has a bundle of this id; {0, 2, the bundle's text} it has finished, and cannot be changed; {0, 3, the
--          maximum, the number that the caller has} there are too many, or the caller has its share
-- Stores   the bundle, for seven days after its last change; its callback, until it is moved on
-- Needs    Redis 7.0

--#include lib/bundle.lua
--#include lib/callbacks.lua
--#include lib/codes.lua
--#include lib/server_time.lua

local conf, key, ends, callers_key = KEYS[1], KEYS[2], KEYS[3], KEYS[7]
local callbacks_key, callback_texts, callback_counts = KEYS[4], KEYS[5], KEYS[6]
local id, caller, size, url, levels, notified = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local DONE, TAKEN, FINISHED, FULL = 0, 1, 2, 3

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', key, '')

local rate_count, stored_levels = unpack(redis.call('HMGET', conf, 'rate_count', 'flows'))
if not rate_count or (stored_levels or codes.NO_FLOWS) ~= levels then return { 1 } end
local now = server_time()
local there = bundle.expire(key, ends, callers_key, now)
local text = redis.call('HGET', key, id)
local b = bundle.parse(text)
if b and b.caller ~= caller then return { 0, TAKEN } end
if not b then
  local may, held = bundle.may_open(key, callers_key, caller, there, now)
  if not may then return { 0, FULL, bundle.MOST, held } end
end

b = b or { opened = now, changed = now, finished = 0, size = 0, done = 0, dead = 0, dropped = 0, cancelled = 0, caller = caller, url = '' }
local is_new_size, is_new_url = size > 0 and size ~= b.size, url ~= '' and url ~= b.url
if b.finished > 0 and (is_new_size or is_new_url) then return { 0, FINISHED, text } end
if text and not is_new_size and not is_new_url then return { 0, DONE, text } end
if is_new_size then b.size = size end
if is_new_url then b.url = url end
local noted = callbacks.open(callbacks_key, callback_texts, now, callback_counts, levels)
bundle.write(key, ends, id, b, now, notified, noted)
bundle.note_caller(callers_key, id, b.caller)
callbacks.write(noted)
return { 0, DONE, bundle.text(b) }
