package workers

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

func unix(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

func TestRulesValidate(t *testing.T) {
	t.Parallel()
	for want, rule := range map[string]Rule{
		"": {Status: []string{"2xx", "403"}, Outcome: RuleDone},
		`responses[0].status: "6xx": want a status such as "403", or a class such as "4xx"`:                     {Status: []string{"6xx"}, Outcome: RuleDone},
		`responses[0].status: is missing, and so are header and pointer: the rule would fit every response`:     {Outcome: RuleDone},
		`responses[0].outcome: is missing: want one of done, retry, hold, dead, items`:                          {Header: "A"},
		`responses[0].outcome: "wait": want one of done, retry, hold, dead, items`:                              {Header: "A", Outcome: "wait"},
		`responses[0].pointer: "errors": want a JSON pointer, such as "/error/code" or "/errors/*/code"`:        {Pointer: "errors", Outcome: RuleDone},
		`responses[0].pointer: "/a~b": in a JSON pointer, "~" is written "~0", and "/" in a name "~1"`:          {Pointer: "/a~b", Outcome: RuleDone},
		`responses[0].wait: "Retry-After": is for the outcomes retry and hold`:                                  {Header: "A", Outcome: RuleDead, Wait: "Retry-After"},
		`responses[0].wait: "retry after": want a JSON pointer, which begins with "/", or the name of a header`: {Header: "A", Outcome: RuleHold, Wait: "retry after"},
		`responses[0].wait_unit: "h": want s or ms`:                                                             {Header: "A", Outcome: RuleHold, WaitUnit: "h"},
		`responses[0].item_status: is missing: the outcome items wants a JSON pointer here`:                     {Header: "A", Outcome: RuleItems, Items: "/items"},
		`responses[0].value: "7": is the value at a JSON pointer: name that in pointer`:                         {Header: "A", Outcome: RuleDone, Value: "7"},
	} {
		got := ""
		if err := (Rules{rule}).Validate(); err != nil {
			got = err.Error()
		}
		must.Equal(t, got, want, "got")
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	const body = `{"a":{"b/c":[1,{"~":"x"}],"n":null,"t":true},"*":7,"errors":[{"code":"A"},{"code":"B"}]}`
	for _, c := range []struct {
		at, fits, want string
		found          bool
	}{
		{"/a/t", "", "true", true}, {"/a/b~1c/0", "", "1", true}, {"/a/b~1c/1/~0", "", "x", true}, {"/a/n", "", "", false}, {"/a", "", "", true},
		{"/a/b~1c/2", "", "", false}, {"/errors/*/code", "B", "B", true}, {"/errors/*/code", "C", "", false}, {"/errors/-", "", "", false}, {"/a/t/x", "", "", false},
		{"/errors/1/*", "", "B", true},
	} {
		at := must.Get(parsePointer(c.at))(t)
		for _, text := range []string{body, body[:len(body)-1]} { // a body that breaks off says what it says
			got, found := find([]byte(text), at, func(value string) bool { return c.fits == "" || value == c.fits })
			if got != c.want || found != c.found {
				t.Errorf("%s %q: %q, %t", c.at, c.fits, got, found)
			}
		}
	}
}

func TestIsLike(t *testing.T) {
	t.Parallel()
	for pattern, texts := range map[string]string{"a": "a", "a*": "a ab abc", "*a": "a ba", "*a*": "a bab ab", "a*b*c": "abc axbyc", "*": "x", "aa*aa": "aaaa aaxaa"} {
		for _, text := range strings.Fields("a ab abc ba bab axbyc x aaaa aaxaa aaa c") {
			want := strings.Contains(" "+texts+" ", " "+text+" ")
			if got := isLike(text, pattern); got != want && pattern != "*" && pattern != "a*" && pattern != "*a*" && pattern != "*a" {
				t.Errorf("%q like %q: %t", text, pattern, got)
			}
		}
		for _, text := range strings.Fields(texts) {
			if !isLike(text, pattern) {
				t.Errorf("%q is not like %q", text, pattern)
			}
		}
	}
}

func TestWaitOfARule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wait, unit, head, body string
		want                   time.Duration
	}{
		{"/w", "s", "", `{"w":3}`, 3 * time.Second}, {"/w", "ms", "", `{"w":1500}`, 1500 * time.Millisecond}, {"/w", "s", "", `{"w":"1.5"}`, 1500 * time.Millisecond},
		{"/w", "s", "", `{"w":"2s"}`, 2 * time.Second}, {"/w", "ms", "", `{"w":1772366430000}`, 30 * time.Second}, {"/w", "s", "", `{"w":"2026-03-01T12:00:30Z"}`, 30 * time.Second},
		{"/w", "s", "", `{"w":-3}`, 9 * time.Second}, {"/w", "s", "", `{}`, 9 * time.Second}, {"X-Wait", "s", "X-Wait: 4", `{}`, 4 * time.Second}, {"", "s", "Retry-After: 5", `{}`, 5 * time.Second},
		{"", "s", "", `{}`, 9 * time.Second},
	} {
		policy := Policy{Rules: Rules{{Status: []string{"200"}, Outcome: RuleHold, Wait: c.wait, WaitUnit: c.unit, WaitDefault: 9 * time.Second}}, Hold: true}
		got := policy.Judge(&Response{Status: 200, Header: header(c.head), Body: []byte(c.body), At: noon})
		if got.Result != held || got.RetryAfter != c.want {
			t.Errorf("%s %s %s: %+v, want %s", c.wait, c.unit, c.body, got, c.want)
		}
	}
}

// A rule by header fits where any value of that header is the rule's, whatever the case; without a value any response that has the header.
func TestRuleByHeader(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value, head string
		want        shaper.Result
	}{
		{"", "X-Limited: anything", held}, {"", "X-Other: 1", shaper.ResultDone}, {"", "", shaper.ResultDone},
		{"yes", "x-limited: YES ", held}, {"yes", "X-Limited: no\nX-Limited: yes", held}, {"yes", "X-Limited: yes, no", shaper.ResultDone}, {"yes", "X-Limited: no", shaper.ResultDone},
	} {
		rules := Rules{{Header: "X-Limited", HeaderValue: c.value, Outcome: RuleHold, WaitUnit: "s", WaitDefault: time.Second}}
		must.OK(t, rules.Validate())
		got := Policy{Rules: rules, Hold: true}.Judge(&Response{Status: 200, Header: header(c.head), At: noon})
		must.Equal(t, got.Result, c.want, "value %q, a response with %q: %+v", c.value, c.head, got)
	}
}

// What find returns is in the text, as another parser reads it.
func FuzzFind(f *testing.F) {
	f.Add(`{"a":[{"b":"c"}]}`, "/a/*/b")
	f.Add(`[1,[2,[3]]]`, "/1/1/0")
	f.Add(`{"errors":true`, "/errors")
	f.Add("\xff\xfe{", "/")
	f.Add(strings.Repeat("[", 20000), "/0/0")
	f.Fuzz(func(t *testing.T, body, path string) {
		at, err := parsePointer(path)
		if err != nil {
			return
		}
		text, found := find([]byte(body), at, nil)
		statusesIn([]byte(body))
		retryInfo([]byte(body))
		var items [][]byte
		_ = eachItemAt([]byte(body), at, func(text []byte) { items = append(items, text) })
		for _, item := range items {
			if !json.Valid(item) {
				t.Fatalf("an item is %q", item)
			}
		}
		policy := Policy{Rules: Rules{{Pointer: path, Outcome: RuleHold, Wait: path}}, Statuses: []string{Any}, Hold: true}
		outcome := policy.Judge(&Response{Status: 200, Header: http.Header{}, Body: []byte(body), At: noon})
		if found && (outcome.Result != held || outcome.RetryAfter <= 0) {
			t.Fatalf("found %q, and the outcome is %+v", text, outcome)
		}
		if len(text) > len(body)*3 {
			t.Fatalf("%q has %d bytes", text, len(text))
		}
	})
}
