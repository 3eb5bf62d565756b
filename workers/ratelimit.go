package workers

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// limitHeaders are the pairs of headers that describe one rate limit: how much of it remains, and when it resets. The first pair of windowHeaders is of
// draft-ietf-httpapi-ratelimit-headers up to draft 6, the second is an older custom. The others are of OpenAI and Anthropic. Their reset is when the
// limit is whole again. Part of it is available long before, so only a refusal waits for the reset.
var limitHeaders = append(slices.Clone(windowHeaders), []limitHeader{
	{"X-RateLimit-Remaining-Requests", "X-RateLimit-Reset-Requests"},
	{"X-RateLimit-Remaining-Tokens", "X-RateLimit-Reset-Tokens"},
	{"X-RateLimit-Remaining-Project-Tokens", "X-RateLimit-Reset-Project-Tokens"},
	{"Anthropic-RateLimit-Requests-Remaining", "Anthropic-RateLimit-Requests-Reset"},
	{"Anthropic-RateLimit-Tokens-Remaining", "Anthropic-RateLimit-Tokens-Reset"},
	{"Anthropic-RateLimit-Input-Tokens-Remaining", "Anthropic-RateLimit-Input-Tokens-Reset"},
	{"Anthropic-RateLimit-Output-Tokens-Remaining", "Anthropic-RateLimit-Output-Tokens-Reset"},
}...)

type limitHeader struct{ remaining, reset string }

// windowHeaders are the headers of limits that count in windows: nothing more is accepted before the reset.
var windowHeaders = []limitHeader{
	{"RateLimit-Remaining", "RateLimit-Reset"},
	{"X-RateLimit-Remaining", "X-RateLimit-Reset"},
	{"X-Rate-Limit-Remaining", "X-Rate-Limit-Reset"}, // X
}

// namesWindow reports whether a header has one of windowHeaders, or RateLimit. Names are spelled as net/http spells them.
func namesWindow(h http.Header) bool {
	for _, name := range []string{"Ratelimit", "Ratelimit-Remaining", "X-Ratelimit-Remaining", "X-Rate-Limit-Remaining"} {
		if len(h[name]) > 0 {
			return true
		}
	}
	return false
}

// exhaustedLimits returns the wait until all exhausted rate limits of these headers, and of RateLimit, are reset, from 0 to
// [shaper.MaxHold], in whole microseconds. It is 0 if none is exhausted, or if no exhausted limit names its reset.
func exhaustedLimits(h http.Header, now time.Time, headers []limitHeader) time.Duration {
	longest := structuredLimits(h.Values("RateLimit"))
	for _, limit := range headers {
		if left, ok := parseNumber(headerValue(h, limit.remaining)); ok && left == 0 {
			longest = max(longest, parseWait(headerValue(h, limit.reset), now))
		}
	}
	return longest
}

// structuredLimits reads the field RateLimit. Since draft 8 of
// draft-ietf-httpapi-ratelimit-headers it is a list of limits, as structured fields (RFC 9651):
//
//	"burst";r=0;t=5, "daily";r=999;t=36000
//
// In draft 7 it was a dictionary of one limit: limit=100, remaining=0, reset=5. The whole field is ignored if
// a part of it is malformed, as the draft demands.
func structuredLimits(lines []string) (longest time.Duration) {
	if len(lines) == 0 {
		return 0
	}
	text := strings.Join(lines, ",")
	if len(text) > maxHeaderValue {
		text = text[:max(strings.LastIndexByte(text[:maxHeaderValue], ','), 0)] // whole limits only
	}
	if limits, err := httpsfv.UnmarshalList([]string{text}); err == nil {
		for _, member := range limits {
			if limit, ok := member.(httpsfv.Item); ok {
				remaining, _ := limit.Params.Get("r")
				reset, _ := limit.Params.Get("t")
				longest = max(longest, waitIfNone(remaining, reset))
			}
		}
		return longest
	}
	if limit, err := httpsfv.UnmarshalDictionary([]string{text}); err == nil {
		return waitIfNone(itemValue(limit, "remaining"), itemValue(limit, "reset"))
	}
	return 0
}

// waitIfNone returns a wait of reset seconds if remaining is 0. Both are integers, or the limit is
// malformed.
func waitIfNone(remaining, reset any) time.Duration {
	seconds, ok := reset.(int64)
	if remaining != int64(0) || !ok {
		return 0
	}
	return waitOf(float64(seconds), time.Second)
}

func itemValue(d *httpsfv.Dictionary, key string) any {
	member, _ := d.Get(key)
	item, _ := member.(httpsfv.Item)
	return item.Value
}
