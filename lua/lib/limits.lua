-- limits.lua: the rules of admission, for enqueue.lua and allow.lua.
--
-- A rule is a piece with five functions, which work on a state in one key. Each rule defines its three numbers a, b and
-- full:
--   read(key, now, a, b, full)   the state as of now, whose `place` is the key; writes nothing
--   check(state, cost)           0 allowed, 1 refused, 2 impossible; and the microseconds to wait
--   take(state, cost)            spends the cost in the state
--   answer(state)                whole requests left, microseconds until it is as if never used; for token_bucket
--                                also what rounding up added to them, in a-ths of a microsecond
--   write(key, state, reset)     stores it, with the TTL after which it is worth nothing; reset is
--                                the one of answer, if it was called after the last take
-- A state with `stepped` must be written even if nothing was spent.
-- A time in the future means that the clock stepped back, which adds no tokens.
-- A step of up to a second is waited out (`ahead`), so that a jittering clock
-- adds none either. After a larger step the time becomes now and must be
-- written, or no tokens would come until the clock is there again.
-- If the limit's algorithm was changed, the key holds a state of another rule. It
-- is worth nothing and is replaced.
-- `at` of a state is the time of its last write; nil if nothing of its rule is stored.
-- All numbers are integers below 2^53; Go rejects limits for which they are not.
-- As an argument of a command, such a number reaches Redis with all digits.
--
--   …:limit:<limit>:<key>  string  state of a limit for one caller; of a sliding_window_log a list; expires
--   tundish:{l:<limit>}:<key>  string  state of a limit outside a bucket; of a sliding_window_log a list; expires

--#include lib/sliding_window_counter.lua
--#include lib/sliding_window_log.lua
--#include lib/token_bucket.lua

local limits = { token_bucket = token_bucket, sliding_window_log = sliding_window_log,
  sliding_window_counter = sliding_window_counter, fixed_window = sliding_window_counter }

return limits
