package admission

import (
	"strings"
	"time"
)

// Algorithm names the rule of a limit. The rules are written in lua/limits.lua.
type Algorithm string

// TokenBucket is the rule where none is named: a bucket holds Burst tokens,
// refills at the limit's rate, and a request of cost n passes when n tokens are
// there.
//
// It allows Burst requests at once and Limit in the long run. It stores one
// string of about 30 bytes a key (136 bytes of Redis memory with the key's name),
// which expires when the bucket is full again, and costs one GET and one SET. Do not use it where
// the number in any window must never be exceeded: a window may hold Burst plus
// one refill.
//
// The level is kept in whole micro-tokens and the remainder of a division is
// carried to the next one, so that 7 a minute is 7 a minute for ever. The idea
// is the one of the articles in seeds ("token bucket with Lua"); the arithmetic
// is ours.
const TokenBucket Algorithm = "token_bucket"

// SlidingWindowLog allows at most Limit.Count requests in any window of
// Limit.Per, wherever it begins. It is exact: a request counts until it is as
// old as the window, to the microsecond.
//
// It stores a sorted set with one member for each microsecond in which something
// was admitted, so that its memory is bounded by the limit and never by the
// traffic: a refusal stores nothing. What does not count any more is removed with
// every 16th request, or every sixteenth part of the limit up to the 512th, and may
// be there until then. A log that is full with requests of cost 1 takes 4.2 kB of
// Redis memory for a limit of 100, 1.5 MB for 10,000, and 14 MB for 100,000, the
// largest one that it may have. Jobs of one batch, and a request with a cost above
// 1, are one member: of a limit of tokens, which requests cost many of, it takes as
// much as there were requests. A
// decision takes two reads of O(log n), and if it admits a write, or two, if it is
// the first in a tenth of a second; one that is refused for a cost above 1 takes
// O(log n) reads of that kind to say when to come back.
//
// Do not use it for large limits, or for many keys with limits beyond some
// hundreds: SlidingWindowCounter costs the same for any limit. And do not use
// it where a steady stream is wanted: who spends all at once waits for a whole
// window.
//
// The sorted set that is cut at the window's edge is that of "Distributed Rate
// Limiting with Redis and Lua: A Sliding Window Log Deep Dive" (Goh Ling Yong).
// It counts members; ours carry a running total instead, so that costs above 1
// are exact and members are unique in the same microsecond.
const SlidingWindowLog Algorithm = "sliding_window_log"

// SlidingWindowCounter approximates the log with two counters: the requests of
// the current window, and those of the window before, weighted by how much of
// it is less than a window ago. Together they never exceed Limit.Count. With a
// Precision of N, windows are N times shorter, and the current one, the N-1
// before it and the weighted one before those count.
//
// The weight supposes that requests came evenly. Where they did not, the error
// is at most that a request is forgotten Limit.Per/N too early or too late:
// any (N-1)/N of a window never holds more than the limit, and a whole one up
// to twice the limit if all of it comes at the end of a piece and again as
// fast as it fades. Measured against the exact log, over requests at random and
// in bursts of half the limit, twice the limit in all (TestErrorOfTheCounter
// prints it):
//
//	traffic  precision  most in a window  mean error  largest  admitted, of the log's
//	random           1             112 %       1.4 %     43 %  99.5 %
//	random          10             104 %       0.9 %      7 %  99.4 %
//	random         100             101 %       0.3 %      3 %  99.7 %
//	bursty           1             138 %      14.1 %     54 %  101.9 %
//	bursty          10             131 %       3.0 %     52 %  100.0 %
//	bursty         100             108 %       0.0 %      8 %  100.0 %
//
// An error is that of the count, in percent of the limit.
//
// It stores one string of 152 bytes of Redis memory a key, and 184 with a
// precision of 10, whatever the limit is, until nothing counts any more; it
// costs one GET and one SET. Do not use it where the limit must never be
// exceeded in any window: that is SlidingWindowLog.
//
// Both are described in "Redis Rate Limiting: Core Principles and Implementation
// Introduction": the weighted average, which Cloudflare made known, and the
// shorter windows. Here they are one rule. Fractions are rounded up, so that it
// errs on the side of refusing.
const SlidingWindowCounter Algorithm = "sliding_window_counter"

// FixedWindow allows Limit.Count requests in each window of Limit.Per. Windows
// begin at multiples of their length since the Unix epoch: those of a day at
// midnight UTC, those of an hour on the hour, those of a week on a Thursday.
//
// It stores one string (152 bytes of Redis memory a key), which expires when its
// window ends, and costs one GET and one SET. It is the rule that callers
// understand best, and right for quotas such as 10,000 a day.
//
// Do not use it to protect something from bursts: who spends all just before
// a window's edge and all just after it gets twice the limit through in a
// moment. And all who were refused come back at the same edge.
//
// It is the "Fixed Window" of "Rate Limiting Algorithms using Redis" (Rahul,
// 2020). Most make it of INCR and EXPIRE, which counts what it refuses.
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

// Bounds of what a limit may be.
const (
	// maxFill bounds burst × period / count, the time that an empty bucket takes
	// to be full: beyond it a caller would wait longer than anybody does.
	maxFill      = 366 * 24 * time.Hour
	maxBurst     = 1_000_000
	minWindow    = 100 * time.Millisecond
	maxLog       = 100_000
	maxPrecision = 100
)

// Params is what lua/limits.lua needs to know of a limit: three numbers, whose
// meaning is the rule's.
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

// Policy is what the RateLimit-Policy header says of the limit: so many
// requests in so much time. A token bucket says how many a full one holds and
// how long an empty one takes to refill.
func (l Limit) Policy() (quota int64, window time.Duration) {
	rule, _ := l.Algorithm.rule()
	return rule.policy(l)
}

// rule is all that differs between algorithms on this side.
type rule struct {
	burst, precision bool // it has this setting

	// validate is told whether the rate is valid by itself.
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

// rule returns the rule of the algorithm, or that of the token bucket and false.
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
