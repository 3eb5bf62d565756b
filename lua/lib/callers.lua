-- callers.lua: the caller of a job. It is stored as seven letters with the job (see codec.lua). Once the job has
-- ended, six digits replace the microseconds at the end of its dedupe window, which thus ends up to two seconds later. A leading 0
-- marks a number with a caller. Programs without callers read both like any others.
--
-- A job has no caller if a schedule, a hook, a callback or a program of the library enqueued it, or if it was enqueued before
-- callers were introduced. The field callers of the settings separates the two, "from till":
--   from  jobs without a caller from before that time belong to all callers, until they end
--   till  until then a program without callers may have admitted a job under the caller's own id, so a job without
--         a caller may be the same job. A job with another id leaves a mark under that id in seen, with the state NAMED

--#include lib/codec.lua
--#include lib/codes.lua

local callers = { MARK = 13, NAMED = '1' }

-- Returns the digits of a caller, by its letters.
function callers.digits(letters)
  local n = 0
  for i = 1, #letters do
    local byte = string.byte(letters, i)
    n = n * 52 + (byte >= 97 and byte - 97 or byte - 39) -- a to z, A to Z
  end
  return string.format('%06d', n % 1000000)
end

-- Returns whether a caller may have one more unit of a shared resource: at most as many as it leaves free, but a first one if any is free.
function callers.may_have(free, held) return free > 0 and (held == 0 or held + 1 <= free) end

-- Returns the end of a dedupe window in the format of seen, by the mark of a job with a caller.
function callers.ends(at, mark)
  return string.format('0%d', math.floor(at / 1000000) + 1) .. callers.digits(string.sub(mark, callers.MARK + 1))
end

-- Returns the letters of a caller in a sealed job, '' none.
function callers.of(sealed) return string.match(sealed, '^.............%d+~?%d*(%a*)') or '' end

-- Returns the letters of a caller behind the mark of a job (see codec.mark), nil none.
function callers.letters(mark) return mark and #mark > callers.MARK and string.sub(mark, callers.MARK + 1) or nil end

-- Returns since when jobs without a caller belong to nobody, and until when one may be a caller's job, by the settings.
function callers.times(conf)
  local from, till = string.match(redis.call('HGET', conf, 'callers') or '', '^(%d+) (%d+)$')
  return tonumber(from or math.huge), tonumber(till or math.huge)
end

-- Returns whether an existing job may belong to a caller (its letters), by the body.
function callers.is_same(body, letters, conf, now)
  if letters == '' then return true end
  local came, owner = string.match(body, '^%S+ (%d+) .............%d+~?%d*(%a*)')
  if not came or owner == letters then return true end
  local from, till = callers.times(conf)
  return owner == '' and (now < till or tonumber(came) < from)
end

-- Returns the same for an ended job, by its text in seen.
function callers.was_same(settled, letters, conf, now)
  if letters == '' then return true end
  local owner = callers.ended(settled)
  if owner ~= '' then return owner == callers.digits(letters) end
  return now < select(2, callers.times(conf))
end

-- Returns the digits of the caller of an ended job, '' none.
function callers.ended(settled) return string.byte(settled, callers.MARK) == 48 and string.sub(settled, -6) or '' end

-- Decides about a job whose id is known: existing is the body of that job, ended its text in seen. Returns the code, and the
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

-- Returns the job that a program without callers admitted under another id: its body, its text in seen, or nil.
function callers.former(body, seen, id, now)
  local job = redis.call('HGET', body, id)
  if job then return string.match(job, '^%S+ %S+ .............%d+~?%d*(%a*)') == '' and job or nil, nil end
  local settled = redis.call('HGET', seen, id)
  if not settled or string.sub(settled, 12, 12) == callers.NAMED or callers.ended(settled) ~= '' then return nil, nil end
  return nil, tonumber(string.sub(settled, callers.MARK)) > now and settled or nil
end

-- For one dedupe window, makes programs without callers recognize a job with another id: fingerprint and letters are of the job.
function callers.name(conf, body, seen, seen_window, id, fingerprint, letters, now)
  local window, settled = tonumber(redis.call('HGET', conf, 'dedupe_window') or 0), redis.call('HGET', seen, id)
  if window <= 0 or redis.call('HEXISTS', body, id) == 1 or settled and tonumber(string.sub(settled, callers.MARK)) > now then return end
  redis.call('HSET', seen, id, fingerprint .. callers.NAMED .. string.format('0%d', math.floor((now + window) / 1000000) + 1)
    .. callers.digits(letters))
  redis.call('RPUSH', seen_window, id)
end

return callers
