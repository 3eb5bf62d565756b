package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnswers(t *testing.T) {
	t.Parallel()
	type script = []func(http.ResponseWriter, []job)
	for name, test := range map[string]struct {
		options func(o *Options)
		script  script
		want    Report
	}{
		"admitted": {
			func(o *Options) { o.Jobs = 10 }, nil,
			Report{Sent: 10, Admitted: 10},
		},
		"a duplicate": {
			nil, script{func(w http.ResponseWriter, _ []job) {
				w.WriteHeader(http.StatusAccepted)
				io.WriteString(w, `{"duplicate":true}`)
			}},
			Report{Sent: 1, Admitted: 1, Duplicates: 1},
		},
		"refused": {
			func(o *Options) { o.Jobs = 4 },
			script{refuse(429, "bucket-full", "1"), refuse(429, "limit-exceeded", ""), refuse(429, "bucket-full", ""), refuse(429, "", "")},
			Report{Sent: 4, Refused: map[string]int{"bucket-full": 2, "limit-exceeded": 1, "429": 1}},
		},
		"refused, and waiting": {
			func(o *Options) { o.Wait = true },
			script{refuse(429, "bucket-full", "3"), refuse(429, "bucket-full", ""), refuse(429, "bucket-full", "2")},
			Report{Sent: 1, Admitted: 1, Elapsed: 6, Rate: 1. / 6},
		},
		"failed for good": {
			func(o *Options) { o.Jobs = 2 },
			script{refuse(404, "unknown-bucket", ""), refuse(500, "", "")},
			Report{Sent: 2, Failed: map[string]int{"404 unknown-bucket": 1, "500": 1}},
		},
		"with details": {
			func(o *Options) { o.Jobs = 4 },
			script{
				explain(400, `{"code":"invalid","detail":"2 fields are not valid, see errors","errors":[{"field":"url","reason":"is missing\nhere"},{"field":"id","reason":"is long"}]}`),
				explain(400, `{"code":"invalid","detail":"another one"}`), explain(429, `{"code":"bucket-full","detail":"`+strings.Repeat("é", 200)+`"}`), accept,
			},
			Report{
				Sent: 4, Admitted: 1, Refused: map[string]int{"bucket-full": 1}, Failed: map[string]int{"400 invalid": 2},
				Details: map[string]string{"400 invalid": "url: is missing here; id: is long", "bucket-full": strings.Repeat("é", 150) + " …"},
			},
		},
		"with details of each in a batch": {
			func(o *Options) { o.Jobs, o.Batch = 2, 2 },
			script{explain(200, `{"results":[{"status":202},{"status":400,"code":"invalid","detail":"is not JSON"}]}`)},
			Report{Sent: 2, Admitted: 1, Failed: map[string]int{"400 invalid": 1}, Details: map[string]string{"400 invalid": "is not JSON"}},
		},
		"no redirect is followed": {
			nil, script{func(w http.ResponseWriter, _ []job) {
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(http.StatusTemporaryRedirect)
			}},
			Report{Sent: 1, Failed: map[string]int{"307": 1}},
		},
		"the store was away": {
			nil, script{refuse(503, "store-unavailable", "1"), refuse(503, "store-unavailable", "")},
			Report{Sent: 1, Admitted: 1, Elapsed: 1.2, Rate: 1 / 1.2},
		},
		"the store stays away": {
			nil, script{refuse(503, "away", ""), refuse(503, "away", ""), refuse(503, "away", ""), refuse(503, "away", "")},
			Report{Sent: 1, Failed: map[string]int{"503 away": 1}, Elapsed: 0.7, Rate: 1 / 0.7},
		},
		"the store stays away for long, and waiting": {
			func(o *Options) { o.Wait = true },
			script{refuse(503, "away", ""), refuse(503, "away", "1"), refuse(503, "away", ""), refuse(503, "away", ""), refuse(503, "away", "")},
			Report{Sent: 1, Admitted: 1, Elapsed: 3.9, Rate: 1 / 3.9}, // 0.1, 1, 0.4, 0.8, 1.6
		},
		"an answer is lost after the store was away for long, and waiting": {
			func(o *Options) { o.Wait = true },
			script{refuse(503, "away", ""), refuse(503, "away", ""), refuse(503, "away", ""), refuse(503, "away", ""), drop},
			Report{Sent: 1, Admitted: 1, Elapsed: 3.1, Rate: 1 / 3.1},
		},
		"the answer was lost": {
			nil, script{drop, func(w http.ResponseWriter, _ []job) {
				w.WriteHeader(http.StatusAccepted)
				io.WriteString(w, `{"duplicate":true}`) // the first request was taken
			}},
			Report{Sent: 1, Admitted: 1, Elapsed: 0.1, Rate: 10},
		},
		"a batch": {
			func(o *Options) { o.Jobs, o.Batch = 7, 3 }, script{results("202", "429 flow-full", "422 id-reused")},
			Report{Sent: 7, Admitted: 5, Refused: map[string]int{"flow-full": 1}, Failed: map[string]int{"422 id-reused": 1}},
		},
		"a batch, and waiting": {
			func(o *Options) { o.Jobs, o.Batch, o.Wait = 3, 3, true }, script{results("202", "429 flow-full", "202"), results("202")},
			Report{Sent: 3, Admitted: 3, Elapsed: 1, Rate: 3},
		},
		"a batch, and waiting as long as asked": {
			func(o *Options) { o.Jobs, o.Batch, o.Wait = 3, 3, true }, script{results("202", "429 flow-full 2", "429 flow-full 4")},
			Report{Sent: 3, Admitted: 3, Elapsed: 4, Rate: 0.75},
		},
		"a batch refused as a whole": {
			func(o *Options) { o.Jobs, o.Batch = 3, 3 }, script{refuse(413, "too-large", "")},
			Report{Sent: 3, Failed: map[string]int{"413 too-large": 3}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := &api{script: test.script}
				got := must.Get(run(t.Context(), options(test.options), server, io.Discard))(t)
				ignore := cmpopts.IgnoreFields(Report{}, "Latency")
				if test.want.Elapsed == 0 { // all in no time
					ignore = cmpopts.IgnoreFields(Report{}, "Latency", "Rate", "Elapsed")
				}
				must.Equal(t, cmp.Diff(test.want, got, ignore, cmpopts.EquateEmpty(), cmpopts.EquateApprox(1e-6, 0)), "", "run (-want +got):")
				if len(server.seen) != got.Sent || len(server.bad) > 0 {
					t.Errorf("the server saw %d different ids, want %d, and %v", len(server.seen), got.Sent, server.bad)
				}
			})
		})
	}
}

// A stall of the server is not an excuse: requests that had to wait for it
// count from when they should have started.
func TestOpenSchedule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &api{script: []func(http.ResponseWriter, []job){slow(time.Second)}}
		start := time.Now()
		got := must.Get(run(t.Context(), options(func(o *Options) { o.Jobs, o.Rate = 21, 10 }), server, io.Discard))(t)
		for i, at := range server.times {
			want := time.Duration(i) * 100 * time.Millisecond
			if i > 0 {
				want = max(want, time.Second)
			}
			must.Equal(t, at.Sub(start), want, "request %d left at", i)
		}
		// 1000, 900, 800, ..., 100 ms, then none: in the closed view one of 21 was slow.
		for name, pair := range map[string][2]Millis{
			"p50": {got.Latency.P50, 0}, "p90": {got.Latency.P90, 800}, "p99": {got.Latency.P99, 1000}, "max": {got.Latency.Max, 1000},
		} {
			if math.Abs(float64(pair[0]-pair[1])) > 1 {
				t.Errorf("%s = %s, want %s", name, pair[0], pair[1])
			}
		}
		must.Equal(t, got.Elapsed, 2, "elapsed = s")
	})
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1050*time.Millisecond)
		defer cancel()
		var progress bytes.Buffer
		got, err := run(ctx, options(func(o *Options) { o.Jobs, o.Rate = 1000, 10 }), &api{}, &progress)
		if !errors.Is(err, context.DeadlineExceeded) || got.Admitted != 11 || got.Sent != 11 {
			t.Errorf("run = %+v, %v; want 11 admitted and the deadline", got, err)
		}
		_, err = run(t.Context(), options(func(o *Options) { o.Jobs, o.Rate = 101, 10 }), &api{}, &progress)
		if lines := strings.Count(progress.String(), "\n"); err != nil || lines < 1 || lines > 2 {
			t.Errorf("%d lines of progress in 10 s (%v): %q", lines, err, progress.String())
		}
	})
}

func TestServerIsNotThere(t *testing.T) {
	t.Parallel()
	o := options(func(o *Options) { o.Server, o.Jobs = "http://127.0.0.1:1", 1_000_000 })
	got, err := Run(t.Context(), o, io.Discard)
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "connection refused") || got.Failed["connection refused"] == 0 {
		t.Errorf("Run = %+v, %v; want that the server does not answer", got, err)
	}
}

func TestOverTheNetwork(t *testing.T) {
	t.Parallel()
	handler := &api{script: []func(http.ResponseWriter, []job){drop}}
	var mu sync.Mutex
	connections := 0
	server := httptest.NewUnstartedServer(handler)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if state == http.StateNew {
			connections++
		}
	}
	server.Start()
	defer server.Close()
	const jobs, workers = 500, 8
	got, err := Run(t.Context(), options(func(o *Options) {
		o.Server, o.Jobs, o.Concurrency, o.Size, o.URL = server.URL+"/", jobs, workers, 1000, "http://receiver.test/"
	}), io.Discard)
	if err != nil || got.Admitted != jobs || len(handler.seen) != jobs || len(handler.bad) > 0 {
		t.Errorf("Run = %+v, %v; the server saw %d jobs and %v", got, err, len(handler.seen), handler.bad)
	}
	mu.Lock()
	defer mu.Unlock()
	if connections > 2*workers+1 { // one was hung up on; net/http may dial one more where it waits for one
		t.Errorf("%d connections for %d jobs, want at most %d", connections, jobs, 2*workers+1)
	}
}

func TestPayload(t *testing.T) {
	t.Parallel()
	for _, size := range []int{MinSize, 3, 1000} {
		s := newSender(options(func(o *Options) { o.Size = size }), nil, nil, nil)
		if len(s.payload) != size || !json.Valid(s.payload) {
			t.Errorf("payload of %d bytes, valid: %t; want %d", len(s.payload), json.Valid(s.payload), size)
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	if err := options(nil).Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for key, spoil := range map[string]func(o *Options){
		"server":      func(o *Options) { o.Server = "localhost:8080" },
		"bucket":      func(o *Options) { o.Bucket = "" },
		"jobs":        func(o *Options) { o.Jobs = 0 },
		"concurrency": func(o *Options) { o.Concurrency = MaxConcurrency + 1 },
		"batch":       func(o *Options) { o.Batch = MaxBatch + 1 },
		"batch: 1000": func(o *Options) { o.Batch, o.Size = 1000, 10_000 },
		"size":        func(o *Options) { o.Size = 1 },
		"rate: -1":    func(o *Options) { o.Rate = -1 },
		"rate: NaN":   func(o *Options) { o.Rate = math.NaN() },
		"timeout":     func(o *Options) { o.Timeout = 0 },
	} {
		if _, err := Run(t.Context(), options(spoil), io.Discard); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("Run = %v, want a word on %q", err, key)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-1": 0, "0": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "1.5": 0,
		"3600": maxRetryAfter, "99999999999999999999": 0,
		now.Add(9 * time.Second).Format(http.TimeFormat): 9 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):      0,
	} {
		must.Equal(t, retryAfter(http.Header{"Retry-After": {value}}, now), want, "retryAfter(%q)", value)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	r := Report{
		Sent: 1000, Admitted: 900, Refused: map[string]int{"bucket-full": 60, "limit-exceeded": 38}, Failed: map[string]int{"timeout": 2},
		Details: map[string]string{"bucket-full": "it is full"},
		Elapsed: 2.0004, Rate: 499.9, Latency: Latency{P50: 0.31, P90: 1.25, P99: 12, P999: 123.456, Max: 1500},
	}
	want := `
            sent    1000
        admitted     900
         refused      98
     bucket-full      60
  limit-exceeded      38
          failed       2
         timeout       2
         elapsed      2s
            rate 499.9/s
     latency p50   310µs
             p90  1.25ms
             p99    12ms
           p99.9   123ms
             max    1.5s
bucket-full: it is full
`
	fields := func(s string) (lines [][]string) {
		for line := range strings.Lines(s) {
			lines = append(lines, strings.Fields(line))
		}
		return lines
	}
	if diff := cmp.Diff(fields(want)[1:], fields(r.String())); diff != "" {
		t.Errorf("String (-want +got):\n%s\n%s", diff, r)
	}
	text, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(text), `"p999_ms":123.456`) {
		t.Errorf("JSON = %s, %v", text, err)
	}
}

// Jobs take turns in the flows that are asked for.
func TestFlows(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.Flow = "customer"
	must.Equal(t, o.flowOf(7), "customer", "one flow")
	o.Flows = 3
	var got []string
	for n := range int64(4) {
		got = append(got, o.flowOf(n))
	}
	if want := "customer-1 customer-2 customer-3 customer-1"; strings.Join(got, " ") != want {
		t.Errorf("flows %v, want %s", got, want)
	}
	if o.Flow, o.Server, o.Bucket = "", "http://x", "b"; o.Validate() == nil || !strings.Contains(o.Validate().Error(), "flows: 3: name them") {
		t.Errorf("flows without a name: %v", o.Validate())
	}
}
