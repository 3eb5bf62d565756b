package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runJSON runs the demo and returns its report and what it wrote on stderr.
func runJSON(ctx context.Context, t *testing.T, opts Options) (got report, stderr string) {
	t.Helper()
	opts.JSON = true
	var out, line bytes.Buffer
	must.OK(t, Run(ctx, opts, &out, &line))
	decoder := json.NewDecoder(&out)
	decoder.DisallowUnknownFields()
	must.OK(t, decoder.Decode(&got))
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		t.Errorf("more than one object on stdout: %v", err)
	}
	return got, line.String()
}

func TestRunJSON(t *testing.T) { //nolint:paralleltest // alone: it has the demo keep its pace
	got, stderr := runJSON(t.Context(), t, Options{Rate: 200, Seconds: 2, Factor: 3})
	if !got.Kept || got.Interrupted || got.Lost != 0 || got.Duplicated != 0 || got.Unexpected != 0 || got.Waiting != 0 {
		t.Errorf("the promise was broken: %+v", got)
	}
	if got.Admitted == 0 || got.Admitted != got.Delivered {
		t.Errorf("%d admitted, %d delivered", got.Admitted, got.Delivered)
	}
	if !strings.Contains(stderr, "admitted") {
		t.Errorf("no line on stderr: %q", stderr)
	}
}

// At this rate also the slowest machine pushes faster than the limit allows.
func TestRefusals(t *testing.T) { //nolint:paralleltest // alone: it has the demo keep its pace
	got, _ := runJSON(t.Context(), t, Options{Rate: 20, Seconds: 2, Factor: 3})
	full, limited := got.Reasons[shaper.ReasonBucketFull], got.Reasons[shaper.ReasonLimit]
	if limited == 0 || full+limited != got.Refused {
		t.Errorf("%d refused, of which %d by the bucket and %d by the limit; want some by the limit", got.Refused, full, limited)
	}
}

func TestRunText(t *testing.T) { //nolint:paralleltest // alone: it has the demo keep its pace
	var stdout bytes.Buffer
	must.OK(t, Run(t.Context(), Options{Rate: 100, Seconds: 1, Factor: 2, Width: 60}, &stdout, io.Discard))
	for _, want := range []string{"at 100/s", "most in any 1 s", "arrivals", "departures", "Next: `make run`", "`go run ./cmd/dispatcher demo --stay` keeps it running, with its console."} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, stdout.String())
		}
	}
}

func TestInterrupted(t *testing.T) { //nolint:paralleltest // alone: it has the demo keep its pace
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	got, _ := runJSON(ctx, t, Options{Rate: 20, Seconds: 60, Factor: 3})
	if !got.Interrupted || !got.Kept || got.Waiting == 0 || got.Admitted != got.Delivered+got.Waiting {
		t.Errorf("interrupted: %+v; want what was admitted to be delivered or waiting", got)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestReportCannotBeWritten(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := Run(ctx, DefaultOptions(), brokenPipe{}, io.Discard); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Run = %v, want the writer's error", err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	if err := DefaultOptions().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for key, spoil := range map[string]func(*Options){
		"rate: 0":     func(o *Options) { o.Rate = 0 },
		"rate: 501":   func(o *Options) { o.Rate = 501 },
		"seconds: 0":  func(o *Options) { o.Seconds = 0 },
		"factor: 1":   func(o *Options) { o.Factor = 1 },
		"factor: NaN": func(o *Options) { o.Factor = math.NaN() },
		"width: -1":   func(o *Options) { o.Width = -1 },
	} {
		opts := DefaultOptions()
		spoil(&opts)
		if err := Run(t.Context(), opts, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("Run = %v, want a word on %q", err, key)
		}
	}
}

// even logs n jobs, delivered one each 20 ms, and what change adds to that.
func even(n int, change func(h *checker.History, at func(ms int) time.Time)) checker.Result {
	var h checker.History
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	for i := range n {
		id := fmt.Sprint(i)
		h.Admitted(id, at(0))
		h.Delivered(id, 1, at(20*i))
	}
	if change != nil {
		change(&h, at)
	}
	return h.Check()
}

func TestJudge(t *testing.T) {
	t.Parallel()
	crowd := func(extra int) func(*checker.History, func(int) time.Time) {
		return func(h *checker.History, at func(int) time.Time) {
			for i := range extra {
				id := fmt.Sprint("crowd", i)
				h.Admitted(id, at(0))
				h.Delivered(id, 1, at(500))
			}
		}
	}
	lose := func(h *checker.History, at func(int) time.Time) { h.Admitted("gone", at(0)) }
	for name, test := range map[string]struct {
		seen   seen
		broken string // "" if kept
		says   string
	}{
		"even":        {seen{result: even(100, nil)}, "", "The promise was kept"},
		"nothing":     {seen{result: even(0, nil), interrupted: true}, "", "before there was anything"},
		"interrupted": {seen{result: even(100, lose), waiting: 1, interrupted: true}, "", "kept so far"},
		"lost":        {seen{result: even(100, lose)}, "1 admitted jobs were lost", "BROKEN"},
		"late":        {seen{result: even(100, lose), waiting: 1}, "1 jobs were still not delivered", "BROKEN"},
		"one more by jitter": {
			seen{result: even(100, crowd(1))}, "", "The promise was kept",
		},
		"too many": {
			seen{result: even(100, crowd(2))}, "52 departures in one second: at most 51", "BROKEN",
		},
		"too many, but this machine stalled": {
			seen{result: even(100, crowd(2)), spread: 20 * time.Millisecond}, "", "as exactly as this machine keeps time",
		},
		"more than the stall explains": {
			seen{result: even(100, crowd(2)), spread: 19 * time.Millisecond}, "52 departures in one second: at most 51", "BROKEN",
		},
		"doubled": {seen{result: even(100, func(h *checker.History, at func(int) time.Time) {
			h.Delivered("7", 2, at(2000))
		})}, "1 deliveries were repeated", "BROKEN"},
		"unexpected": {seen{result: even(100, func(h *checker.History, at func(int) time.Time) {
			h.Delivered("ghost", 1, at(2000))
		})}, "1 jobs were delivered that nobody pushed", "BROKEN"},
		"slow": {seen{result: even(100, func(h *checker.History, at func(int) time.Time) {
			h.Admitted("slow", at(0))
			h.Delivered("slow", 1, at(2500))
		})}, "", "slower than asked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReport(DefaultOptions(), test.seen)
			if got := strings.Join(r.Broken, "; "); r.Kept != (test.broken == "") || !strings.Contains(got, test.broken) {
				t.Errorf("kept = %t, broken = %q; want %q", r.Kept, got, test.broken)
			}
			var b strings.Builder
			if err := r.writeText(&b, test.seen.result, 0); err != nil || !strings.Contains(b.String(), test.says) {
				t.Errorf("the report does not say %q (%v):\n%s", test.says, err, b.String())
			}
		})
	}
}

func TestLateness(t *testing.T) {
	t.Parallel()
	var l lateness
	slot := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for id, late := range map[string]time.Duration{"early": -time.Millisecond, "late": 7 * time.Millisecond, "on time": 0} {
		l.expect(id, slot)
		l.arrived(id, slot.Add(late))
	}
	l.arrived("late", slot.Add(time.Second)) // nobody sent it again
	l.roundTrip = 2 * time.Millisecond
	if got, want := l.spread(), 10*time.Millisecond; got != want {
		t.Errorf("spread = %s, want %s", got, want)
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tally := newTally(start)
	for i := range 30 {
		tally.admitted()
		tally.refused(shaper.ReasonBucketFull)
		if i%3 == 0 {
			tally.delivered()
		}
	}
	for i, want := range []string{
		" 0.5s  admitted 30  refused 30  waiting 20  delivered 10, 20/s",
		" 1.0s  admitted 30  refused 30  waiting 20  delivered 10, 10/s",
		" 1.5s  admitted 30  refused 30  waiting 20  delivered 10, 0/s",
	} {
		must.Equal(t, tally.line(start.Add(time.Duration(i+1)*500*time.Millisecond)), want, "line")
	}
}
