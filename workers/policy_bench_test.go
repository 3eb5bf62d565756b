package workers

import (
	"net/http"
	"testing"

	"github.com/tundish-io/tundish/shaper"
)

// BenchmarkJudge judges the responses that are most of all: no rules, no limits, and a short body.
func BenchmarkJudge(b *testing.B) {
	policy, body := DefaultPolicy(), []byte(`{"id":"019c2b","ok":true}`)
	h := http.Header{"Content-Type": {"application/json"}, "Date": {"Sun, 01 Mar 2026 12:00:00 GMT"}, "Content-Length": {"25"}}
	b.ReportAllocs()
	for b.Loop() {
		r := Response{Status: 200, Header: h, Body: body, At: noon}
		if policy.BodyBytes(&r) != 0 || policy.Judge(&r).Result != shaper.ResultDone {
			b.Fatal("not done")
		}
	}
}
