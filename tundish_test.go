package tundish_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/tundishtest"
)

// beside is another program on the same Redis.
func beside(t *testing.T, c *tundish.Client) *tundish.Client {
	t.Helper()
	other, err := tundish.New(tundish.Config{Redis: c.Redis()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	return other
}

// Three programs work a bucket at its rate, together.
func TestTheRateIsThatOfAllPrograms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		letters := tundish.Define[Letter]("letters")
		var mu sync.Mutex
		var times []time.Time
		var names []string
		work := func(_ context.Context, l Letter) error {
			mu.Lock()
			defer mu.Unlock()
			times, names = append(times, time.Now()), append(names, l.To)
			return nil
		}
		first := tundishtest.Open(t)
		for _, c := range []*tundish.Client{first, beside(t, first), beside(t, first)} {
			c.Handle(letters.Work(tundish.Settings{Rate: "10/s"}, work))
			tundishtest.Run(t, c)
		}
		const jobs = 200
		var want []string
		for n := range jobs {
			want = append(want, fmt.Sprint("n", n))
			if _, err := letters.Enqueue(t.Context(), first, Letter{To: want[n]}); err != nil {
				t.Fatal(err)
			}
		}
		tundishtest.Drain(t, first, letters.Name())
		slices.SortFunc(times, time.Time.Compare)
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap < 90*time.Millisecond {
				t.Errorf("calls %d and %d are %s apart", i-1, i, gap)
			}
		}
		slices.Sort(names)
		slices.Sort(want)
		if !slices.Equal(names, want) {
			t.Errorf("%d calls, want each of %d jobs once", len(names), jobs)
		}
	})
}

// What an error of the function means for its job.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	down := errors.New("the receiver is down")
	for _, test := range []struct {
		name    string
		err     func(attempt int, ctx context.Context) error
		calls   int
		reason  string // of the dead letter; "": there is none
		detail  string
		between time.Duration // of the first two calls, at least
	}{
		{"done", func(int, context.Context) error { return nil }, 1, "", "", 0},
		{"error", func(int, context.Context) error { return down }, 3, shaper.CauseExhausted, down.Error(), time.Millisecond},
		{"error once", func(n int, _ context.Context) error { return on(n == 1, down) }, 2, "", "", time.Millisecond},
		{"dead", func(int, context.Context) error { return tundish.Dead(down) }, 1, "dead", down.Error(), 0},
		{"dead without an error", func(int, context.Context) error { return tundish.Dead(nil) }, 1, "dead", "dead", 0},
		{"dead, wrapped", func(int, context.Context) error { return fmt.Errorf("send: %w", tundish.Dead(down)) }, 1, "dead", "send: " + down.Error(), 0},
		{"skip", func(int, context.Context) error { return tundish.Skip(down) }, 1, "", "", 0},
		{"hold", func(n int, _ context.Context) error { return on(n <= 5, tundish.Hold(time.Minute, down)) }, 6, "", "", time.Minute},
		{"retry in", func(n int, _ context.Context) error { return on(n == 1, tundish.RetryIn(2*time.Minute, down)) }, 2, "", "", 2 * time.Minute},
		{"panic", func(n int, _ context.Context) error { panic("no such letter") }, 3, shaper.CauseExhausted, "the worker panicked: no such letter", time.Millisecond},
		{"timeout", func(_ int, ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 3, shaper.CauseExhausted, context.DeadlineExceeded.Error(), time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				letters, c := tundish.Define[Letter]("letters"), tundishtest.Open(t)
				var mu sync.Mutex
				var calls []time.Time
				c.Handle(letters.Work(tundish.Settings{Rate: "10/s", MaxAttempts: 3}, func(ctx context.Context, _ Letter) error {
					mu.Lock()
					calls = append(calls, time.Now())
					n := len(calls)
					mu.Unlock()
					return test.err(n, ctx)
				}))
				tundishtest.Run(t, c)
				if _, err := letters.Enqueue(t.Context(), c, Letter{To: "ada"}); err != nil {
					t.Fatal(err)
				}
				tundishtest.Drain(t, c, letters.Name())
				if len(calls) != test.calls || len(calls) > 1 && calls[1].Sub(calls[0]) < test.between {
					t.Errorf("calls at %v, want %d, the first two %s apart", calls, test.calls, test.between)
				}
				wantDead(t, c, letters.Name(), test.reason, test.detail)
			})
		})
	}
}

// RetryIn is obeyed, however long the backoff would be.
func TestRetryIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const attempts, wait = 6, 500 * time.Millisecond
		letters, c := tundish.Define[Letter]("letters"), tundishtest.Open(t)
		var mu sync.Mutex
		var calls []time.Time
		c.Handle(letters.Work(tundish.Settings{Rate: "10/s"}, func(context.Context, Letter) error {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, time.Now())
			return on(len(calls) < attempts, tundish.RetryIn(wait, nil))
		}))
		tundishtest.Run(t, c)
		if _, err := letters.Enqueue(t.Context(), c, Letter{To: "ada"}); err != nil {
			t.Fatal(err)
		}
		tundishtest.Drain(t, c, letters.Name())
		if len(calls) != attempts {
			t.Fatalf("%d calls, want %d", len(calls), attempts)
		}
		for i := 1; i < attempts; i++ {
			if gap := calls[i].Sub(calls[i-1]); gap < wait || gap > 2*wait {
				t.Errorf("attempt %d came %s after the one before, want %s", i+1, gap, wait)
			}
		}
	})
}

func on(is bool, err error) error {
	if is {
		return err
	}
	return nil
}

func wantDead(t *testing.T, c *tundish.Client, bucket, reason, detail string) {
	t.Helper()
	op, err := operator.New(operator.Config{Redis: c.Redis()})
	if err != nil {
		t.Fatal(err)
	}
	dead, err := op.Bucket(bucket).Dead().List(t.Context(), 0, 10)
	switch {
	case err != nil:
		t.Fatal(err)
	case reason == "" && len(dead) == 0:
	case reason == "" || len(dead) != 1:
		t.Errorf("%d dead letters: want reason %q", len(dead), reason)
	case dead[0].Last.Reason != reason && dead[0].Last.Cause != reason || !strings.Contains(dead[0].Last.Detail, detail):
		t.Errorf("the dead letter says %+v, want %q: %q", dead[0].Last, reason, detail)
	}
}

// Payloads that are no JSON, or of another type, are not lost: they are dead letters.
func TestPayloads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := tundishtest.Open(t)
		var got []string
		var mu sync.Mutex
		raw := tundish.Define[[]byte]("raw")
		numbers := tundish.Define[int]("numbers")
		c.Handle(
			raw.Work(tundish.Settings{Rate: "10/s"}, func(_ context.Context, p []byte) error {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, string(p))
				return nil
			}),
			numbers.Work(tundish.Settings{Rate: "10/s"}, func(context.Context, int) error { t.Error("a text came as a number"); return nil }),
		)
		tundishtest.Run(t, c)
		_, err := raw.Enqueue(t.Context(), c, []byte("\x00as it is"))
		text, err2 := tundish.Define[string]("numbers").Job("seven")
		_, err3 := c.Enqueue(t.Context(), text)
		if err := errors.Join(err, err2, err3); err != nil {
			t.Fatal(err)
		}
		if _, err := tundish.Define[chan int]("raw").Enqueue(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), `bucket "raw"`) {
			t.Errorf("a payload that is no JSON: %v", err)
		}
		tundishtest.Drain(t, c, "raw")
		tundishtest.Drain(t, c, "numbers")
		if !slices.Equal(got, []string{"\x00as it is"}) {
			t.Errorf("got %q", got)
		}
		wantDead(t, c, "numbers", "invalid", "no int")
	})
}

// A program that only enqueues names no settings, and takes those of the program that works the bucket.
func TestEnqueueOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		letters := tundish.Define[Letter]("letters")
		worker := tundishtest.Open(t)
		producer := beside(t, worker)
		if _, err := letters.Enqueue(t.Context(), producer, Letter{}); err == nil || !strings.Contains(err.Error(), `"letters"`) {
			t.Errorf("before anything has written the bucket: %v", err)
		}
		var calls atomic.Int32
		worker.Handle(letters.Work(tundish.Settings{Rate: "1/s", Capacity: 2}, func(context.Context, Letter) error { calls.Add(1); return nil }))
		stop := tundishtest.Run(t, worker)
		<-time.After(time.Second)
		stop()
		for n := range 3 {
			_, err := letters.Enqueue(t.Context(), producer, Letter{})
			if refused, is := errors.AsType[*tundish.RefusedError](err); is != (n == 2) || is && refused.Receipt.Refusal.RetryAfter <= 0 {
				t.Errorf("enqueue %d, capacity 2: %v", n, err)
			}
		}
		tundishtest.Run(t, worker)
		tundishtest.Drain(t, worker, letters.Name())
		if calls.Load() != 2 {
			t.Errorf("%d calls", calls.Load())
		}
	})
}

// What is wrong with handlers is said by Run, all of it, and nothing is worked.
func TestFaultsOfHandlers(t *testing.T) {
	t.Parallel()
	do := func(context.Context, Letter) error { return nil }
	letters := tundish.Define[Letter]("letters")
	for _, test := range []struct {
		name     string
		handlers []tundish.Handler
		want     []string
	}{
		{"none", nil, []string{"call Handle before"}},
		{"no rate", []tundish.Handler{letters.Work(tundish.Settings{}, do)}, []string{`bucket "letters"`, "Settings.Rate is missing"}},
		{"bad rate", []tundish.Handler{letters.Work(tundish.Settings{Rate: "often"}, do)}, []string{`bucket "letters"`, `"often"`}},
		{"bad quota", []tundish.Handler{letters.Work(tundish.Settings{Rate: "1/s", Quotas: []string{"x"}}, do)}, []string{`"x"`}},
		{"two", []tundish.Handler{letters.Work(tundish.Settings{Rate: "1/s"}, do), letters.Work(tundish.Settings{Rate: "2/s"}, do)}, []string{"two handlers"}},
		{"bad name", []tundish.Handler{tundish.Define[Letter]("Bad Name").Work(tundish.Settings{Rate: "1/s"}, do)}, []string{`"Bad Name"`}},
		{"several", []tundish.Handler{letters.Work(tundish.Settings{}, do), tundish.Define[Letter]("x").Work(tundish.Settings{Rate: "?"}, do)}, []string{`"letters"`, `"x"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := tundishtest.Open(t)
			c.Handle(test.handlers...)
			err := c.Run(t.Context())
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Run: %v: want %q in it", err, want)
				}
			}
		})
	}
}

// One Run at a time, and what it works is given before.
func TestRunIsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, letters := tundishtest.Open(t), tundish.Define[Letter]("letters")
		do := func(context.Context, Letter) error { return nil }
		c.Handle(letters.Work(tundish.Settings{Rate: "1/s"}, do))
		stop := tundishtest.Run(t, c)
		synctest.Wait()
		if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "running already") {
			t.Errorf("a second Run: %v", err)
		}
		c.Handle(tundish.Define[Letter]("late").Work(tundish.Settings{Rate: "1/s"}, do))
		stop()
		if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `"late"`) {
			t.Errorf("a handler that came late: %v", err)
		}
	})
}

func TestOpenFaults(t *testing.T) {
	t.Parallel()
	if c, err := tundish.Open("localhost:6379"); err == nil {
		t.Errorf("a URL without a scheme: %v", c.Close())
	}
	if _, err := tundish.New(tundish.Config{}); err == nil {
		t.Error("neither a Redis nor a URL")
	}
}

// All that wait for a key, in two programs, get through at the rate, and none twice.
func TestWaitPacesCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := tundishtest.Open(t)
		var mu sync.Mutex
		var passed []time.Time
		var waiters sync.WaitGroup
		begin := time.Now()
		for _, c := range []*tundish.Client{first, beside(t, first)} {
			api, err := c.Limit("vendor-api", "10/s", tundish.Evenly)
			if err != nil {
				t.Fatal(err)
			}
			for range 50 {
				waiters.Go(func() {
					if err := api.Wait(t.Context(), "key"); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					passed = append(passed, time.Now())
				})
			}
		}
		waiters.Wait()
		slices.SortFunc(passed, time.Time.Compare)
		for i := 1; i < len(passed); i++ {
			if gap := passed[i].Sub(passed[i-1]); gap < 90*time.Millisecond {
				t.Errorf("%d and %d are %s apart", i-1, i, gap)
			}
		}
		if took := time.Since(begin); len(passed) != 100 || took > 15*time.Second {
			t.Errorf("%d passed in %s", len(passed), took)
		}
	})
}

// A wait ends with its context, and leaves the turn to others.
func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := tundishtest.Open(t)
		api, err := c.Limit("vendor-api", "1/h")
		if err != nil {
			t.Fatal(err)
		}
		if err := api.Wait(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		var waiters sync.WaitGroup
		for range 3 {
			waiters.Go(func() {
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				if err := api.Wait(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a used-up limit: %v", err)
				}
			})
		}
		waiters.Wait()
		begin := time.Now()
		if err := api.Wait(t.Context(), "a"); err != nil || time.Since(begin) > time.Hour {
			t.Errorf("an hour later: %v after %s", err, time.Since(begin))
		}
		if err := api.Wait(t.Context(), "b"); err != nil || time.Since(begin) > time.Hour {
			t.Errorf("another key: %v", err)
		}
	})
}

// Each flow leaves at its own rate, and a job without a flow is refused.
func TestPerFlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		letters, c := tundish.Define[Letter]("letters"), tundishtest.Open(t)
		var mu sync.Mutex
		times := map[string][]time.Time{}
		c.Handle(letters.Work(tundish.Settings{Rate: "100/s", PerFlow: "5/s"}, func(ctx context.Context, _ Letter) error {
			mu.Lock()
			defer mu.Unlock()
			flow := tundish.AttemptOf(ctx).Flow
			times[flow] = append(times[flow], time.Now())
			return nil
		}))
		tundishtest.Run(t, c)
		const jobs = 30
		for range jobs {
			for _, flow := range []string{"acme", "beta"} {
				if _, err := letters.Enqueue(t.Context(), c, Letter{}, tundish.Flow(flow)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := letters.Enqueue(t.Context(), c, Letter{}); err == nil || !strings.Contains(err.Error(), "flow") {
			t.Errorf("a job without a flow: %v", err)
		}
		tundishtest.Drain(t, c, letters.Name())
		for flow, seen := range times {
			slices.SortFunc(seen, time.Time.Compare)
			for i := 5; i < len(seen); i++ {
				if gap := seen[i].Sub(seen[i-5]); gap < 990*time.Millisecond {
					t.Errorf("%s: six jobs in %s", flow, gap)
				}
			}
		}
		if len(times["acme"]) != jobs || len(times["beta"]) != jobs {
			t.Errorf("worked: %d and %d, want %d each", len(times["acme"]), len(times["beta"]), jobs)
		}
	})
}

// Two programs have a schedule, and each fire gives one job with the payload.
func TestSchedules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		letters := tundish.Define[Letter]("letters")
		first := tundishtest.Open(t)
		var got atomic.Int64
		for _, c := range []*tundish.Client{first, beside(t, first)} {
			every := letters.Schedule("hourly", "0 * * * *", Letter{To: "all"})
			every.Timezone = "Europe/Paris"
			c.Handle(letters.Work(tundish.Settings{Rate: "10/s", Schedules: []tundish.Schedule{every}}, func(_ context.Context, l Letter) error {
				if l.To != "all" {
					t.Errorf("the payload is %+v", l)
				}
				got.Add(1)
				return nil
			}))
			tundishtest.Run(t, c)
		}
		time.Sleep(5*time.Hour + 30*time.Minute) //nolint:forbidigo // of the bubble's clock
		if got.Load() != 5 {
			t.Errorf("%d jobs in five and a half hours, want 5", got.Load())
		}
	})
}

func TestFaultsOfSchedules(t *testing.T) {
	t.Parallel()
	letters := tundish.Define[Letter]("letters")
	for want, one := range map[string]tundish.Schedule{
		"ID, In, At and InBundle": letters.Schedule("a", "0 * * * *", Letter{}, tundish.ID("x")),
		`"a b c"`:                 letters.Schedule("a", "a b c", Letter{}),
		"cannot be written":       tundish.Define[any]("letters").Schedule("a", "0 * * * *", func() {}),
	} {
		c := tundishtest.Open(t)
		c.Handle(letters.Work(tundish.Settings{Rate: "1/s", Schedules: []tundish.Schedule{one}}, func(context.Context, Letter) error { return nil }))
		if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run: %v: want %q in it", err, want)
		}
	}
}
