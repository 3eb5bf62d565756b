-- note_late.lua: records that jobs will miss the finish of a drain window, as the event finish.late. The caller computes that (see
-- Operator.Verdicts in Go). Each finish is reported once, whichever dispatchers foresee it and however often. May be sent twice.
--
-- KEYS[1]  …:settings    hash  events: the kinds that hooks want
-- KEYS[2]  …:count   hash  late: the last finish that was reported, microseconds
-- KEYS[3]  …:outbox  zset  events -> when to move them on (see lib/outbox.lua)
-- KEYS[4]  …:outbox_texts  hash  their texts
-- ARGV[1]  finish: microseconds
-- ARGV[2]  left: number of jobs that will miss it
-- ARGV[3]  why: what holds them back, words with spaces between, most jobs first
-- ARGV[4]  sentence: the verdict for people, at most 4000 bytes
-- Returns  1 it was recorded; 0 no hook wants it, or this finish was reported
-- Stores   the event until it is moved on; the finish until the next one
-- Needs    Redis 7.0

--#include lib/outbox.lua
--#include lib/server_time.lua

local conf, count, outbox_key, outbox_texts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local finish, left, why, sentence = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local KIND = 'finish.late'

-- Redis accepts this write when it is out of memory, and then also the later writes of the script.
redis.call('HDEL', count, '')

local box = outbox.open(redis.call('HGET', conf, 'events'), outbox_key, outbox_texts, count, server_time())
if not box or not outbox.wants(box, KIND) or redis.call('HGET', count, 'late') == finish then return 0 end
redis.call('HSET', count, 'late', finish)
outbox.note(box, KIND, nil, 1, { reason = string.match(why, '^%S+'), at = finish, left = left, why = why, sentence = sentence })
outbox.write(box)
return 1
