// Package admission limits how many requests each caller may make.
//
// A [Limit] is a rule, such as "100 requests a minute for each caller, in
// bursts of at most 200". A [Limiter] applies a rule to a key and answers with
// a [Decision]. A refusal is a Decision, never an error. An error means that there is no
// answer: Redis was not reachable, or the limit is not valid.
//
// The rules are written once, in Lua (lua/lib/limits.lua), and run in two places.
// [Limiter.Allow] asks a limit on its own. The script that enqueues a job decides all limits
// of a bucket, its bound and the push in one atomic step (package shaper). All state
// is in Redis, and all times are the Redis server's.
//
// There are four algorithms: [TokenBucket], [SlidingWindowLog], [SlidingWindowCounter] and
// [FixedWindow]. They differ most at the edge of a window. A limit of 100/s is asked 100 times
// in the 10 ms before a whole second, and 100 times in the 10 ms after it. It admits:
//
//	                        before  after  together
//	token_bucket               100      1       101
//	sliding_window_log         100      0       100
//	sliding_window_counter     100      0       100
//	fixed_window               100    100       200
//
// A clock that steps back mints nothing. A step of up to a second is waited out. After a larger
// step, everything that was spent counts from now on.
//
// Another algorithm is a file of lua/lib that limits.lua includes, a constant of type
// [Algorithm], and a case in its method rule.
package admission
