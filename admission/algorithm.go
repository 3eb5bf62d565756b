package admission

import (
	"strings"
	"time"
)

// Algorithm names the rule of a limit. The rules are written in lua/lib/limits.lua.
type Algorithm string

// TokenBucket is the default rule. A bucket holds Burst tokens and refills at the limit's
// rate. A request of cost n passes when n tokens are there.
//
// It allows Burst requests at once and Limit in the long run. Do not use it where the
// number in any window must never be exceeded: a window may hold Burst plus one refill.
//
// It stores one string of about 30 bytes a key (136 bytes of Redis memory with the key's
// name), which expires when the bucket is full again. A decision costs one GET and one SET.
//
// The level is kept in whole micro-tokens. The remainder of a division is carried to
// the next one, so that 7 a minute is 7 a minute for ever.
const TokenBucket Algorithm = "token_bucket"

// SlidingWindowLog allows at most Limit.Count requests in any window of Limit.Per, wherever it begins. It is exact: a request counts until it is
// as old as the window, to the microsecond.
//
// It stores a list with one entry for each microsecond that admitted a request. A refusal stores nothing, so the limit bounds its memory, not
// the traffic. A request with a cost above 1 is one entry, and so are the jobs of one batch. Each admission removes the entries that no longer
// count. A log that is full of requests of cost 1 takes
//
//	limit      Redis memory
//	100        3.8 kB
//	10,000     390 kB
//	100,000    4.1 MB (the largest limit)
//
// A decision costs two reads of the list's ends, and O(log n) reads if several entries have expired. An admission also writes once. It writes
// once more if an entry has expired, and once more if it is the first within 100 ms. A refusal of a cost above 1 costs O(log n) more reads, to
// find the time to retry.
//
// Do not use it for large limits, or for many keys with limits beyond some hundreds: SlidingWindowCounter costs the same for any limit. Do not
// use it for a steady stream: a caller that spends everything at once waits for a whole window.
//
// The idea, a sorted set cut at the window's edge, is described in "Distributed Rate Limiting with Redis and Lua: A Sliding Window Log Deep
// Dive" (Goh Ling Yong), which counts members. The entries here carry a running total. So costs above 1 are exact, and a plain list suffices,
// which takes 33 % of the memory.
const SlidingWindowLog Algorithm = "sliding_window_log"

// SlidingWindowCounter approximates the log with two counters: the requests of the current window and of the previous one. The older counter is
// weighted by the part of its window that is less than a window ago. Their sum never exceeds Limit.Count. A Precision of N divides the window
// into N pieces: the current piece and the previous N-1 count in full, and the piece before them is weighted.
//
// The weight assumes that requests came evenly. If they did not, a request is forgotten at most Limit.Per/N too early or too late. Any (N-1)/N
// of a window never holds more than the limit. A whole window may hold up to twice the limit: if all of it comes at the end of a piece, and
// again as fast as that piece fades. TestErrorOfTheCounter compares it with the exact log, with requests at random and in bursts of half the
// limit, twice the limit in all:
//
//	traffic  precision  most in a window  mean error  largest  admitted, of the log's
//	random           1             112 %       1.4 %     43 %  99.5 %
//	random          10             104 %       0.9 %      7 %  99.4 %
//	random         100             101 %       0.3 %      3 %  99.7 %
//	bursty           1             138 %      14.1 %     54 %  101.9 %
//	bursty          10             131 %       3.0 %     52 %  100.0 %
//	bursty         100             108 %       0.0 %      8 %  100.0 %
//
// An error is the error of the count, in percent of the limit.
//
// It stores one string per key: 152 bytes of Redis memory, 184 with a precision of 10, for any limit. The string expires when nothing counts any
// more. A decision costs one GET and one SET. Do not use it where no window may exceed the limit: use SlidingWindowLog.
//
// Both ideas are described in "Redis Rate Limiting: Core Principles and Implementation Introduction": the weighted average, which Cloudflare
// made known, and the shorter windows. Here they are one rule. Fractions are rounded up, so it errs on the side of refusing.
const SlidingWindowCounter Algorithm = "sliding_window_counter"

// FixedWindow allows Limit.Count requests in each window of Limit.Per. Windows begin at
// multiples of their length since the Unix epoch: windows of a day at midnight UTC, windows of
// an hour on the hour, windows of a week on a Thursday.
//
// It stores one string (152 bytes of Redis memory a key), which expires when its
// window ends. A decision costs one GET and one SET. It is the rule that callers
// understand best, and right for quotas such as 10,000 a day.
//
// Do not use it as protection from bursts. A caller that spends everything just before a
// window's edge, and again just after it, gets twice the limit through in a moment. And all
// refused callers retry at the same edge.
//
// It is the "Fixed Window" of "Rate Limiting Algorithms using Redis" (Rahul, 2020). Common
// implementations use INCR and EXPIRE and count refused requests too. This one does not.
const FixedWindow Algorithm = "fixed_window"

// Algorithms lists what [Limit.Algorithm] may be.
func Algorithms() []Algorithm {
	return []Algorithm{TokenBucket, SlidingWindowLog, SlidingWindowCounter, FixedWindow}
}

func join(algorithms []Algorithm) string {
	names := make([]string, len(algorithms))
	for i, a := range algorithms {
		names[i] = string(a)
	}
	return strings.Join(names, ", ")
}

// Bounds of a limit.
const (
	// maxFill bounds burst × period / count, the time until an empty bucket is full:
	// a caller would not wait longer.
	maxFill      = 366 * 24 * time.Hour
	maxBurst     = 1_000_000
	minWindow    = 100 * time.Millisecond
	maxLog       = 100_000
	maxPrecision = 100
)

// Params are the three numbers with which a limit's rule in lua/lib/limits.lua computes.
//
//   - TokenBucket: A micro-tokens are added every B microseconds, up to Full
//     micro-tokens.
//   - The others: at most Full requests. FixedWindow: in a window of B
//     microseconds. SlidingWindowLog: in any B microseconds.
//     SlidingWindowCounter: in A pieces of B microseconds.
type Params struct {
	Algorithm  Algorithm
	A, B, Full int64
}

// Params returns the numbers of the rule.
func (l Limit) Params() Params {
	rule, _ := l.Algorithm.rule()
	p := rule.params(l)
	p.Algorithm = l.Algorithm
	return p
}

// Policy returns the numbers of the RateLimit-Policy header: quota requests in a window. For
// a token bucket, quota is its size and window the time until an empty one is full.
func (l Limit) Policy() (quota int64, window time.Duration) {
	rule, _ := l.Algorithm.rule()
	return rule.policy(l)
}

// rule holds the differences between algorithms on this side.
type rule struct {
	burst, precision bool // it has this setting

	// validate gets rateOK: whether the rate is valid by itself.
	validate func(l Limit, rateOK bool, fail failFunc)
	params   func(l Limit) Params
	policy   func(l Limit) (int64, time.Duration)
}

// failFunc notes the fault of a key.
type failFunc func(key, format string, args ...any)

// HasBurst reports whether [Limit.Burst] is a setting of this algorithm.
func (a Algorithm) HasBurst() bool {
	rule, _ := a.rule()
	return rule.burst
}

// rule returns the rule of the algorithm. For an unknown one it returns the rule of the token bucket and false.
func (a Algorithm) rule() (rule, bool) {
	window := func(l Limit) (int64, time.Duration) { return l.Limit.Count, l.Limit.Per }
	switch a {
	case SlidingWindowLog:
		return rule{
			validate: validateLog,
			params:   func(l Limit) Params { return Params{B: l.Limit.Per.Microseconds(), Full: l.Limit.Count} },
			policy:   window,
		}, true
	case SlidingWindowCounter:
		return rule{
			precision: true,
			validate:  validateCounter,
			params: func(l Limit) Params {
				return Params{A: l.Precision, B: l.Limit.Per.Microseconds() / l.Precision, Full: l.Limit.Count}
			},
			policy: window,
		}, true
	case FixedWindow:
		return rule{
			validate: validateWindow,
			params:   func(l Limit) Params { return Params{B: l.Limit.Per.Microseconds(), Full: l.Limit.Count} },
			policy:   window,
		}, true
	}
	return rule{
		burst:    true,
		validate: validateBucket,
		params: func(l Limit) Params {
			a, b := refill(l.Limit)
			return Params{A: a, B: b, Full: l.Burst * microTokens}
		},
		policy: func(l Limit) (int64, time.Duration) {
			return l.Burst, time.Duration(float64(l.Burst) / l.Limit.PerSecond() * float64(time.Second))
		},
	}, a == TokenBucket
}

func validateBucket(l Limit, rateOK bool, fail failFunc) {
	if l.Burst < 1 || l.Burst > maxBurst {
		fail("burst", "%d: want 1 to %d", l.Burst, maxBurst)
		return
	}
	if !rateOK {
		return
	}
	if fill := float64(l.Burst) / l.Limit.PerSecond(); fill > maxFill.Seconds() {
		fail("burst", "%d: at %s it takes %.0f days to refill, want at most 366", l.Burst, l.Limit, fill/86400)
	}
	if a, b := refill(l.Limit); float64(a)*float64(b) > 1<<53 {
		fail("limit", "%q cannot be counted exactly: choose a rounder number or period", l.Limit)
	}
}

func validateWindow(l Limit, rateOK bool, fail failFunc) {
	if rateOK && l.Limit.Per < minWindow {
		fail("limit", "%q: the window is %s, want %s to 31 days", l.Limit, l.Limit.Per, minWindow)
	}
}

func validateLog(l Limit, rateOK bool, fail failFunc) {
	validateWindow(l, rateOK, fail)
	if rateOK && l.Limit.Count > maxLog {
		fail("limit", "%q: a log keeps each of them, want at most %d; for more there is %s",
			l.Limit, maxLog, SlidingWindowCounter)
	}
}

func validateCounter(l Limit, rateOK bool, fail failFunc) {
	validateWindow(l, rateOK, fail)
	switch {
	case l.Precision < 1 || l.Precision > maxPrecision:
		fail("precision", "%d: want 1 to %d", l.Precision, maxPrecision)
	case rateOK && l.Limit.Per.Microseconds()%l.Precision != 0:
		fail("precision", "%d: does not divide %s into whole microseconds", l.Precision, l.Limit.Per)
	}
}

const microTokens = 1_000_000

// refill is the rate as a fraction: a micro-tokens every b microseconds.
func refill(r Rate) (a, b int64) {
	a, b = r.Count*microTokens, r.Per.Microseconds()
	g := gcd(a, b)
	return a / g, b / g
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, 1)
}
