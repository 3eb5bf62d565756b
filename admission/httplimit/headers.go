package httplimit

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/tundish-io/tundish/admission"
)

// TypeQuotaExceeded is the problem type (RFC 9457) of a refusal by a limit.
const TypeQuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

func secondsUp(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

// RateLimitHeaders selects the headers that describe limits to clients. The zero value is [BothHeaders].
type RateLimitHeaders string

// The sets of headers.
const (
	BothHeaders     RateLimitHeaders = "both"
	StandardHeaders RateLimitHeaders = "standard" // RateLimit and RateLimit-Policy alone
	LegacyHeaders   RateLimitHeaders = "legacy"   // X-RateLimit-* alone
)

// SetHeaders writes what limits decided of a request with [BothHeaders].
func SetHeaders(h http.Header, decisions []admission.Decision, now time.Time) {
	BothHeaders.Set(h, decisions, now)
}

// Set writes the decisions of limits about one request, or about several: for each limit
// its most restrictive decision.
//
//	RateLimit-Policy       "per-caller";q=200;w=120    q requests in w seconds
//	RateLimit              "per-caller";r=7;t=2        r remain; after t seconds the request passes, or the limit is unused again
//	X-RateLimit-Limit      200                         q, r and the end of t in Unix seconds,
//	X-RateLimit-Remaining  7                           of the most restrictive limit
//	X-RateLimit-Reset      1796213400
//
// The first two are lists of structured fields (RFC 9651) as in
// draft-ietf-httpapi-ratelimit-headers-10 and later. Set does not write Retry-After: only
// the caller knows the reason of a refusal.
//
// With [BothHeaders], the most restrictive limit of RateLimit also has its
// numbers under their names of draft 7: ;limit=200;remaining=7;reset=2. Parsers
// of that draft, such as ratelimit-header-parser of npm, read only RateLimit
// where it is present, and would find no number in it. Parsers of later drafts
// ignore parameters that they do not know.
//
// The fields know whole seconds only. A window is rounded up, so that a client
// that paces itself by it errs on the slow side. X-RateLimit-Reset counts from now.
//
// Set leaves out a limit that refuses no caller: one in shadow mode, and one that
// exempts the caller. For a limit that could not be asked ([admission.Undecided]),
// it writes RateLimit-Policy and not RateLimit. Without decisions it writes no header.
func (k RateLimitHeaders) Set(h http.Header, decisions []admission.Decision, now time.Time) {
	decisions = mostRestrictive(decisions)
	worst := slices.IndexFunc(decisions, func(d admission.Decision) bool { return d.Source != admission.Undecided })
	for i, d := range decisions {
		if d.Source != admission.Undecided && compareDecisions(d, decisions[worst]) < 0 {
			worst = i
		}
	}
	if k != LegacyHeaders {
		policies, states := httpsfv.List{}, httpsfv.List{}
		for i, d := range decisions {
			policy := httpsfv.NewItem(d.Limit)
			policy.Params.Add("q", d.Quota)
			policy.Params.Add("w", max(secondsUp(d.Window), 1))
			policies = append(policies, policy)
			if d.Source == admission.Undecided {
				continue
			}
			state := httpsfv.NewItem(d.Limit)
			state.Params.Add("r", d.Remaining)
			state.Params.Add("t", untilMore(d))
			if i == worst && k != StandardHeaders {
				state.Params.Add("limit", d.Quota)
				state.Params.Add("remaining", d.Remaining)
				state.Params.Add("reset", untilMore(d))
			}
			states = append(states, state)
		}
		setField(h, "RateLimit-Policy", policies)
		setField(h, "RateLimit", states)
	}
	if k == StandardHeaders || worst < 0 {
		return
	}
	d := decisions[worst]
	h.Set("X-RateLimit-Limit", strconv.FormatInt(d.Quota, 10))
	h.Set("X-RateLimit-Remaining", strconv.FormatInt(d.Remaining, 10))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(ceilUnix(now.Add(time.Duration(untilMore(d))*time.Second)), 10))
}

// wouldRefuse is the header that names the limits in shadow mode that would have refused.
const wouldRefuse = "X-Tundish-Would-Refuse"

// SetShadowHeader names the limits in shadow mode that would have refused a request, or
// one of several, so that clients see the trial of a limit:
//
//	X-Tundish-Would-Refuse  "per-ip", "per-caller"
//
// Without such limits it writes nothing.
func SetShadowHeader(h http.Header, decisions []admission.Decision) {
	list, seen := httpsfv.List{}, make(map[string]bool)
	for i := range decisions {
		if d := &decisions[i]; d.WouldRefuse && !seen[d.Limit] {
			seen[d.Limit] = true
			list = append(list, httpsfv.NewItem(d.Limit))
		}
	}
	setField(h, wouldRefuse, list)
}

func setField(h http.Header, name string, list httpsfv.List) {
	if len(list) == 0 {
		return
	}
	text, err := httpsfv.Marshal(list)
	if err != nil {
		return // names of limits are ASCII and counts small: cannot be
	}
	h.Set(name, text)
}

// mostRestrictive keeps one decision of each limit, in order of first
// appearance, and no decision of a limit that refuses no caller.
func mostRestrictive(decisions []admission.Decision) []admission.Decision {
	kept := make([]admission.Decision, 0, min(len(decisions), 8))
	for _, d := range decisions {
		if d.Shadow || d.Source == admission.FromExemption || d.Quota <= 0 {
			continue
		}
		at := slices.IndexFunc(kept, func(k admission.Decision) bool { return k.Limit == d.Limit })
		switch {
		case at < 0:
			kept = append(kept, d)
		case compareDecisions(d, kept[at]) < 0:
			kept[at] = d
		}
	}
	return kept
}

// untilMore returns the t of RateLimit: the seconds until the refused request would pass, or else until the limit is unused again.
func untilMore(d admission.Decision) int64 {
	if d.RetryAfter > 0 {
		return secondsUp(d.RetryAfter)
	}
	return secondsUp(d.ResetAfter)
}

func ceilUnix(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

// compareDecisions puts the more restrictive one first.
func compareDecisions(a, b admission.Decision) int {
	switch {
	case a.Allowed && !b.Allowed:
		return 1
	case b.Allowed && !a.Allowed:
		return -1
	}
	return cmp.Or(
		cmp.Compare(b.RetryAfter, a.RetryAfter),
		cmp.Compare(a.Remaining, b.Remaining),
		cmp.Compare(b.ResetAfter, a.ResetAfter),
	)
}
