-- callers.lua: the caller of a job. It is stored as seven letters with the job (see codec.lua). Once the job has
-- ended, six digits replace the microseconds at the end of its dedupe window, which thus ends up to two seconds later. A leading 0
-- marks a number with a caller.
--
-- A job has no caller if a schedule, a hook, a callback or a program of the library enqueued it. No caller may use its id.

--#include lib/codec.lua
--#include lib/codes.lua

local callers = { MARK = 13 }

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
function callers.from_job(sealed) return string.match(sealed, '^.............%d+~?%d*(%a*)') or '' end

-- Returns the letters of a caller behind the mark of a job (see codec.mark), nil none.
function callers.letters(mark) return mark and #mark > callers.MARK and string.sub(mark, callers.MARK + 1) or nil end

-- Returns whether an existing job may belong to a caller (its letters), by the body. A job without a caller may repeat any job.
function callers.is_same(body, letters)
  if letters == '' then return true end
  local owner = string.match(body, '^%S+ %d+ .............%d+~?%d*(%a*)')
  return not owner or owner == letters
end

-- Returns the same for an ended job, by its text in seen.
function callers.was_same(settled, letters)
  return letters == '' or callers.ended(settled) == callers.digits(letters)
end

-- Returns the digits of the caller of an ended job, '' none.
function callers.ended(settled) return string.byte(settled, callers.MARK) == 48 and string.sub(settled, -6) or '' end

-- Decides about a job whose id is known: existing is the body of that job, ended its text in seen. Returns the code, and the
-- state of a duplicate that has ended; nil if the id is free again.
function callers.known(existing, ended, sealed, fingerprint, now)
  local print_of, state, ends
  if existing then
    print_of = string.match(existing, '^%-?%d+ %d+ (...........)')
  else
    print_of, state, ends = codec.seen(ended)
    if ends <= now then return nil end
  end
  local is_same = existing and callers.is_same or callers.was_same
  if not is_same(existing or ended, callers.from_job(sealed)) then return codes.ID_TAKEN end
  if print_of ~= fingerprint then return codes.ID_REUSED end
  return codes.DUPLICATE, tonumber(state)
end

return callers
