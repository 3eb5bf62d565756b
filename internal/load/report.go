package load

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report counts the results of the jobs. Sent is the sum of Admitted, Refused and Failed.
type Report struct {
	Sent       int            `json:"sent"`
	Admitted   int            `json:"admitted"`   // status 202
	Duplicates int            `json:"duplicates"` // of these, jobs that were there before: none of ours should
	Refused    map[string]int `json:"refused"`    // status 429, by the code of the response
	Failed     map[string]int `json:"failed"`     // by status or error, after all tries

	// Details explain why jobs were refused or failed, by reason: the detail of the first such job that the server explained.
	Details map[string]string `json:"details"`

	Elapsed float64 `json:"elapsed_seconds"`
	Rate    float64 `json:"rate"` // jobs sent a second
	Latency Latency `json:"latency"`
}

// Latency is of requests, from the instant at which one should have started to its last response: it includes retries and waits.
type Latency struct {
	P50  Millis `json:"p50_ms"`
	P90  Millis `json:"p90_ms"`
	P99  Millis `json:"p99_ms"`
	P999 Millis `json:"p999_ms"`
	Max  Millis `json:"max_ms"`
}

// Millis is a duration in milliseconds, to three digits.
type Millis float64

// String writes it as a duration: 1.25ms, 310µs.
func (m Millis) String() string {
	return rounded(time.Duration(float64(m) * float64(time.Millisecond)))
}

func rounded(d time.Duration) string {
	unit := time.Nanosecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

// String is the report as a table.
func (r Report) String() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, value any) { fmt.Fprintf(t, "%s\t%v\t\n", name, value) }
	counts := func(name string, by map[string]int) {
		row(name, sum(by))
		for _, reason := range slices.Sorted(maps.Keys(by)) {
			row(reason, by[reason])
		}
	}
	row("sent", r.Sent)
	row("admitted", r.Admitted)
	if r.Duplicates > 0 {
		row("duplicates", r.Duplicates)
	}
	counts("refused", r.Refused)
	counts("failed", r.Failed)
	row("elapsed", rounded(time.Duration(r.Elapsed*float64(time.Second))))
	row("rate", fmt.Sprintf("%.1f/s", r.Rate))
	row("latency p50", r.Latency.P50)
	row("p90", r.Latency.P90)
	row("p99", r.Latency.P99)
	row("p99.9", r.Latency.P999)
	row("max", r.Latency.Max)
	_ = t.Flush() // a strings.Builder takes everything
	for _, reason := range slices.Sorted(maps.Keys(r.Details)) {
		fmt.Fprintf(&b, "%s: %s\n", reason, r.Details[reason])
	}
	return b.String()
}

func sum(counts map[string]int) int {
	n := 0
	for _, count := range counts {
		n += count
	}
	return n
}
