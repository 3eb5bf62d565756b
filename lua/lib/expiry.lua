-- expiry.lua: jobs that a claim does not send: they have expired, max_age has passed since their first attempt, or they reserve
-- more than a budget. They become dead letters and take no slot.

--#include lib/callbacks.lua
--#include lib/claim_reply.lua
--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/dlq.lua
--#include lib/drr.lua
--#include lib/flow.lua
--#include lib/outbox.lua
--#include lib/outcomes.lua

local expiry = {
  MOST = 500, -- per claim
}

-- Opens the dead letters of a claim. out: its reply (see claim_reply.lua); noted: its callbacks; box: its events, or nil; tried: the key of
-- the attempts; max_age: microseconds, 0 none; last: last response of a job that has expired (JSON).
function expiry.open(out, noted, box, tried, max_age, last)
  return { out = out, noted = noted, box = box, tried = tried, max_age = max_age, last = last, ids = {}, marks = {}, delayed = 0 }
end

-- Returns why a job is too late to be sent at a time: see codes.lua; nil if it is not. reader: see queue.lua.
function expiry.is_too_late(e, reader, id, stored, job, at)
  local expires = job and reader.expiring and select(3, codec.times(job))
  if expires and expires <= at then return codes.CLAIM_EXPIRED end
  if e.max_age <= 0 or not stored or not job then return nil end
  local _, attempts, lost = codec.numbers(stored)
  return attempts + lost > 0 and outcomes.is_older(redis.call('HGET', e.tried, id), e.max_age, at) and codes.CLAIM_TOO_OLD or nil
end

local CAUSES = { [codes.CLAIM_TOO_OLD] = 'max-age', [codes.CLAIM_OVER_BUDGET] = 'cost-impossible' } -- e.last has the others

-- Records a job of a flow that becomes a dead letter: why is the result of expiry.is_too_late, or codes.CLAIM_OVER_BUDGET.
function expiry.note(e, f, id, job, stored, why)
  local cause = CAUSES[why]
  local epoch, attempts, lost, crashes, owner, last = codec.numbers(stored)
  local died = codec.meta(codec.DEAD, epoch, attempts, lost, crashes, owner, cause and outcomes.with_cause(last, cause) or e.last)
  claim_reply.note(e.out, id, died)
  callbacks.note_dead(e.noted, id, job, died)
  claim_reply.add_dead(e.out, why, id, f.name or '', attempts)
  e.ids[#e.ids + 1], e.marks[#e.ids + 1] = id, codec.mark(job)
  if e.box then outbox.note_dead(e.box, f.name, { id }, cause or 'expired', e.marks[#e.ids]) end
  local _, delayed = codec.times(job)
  if delayed then e.delayed = e.delayed + 1 end
  if f.name then drr.drop(f, delayed) end
  if f.group then drr.drop(f.group, delayed) end
end

-- Writes the recorded dead letters, after the metas (see claim_reply.write).
function expiry.write(e, dead, body, meta, count, now)
  if #e.ids == 0 then return end
  dlq.add(dead, body, meta, e.tried, count, now, e.ids, e.marks)
  callbacks.write(e.noted)
  flow.unschedule(count, e.delayed)
end

return expiry
