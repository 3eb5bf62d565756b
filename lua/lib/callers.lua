-- callers.lua: whose a job is. Its caller is kept in seven letters beside the job (see codec.lua), and in six digits of them once it has
-- ended, in place of the microseconds of the end of its dedupe window, which so comes up to two seconds later. A 0 before the number says
-- that there is a caller. Programs that know no callers read both as they read any others.
--
-- A job without a caller has none because a schedule, a hook, a callback or a program of the library made it, or because it came before
-- there were callers. The field callers of the settings tells the two apart, "from till":
--   from  jobs without a caller that came before belong to all callers, until they end
--   till  until then a program without callers may have let a job in under the id that the caller gave it, and so a job without
--         a caller may be the same job. One that comes under another id leaves a mark under that id in seen, with the state NAMED

--#include lib/codec.lua
--#include lib/codes.lua

local callers = { MARK = 13, NAMED = '1' }

-- The digits of a caller, by its letters.
function callers.digits(letters)
  local n = 0
  for i = 1, #letters do
    local byte = string.byte(letters, i)
    n = n * 52 + (byte >= 97 and byte - 97 or byte - 39) -- a to z, A to Z
  end
  return string.format('%06d', n % 1000000)
end

-- Whether a caller may have another one of what callers share: it has no more than it leaves free, and one that has nothing gets one.
function callers.may_have(free, held) return free > 0 and (held == 0 or held + 1 <= free) end

-- The end of a dedupe window as seen holds it, by the mark of a job with a caller.
function callers.ends(at, mark)
  return string.format('0%d', math.floor(at / 1000000) + 1) .. callers.digits(string.sub(mark, callers.MARK + 1))
end

-- The letters of a caller in a job as it comes, '' none.
function callers.of(sealed) return string.match(sealed, '^.............%d+~?%d*(%a*)') or '' end

-- The letters of a caller behind the mark of a job (see codec.mark), nil none.
function callers.letters(mark) return mark and #mark > callers.MARK and string.sub(mark, callers.MARK + 1) or nil end

-- Since when jobs without a caller belong to none, and until when one may be the same as that of a caller, by the settings.
function callers.times(conf)
  local from, till = string.match(redis.call('HGET', conf, 'callers') or '', '^(%d+) (%d+)$')
  return tonumber(from or math.huge), tonumber(till or math.huge)
end

-- Whether a job that is there may be that of a caller (its letters), by the body.
function callers.is_same(body, letters, conf, now)
  if letters == '' then return true end
  local came, owner = string.match(body, '^%S+ (%d+) .............%d+~?%d*(%a*)')
  if not came or owner == letters then return true end
  local from, till = callers.times(conf)
  return owner == '' and (now < till or tonumber(came) < from)
end

-- The same of one that has ended, by what seen holds.
function callers.was_same(settled, letters, conf, now)
  if letters == '' then return true end
  local owner = callers.ended(settled)
  if owner ~= '' then return owner == callers.digits(letters) end
  return now < select(2, callers.times(conf))
end

-- The digits of the caller of a job that has ended, '' none.
function callers.ended(settled) return string.byte(settled, callers.MARK) == 48 and string.sub(settled, -6) or '' end

-- What is answered for a job whose id is known: existing is the body of that job, ended what seen holds of it. Returns the code, and the
-- state of a duplicate that has ended; nil if the id is free again.
function callers.known(existing, ended, sealed, fingerprint, conf, now)
  local print_of, state, ends
  if existing then
    print_of = string.match(existing, '^%-?%d+ %d+ (...........)')
  else
    print_of, state, ends = codec.seen(ended)
    if ends <= now or state == callers.NAMED then return nil end
  end
  local is_same = existing and callers.is_same or callers.was_same
  if not is_same(existing or ended, callers.of(sealed), conf, now) then return codes.ID_TAKEN end
  if print_of ~= fingerprint then return codes.ID_REUSED end
  return codes.DUPLICATE, tonumber(state)
end

-- What is known of the job that a program without callers let in under another id: its body, what seen holds of it, or nil.
function callers.former(body, seen, id, now)
  local job = redis.call('HGET', body, id)
  if job then return string.match(job, '^%S+ %S+ .............%d+~?%d*(%a*)') == '' and job or nil, nil end
  local settled = redis.call('HGET', seen, id)
  if not settled or string.sub(settled, 12, 12) == callers.NAMED or callers.ended(settled) ~= '' then return nil, nil end
  return nil, tonumber(string.sub(settled, callers.MARK)) > now and settled or nil
end

-- Has programs without callers take a job that comes under another id for known, for one dedupe window: fingerprint and letters are its.
function callers.name(conf, body, seen, seen_window, id, fingerprint, letters, now)
  local window, settled = tonumber(redis.call('HGET', conf, 'dedupe_window') or 0), redis.call('HGET', seen, id)
  if window <= 0 or redis.call('HEXISTS', body, id) == 1 or settled and tonumber(string.sub(settled, callers.MARK)) > now then return end
  redis.call('HSET', seen, id, fingerprint .. callers.NAMED .. string.format('0%d', math.floor((now + window) / 1000000) + 1)
    .. callers.digits(letters))
  redis.call('RPUSH', seen_window, id)
end

return callers
