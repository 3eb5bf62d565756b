-- expiry.lua: jobs that a claim finds too late to send: they have expired, or max_age has passed since their first attempt. They
-- become dead letters and take no slot.

--#include lib/callbacks.lua
--#include lib/codec.lua
--#include lib/dlq.lua
--#include lib/drr.lua
--#include lib/flow.lua
--#include lib/handout.lua
--#include lib/outbox.lua
--#include lib/outcomes.lua

local expiry = { MOST = 500 } -- of one claim

-- out: what the claim hands out (see handout.lua); told: its callbacks; box: its events, or nil; tried: the key of the attempts; max_age:
-- microseconds, 0 none; last: last response of a job that has expired (JSON).
function expiry.open(out, told, box, tried, max_age, last)
  return { out = out, told = told, box = box, tried = tried, max_age = max_age, last = last, ids = {}, delayed = 0 }
end

-- Whether max_age has passed since the first attempt of a job.
function expiry.is_too_old(e, id, stored, at)
  if e.max_age <= 0 then return false end
  local _, attempts, lost = codec.numbers(stored)
  return attempts + lost > 0 and outcomes.is_older(redis.call('HGET', e.tried, id), e.max_age, at)
end

-- Notes a job of a flow that has expired, or is too old.
function expiry.note(e, f, id, job, stored, too_old)
  local epoch, attempts, lost, crashes, owner, last = codec.numbers(stored)
  local died = codec.meta(codec.DEAD, epoch, attempts, lost, crashes, owner, too_old and outcomes.because(last, 'max-age') or e.last)
  handout.note(e.out, id, died)
  callbacks.note_dead(e.told, id, job, died)
  handout.tell_dead(e.out, too_old and -1 or 0, id, f.name or '', attempts)
  e.ids[#e.ids + 1] = id
  if e.box then outbox.note_dead(e.box, f.name, { id }, too_old and 'max-age' or 'expired') end
  local _, delayed = codec.told(job)
  if delayed then e.delayed = e.delayed + 1 end
  if f.name then drr.drop(f, delayed) end
  if f.group then drr.drop(f.group, delayed) end
end

-- Writes what was noted, behind the metas (see handout.write).
function expiry.write(e, dead, body, meta, count, now)
  if #e.ids == 0 then return end
  dlq.add(dead, body, meta, e.tried, count, now, e.ids)
  callbacks.write(e.told)
  flow.unschedule(count, e.delayed)
end

return expiry
