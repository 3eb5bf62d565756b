-- codec.lua: the stored form of a job, and the names of its states. Its twin in Go is envelope.go.
--
--   body   "base time mark index header LF payload"
--          base + index is its number. Time is its enqueue time, in microseconds. The mark is 11 characters of fingerprint,
--          one of kind and one of priority (k, h, n, l; f: critical, and before all others). The kind is c if the caller chose the id and
--          g if our client made it; a capital letter if the job was enqueued with a delay. Behind the three digits of the index "~N": it
--          expires after N microseconds, and "^": it has a callback (see callbacks.lua). Between the two, first seven letters: its
--          caller (see callers.lua), then "=M": jobs
--          with the same M agree in everything that a batch needs (see batch.lua). A job with "=!" is sent alone. Behind that "$" and its
--          reservation of budgets (see reservation.lua), ">" if another process than a dispatcher sends it, and "&" if it is in a bundle
--          (see bundle.lua), "&&" if it was redriven since, preceded by "." if its end is reported to no URL: then = is there in any
--          case. A ~ always precedes the letters and the =.
--   meta   "state epoch attempts lost crashes claim last", of a job that was claimed once
--   seen   "fingerprint, state, end of its dedupe window", of an id that ended: 11 characters, one, and a number;
--          with a caller, the number begins with 0 and ends with six digits of the caller (see callers.lua)

local codec = {
  QUEUED = '1', SCHEDULED = '2', IN_FLIGHT = '3', RETRYING = '4', DEAD = '5', DONE = '6', CANCELLED = '7', DROPPED = '8',
  GOES_ALONE = '!', -- see codec.agreement
  META = '^(%d) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$',
}

-- Returns whether one more crash makes a job poison, by its meta.
function codec.on_last_chance(stored, last_chance)
  return tonumber(string.match(stored, '^%d %d+ %d+ %d+ (%d+) ') or 0) >= last_chance
end

-- Returns when the job was enqueued, whether it was enqueued with a delay, and when it expires (nil never), by its body.
function codec.times(body)
  local came, kind, expires = string.match(body, '^%-?%d+ (%d+) ...........(%a)%a?%d*~?(%d*)')
  if not came then return 0, false, nil end
  return tonumber(came), kind ~= string.lower(kind), expires ~= '' and tonumber(came) + tonumber(expires) or nil
end

-- Returns when a job was enqueued, by its body; nil for a body that cannot be read.
function codec.came(body) return tonumber(string.match(body, '^%-?%d+ (%d+) ')) end

-- Parses the text of an ended id: the fingerprint, the state, and the end of its dedupe window; nil for '' or an unreadable text.
function codec.seen(text)
  local fingerprint, state, ends = string.match(text, '^(...........)(%d)(%d+)$')
  return fingerprint, state, tonumber(ends)
end

-- Returns whether a job has a callback, by its body.
function codec.has_callback(body) return string.match(body, '^%-?%d+ %d+ %S+%^ ') ~= nil end

-- Returns whether a job is in a bundle, by its body. It has a callback then.
function codec.in_bundle(body) return string.match(body, '^%-?%d+ %d+ %S+&%^ ') ~= nil end

-- Returns whether a job precedes all others of its flow that are not critical, by its body: a client waits for it.
function codec.goes_first(body) return string.match(body, '^%-?%d+ %d+ ............(.)') == 'f' end

-- Returns the same for a sealed job.
function codec.comes_first(sealed) return string.byte(sealed, 13) == 102 end

-- Returns whether a job is self-dispatched, by its body: another process than a dispatcher sends it.
function codec.is_self_dispatched(body) return string.match(body, '^%-?%d+ %d+ [^ >]+>') ~= nil end

-- Returns the values that the jobs of a batch must share, by the body; "" if it has none of its own.
function codec.agreement(body) return string.match(body, '^%S+ %S+ [^ =]+=([%w_!-]+)') or '' end

-- Returns the mark of a job, by its body, followed by the letters of its caller; nil for a body that cannot be read.
function codec.mark(body)
  local mark, caller = string.match(body, '^%-?%d+ %d+ (.............)%d+~?%d*(%a*)')
  return mark and mark .. caller
end

-- Returns the bytes of a payload, by the body.
function codec.payload_size(body) return #body - (string.find(body, '\n', 1, true) or 0) end

-- Parses the numbers of a meta; without a meta returns the numbers of a job that was never claimed.
function codec.numbers(stored)
  local _, epoch, attempts, lost, crashes, owner, last = string.match(stored or '', codec.META)
  return tonumber(epoch or 0), tonumber(attempts or 0), tonumber(lost or 0), tonumber(crashes or 0), owner or '-', last or ''
end

-- Formats a meta.
function codec.meta(state, epoch, attempts, lost, crashes, owner, last)
  return string.format('%s %d %d %d %d %s ', state, epoch, attempts, lost, crashes, owner) .. last
end

return codec
