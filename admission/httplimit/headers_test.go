package httplimit_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/npmtest"
)

var (
	dAllowed    = admission.Decision{Limit: "a", Allowed: true, Quota: 200, Window: 2 * time.Minute, Remaining: 7, ResetAfter: 1500 * time.Millisecond}
	dRefused    = admission.Decision{Limit: "b.c", Quota: 10, Window: 100 * time.Millisecond, Remaining: 8, RetryAfter: 2001 * time.Millisecond, ResetAfter: time.Hour}
	dImpossible = admission.Decision{Limit: "d", Impossible: true, Quota: 1, Window: time.Second, Remaining: 9, ResetAfter: time.Second}
	dShadow     = admission.Decision{Limit: "s", Allowed: true, Shadow: true, WouldRefuse: true, Quota: 5, Window: time.Second, RetryAfter: time.Hour, ResetAfter: time.Hour}
	dOpen       = admission.Decision{Limit: "o", Allowed: true, Source: admission.Undecided, Quota: 3, Window: time.Second}
	dExempt     = admission.Decision{Limit: "e", Allowed: true, Source: admission.FromExemption, Quota: 3, Window: time.Second}
)

// headerCases are decisions and what is written of them at 1000.000000001 s.
var headerCases = map[string]struct {
	decisions []admission.Decision
	want      map[string]string
}{
	"none": {nil, map[string]string{}},
	"allowed": {[]admission.Decision{dAllowed}, map[string]string{
		"Ratelimit-Policy": `"a";q=200;w=120`, "Ratelimit": `"a";r=7;t=2;limit=200;remaining=7;reset=2`,
		"X-Ratelimit-Limit": "200", "X-Ratelimit-Remaining": "7", "X-Ratelimit-Reset": "1003",
	}},
	"one refuses": {[]admission.Decision{dAllowed, dRefused}, map[string]string{
		"Ratelimit-Policy": `"a";q=200;w=120, "b.c";q=10;w=1`, "Ratelimit": `"a";r=7;t=2, "b.c";r=8;t=3;limit=10;remaining=8;reset=3`,
		"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "8", "X-Ratelimit-Reset": "1004",
	}},
	"one never allows": {[]admission.Decision{dAllowed, dImpossible}, map[string]string{
		"Ratelimit-Policy": `"a";q=200;w=120, "d";q=1;w=1`, "Ratelimit": `"a";r=7;t=2, "d";r=9;t=1;limit=1;remaining=9;reset=1`,
		"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "9", "X-Ratelimit-Reset": "1002",
	}},
	"one in shadow would refuse": {[]admission.Decision{dShadow, dAllowed}, map[string]string{
		"Ratelimit-Policy": `"a";q=200;w=120`, "Ratelimit": `"a";r=7;t=2;limit=200;remaining=7;reset=2`,
		"X-Ratelimit-Limit": "200", "X-Ratelimit-Remaining": "7", "X-Ratelimit-Reset": "1003",
	}},
	"one exempts, one was not asked": {[]admission.Decision{dExempt, dOpen, dAllowed}, map[string]string{
		"Ratelimit-Policy": `"o";q=3;w=1, "a";q=200;w=120`, "Ratelimit": `"a";r=7;t=2;limit=200;remaining=7;reset=2`,
		"X-Ratelimit-Limit": "200", "X-Ratelimit-Remaining": "7", "X-Ratelimit-Reset": "1003",
	}},
	"none was asked":      {[]admission.Decision{dOpen}, map[string]string{"Ratelimit-Policy": `"o";q=3;w=1`}},
	"nobody is held back": {[]admission.Decision{dShadow, dExempt}, map[string]string{}},
	"one limit for a list": {[]admission.Decision{dAllowed, less(dAllowed, 3), less(dAllowed, 5)}, map[string]string{
		"Ratelimit-Policy": `"a";q=200;w=120`, "Ratelimit": `"a";r=3;t=2;limit=200;remaining=3;reset=2`,
		"X-Ratelimit-Limit": "200", "X-Ratelimit-Remaining": "3", "X-Ratelimit-Reset": "1003",
	}},
}

func less(d admission.Decision, remaining int64) admission.Decision {
	d.Remaining = remaining
	return d
}

func headersOf(kind httplimit.RateLimitHeaders, decisions []admission.Decision, at int64) map[string]string {
	h, got := http.Header{}, map[string]string{}
	kind.Set(h, decisions, time.Unix(at, 1))
	for name := range h {
		got[name] = h.Get(name)
	}
	return got
}

func TestSetHeaders(t *testing.T) {
	t.Parallel()
	for name, test := range headerCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, headersOf("", test.decisions, 1000)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSetsOfHeaders(t *testing.T) {
	t.Parallel()
	decisions := []admission.Decision{dAllowed, dRefused}
	for kind, want := range map[httplimit.RateLimitHeaders]map[string]string{
		httplimit.StandardHeaders: {"Ratelimit-Policy": `"a";q=200;w=120, "b.c";q=10;w=1`, "Ratelimit": `"a";r=7;t=2, "b.c";r=8;t=3`},
		httplimit.LegacyHeaders:   {"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "8", "X-Ratelimit-Reset": "1004"},
		httplimit.BothHeaders:     headerCases["one refuses"].want,
	} {
		if diff := cmp.Diff(want, headersOf(kind, decisions, 1000)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

func TestRetrySeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, 59*time.Second + 999*time.Millisecond: 60} {
		if got := admission.RetrySeconds(d); got != want {
			t.Errorf("%s: %d, want %d", d, got, want)
		}
	}
}

// reading is what parsers that are not ours make of headers.
type reading struct {
	Policies, States []item
	Older            *struct{ Limit, Remaining, Reset *int64 } // a number that is none is null
}

type item struct {
	Name string
	Q, W *int64
	R, T *int64
}

// TestHeadersForOthers lets parsers that are not ours read the headers.
// `make test` installs them (scripts/parsers).
func TestHeadersForOthers(t *testing.T) {
	t.Parallel()
	const at = 1_900_000_000 // what a parser takes for Unix seconds
	names := slices.Sorted(maps.Keys(headerCases))
	for _, kind := range []httplimit.RateLimitHeaders{"", httplimit.BothHeaders, httplimit.StandardHeaders, httplimit.LegacyHeaders} {
		sent := make([]map[string]string, len(names))
		for i, name := range names {
			sent[i] = map[string]string{}
			for header, value := range headersOf(kind, headerCases[name].decisions, at) {
				sent[i][strings.ToLower(header)] = value
			}
		}
		for i, read := range readByOthers(t, sent, at+1) {
			for _, d := range headerCases[names[i]].decisions {
				if d.Shadow || d.Source == admission.FromExemption || names[i] == "one limit for a list" && d.Remaining != 3 {
					continue
				}
				if kind != httplimit.LegacyHeaders {
					read.wantStandard(t, d)
				}
				if kind != httplimit.StandardHeaders { // whose numbers the parser of an earlier draft does not find
					read.wantOlder(t, d, at)
				}
			}
			if t.Failed() {
				t.Fatalf("%q headers, %s: %v", kind, names[i], sent[i])
			}
		}
	}
}

func (r *reading) wantStandard(t *testing.T, d admission.Decision) {
	t.Helper()
	found := slices.IndexFunc(r.Policies, func(p item) bool { return p.Name == d.Limit })
	if found < 0 || *r.Policies[found].Q != d.Quota || *r.Policies[found].W != admission.RetrySeconds(d.Window) {
		t.Errorf("policy of %+v read as %+v", d, r.Policies)
	}
	found = slices.IndexFunc(r.States, func(s item) bool { return s.Name == d.Limit })
	if known := d.Source != admission.Undecided; known != (found >= 0) ||
		known && (*r.States[found].R != d.Remaining || *r.States[found].T != admission.RetrySeconds(untilMore(d))) {
		t.Errorf("state of %+v read as %+v", d, r.States)
	}
}

// wantOlder demands true numbers of the limit that is the most restrictive one:
// where one refuses that one, else the only one that was asked.
func (r *reading) wantOlder(t *testing.T, d admission.Decision, at int64) {
	t.Helper()
	worst := r.Older
	switch {
	case worst == nil:
		if d.Source != admission.Undecided {
			t.Errorf("no older headers of %+v", d)
		}
	case worst.Limit == nil || worst.Remaining == nil || worst.Reset == nil:
		t.Errorf("the older headers of %+v have what is no number", d)
	case !d.Allowed:
		if *worst.Limit != d.Quota || *worst.Remaining != d.Remaining || *worst.Reset != at+1+admission.RetrySeconds(untilMore(d)) {
			t.Errorf("the older headers of %+v read as %d, %d, %d", d, *worst.Limit, *worst.Remaining, *worst.Reset)
		}
	}
}

func untilMore(d admission.Decision) time.Duration {
	if d.RetryAfter > 0 {
		return d.RetryAfter
	}
	return d.ResetAfter
}

func readByOthers(t *testing.T, sent []map[string]string, now int64) []reading {
	t.Helper()
	node := npmtest.Clients(t)
	text, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	out := node.Output(t, filepath.Join("testdata", "headers", "parse.mjs"), "HEADERS="+string(text), "NOW="+strconv.FormatInt(now, 10))
	var read []reading
	if err := json.Unmarshal(out, &read); err != nil || len(read) != len(sent) {
		t.Fatalf("%v: %s", err, out)
	}
	return read
}
