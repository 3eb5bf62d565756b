// Package admission decides who may come in.
//
// A [Limit] is a rule, such as "100 requests a minute for each caller, in
// bursts of at most 200". A [Limiter] applies a rule to a key and answers with
// a [Decision]. A refusal is a Decision, never an error: an error means that
// the question could not be answered (Redis was not reachable, the limit is
// not valid).
//
// The rules are written once, in Lua (lua/limits.lua), and are evaluated in
// two places: by [Limiter.Allow] on their own, and inside the script that
// enqueues a job, where all limits of a bucket, its bound and the push are one
// atomic step (package shaper). All state lives in Redis and all times are the
// Redis server's.
//
// There are four algorithms: [TokenBucket], [SlidingWindowLog],
// [SlidingWindowCounter] and [FixedWindow]. What they let through differs most
// at the edge of a window. With a limit of 100/s, asked 100 times in the 10 ms
// before a whole second and 100 times in the 10 ms after it, they admit:
//
//	                        before  after  together
//	token_bucket               100      1       101
//	sliding_window_log         100      0       100
//	sliding_window_counter     100      0       100
//	fixed_window               100    100       200
//
// A clock that steps back mints nothing: a step of up to a second is waited
// out, and after a larger one what was spent counts from now on. Another
// algorithm is a table of functions in lua/limits.lua, a constant of type
// [Algorithm] and a case in its method rule; if one question at a time shall cost
// as little as it can, also a piece of lua/ask.lua.
package admission
