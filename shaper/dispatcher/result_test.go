package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// asking is a bucket whose downstream answers as the payload says, and two processes that enqueue.
type asking struct {
	redis *redis.Client
	here  *producer.Client
	there *producer.Client
}

// obey is a downstream. The answer has the payload as its body.
func obey(_ context.Context, a *shaper.Attempt) shaper.Outcome {
	if err := a.Depart(); err != nil {
		return shaper.Returned("late")
	}
	answer := func(o shaper.Outcome, status int) shaper.Outcome {
		o.Status = status
		if a.AnswerBytes > 0 {
			body := a.Payload[:min(int64(len(a.Payload)), a.AnswerBytes)]
			o.Answer = &shaper.Answer{Status: status, Headers: map[string][]string{"X-Try": {fmt.Sprint(a.Number)}}, Body: body, Cut: len(body) < len(a.Payload)}
		}
		return o
	}
	switch text := string(a.Payload); {
	case strings.HasPrefix(text, "dead"):
		return answer(shaper.Dead("http_404", "not found"), 404)
	case text == "retry" && a.Number == 1:
		return answer(shaper.Retry("http_500", "fails"), 500)
	case text == "unreachable":
		return shaper.Retry("connect", "connection refused")
	case text == "held for 50ms" && a.Number == 1:
		return answer(shaper.Outcome{Result: shaper.ResultHeld, Reason: "http_429", RetryAfter: 50 * time.Millisecond, Signal: shaper.SignalThrottled}, 429)
	case text == "held for 10m":
		return answer(shaper.Outcome{Result: shaper.ResultHeld, Reason: "http_429", RetryAfter: 10 * time.Minute, Signal: shaper.SignalThrottled}, 429)
	case text == "silent":
		return shaper.Done(0)
	}
	return answer(shaper.Done(200), 200)
}

func ask(t *testing.T, change func(b *shaper.Bucket)) *asking {
	t.Helper()
	server := redistest.Start(t)
	b := rig.Bucket("b", 1000)
	b.Retry.MaxAttempts, b.Retry.MinBackoff, b.Retry.MaxBackoff = 2, time.Millisecond, time.Millisecond
	b.Results.MaxBody = 30
	if change != nil {
		change(&b)
	}
	a := &asking{redis: server.Client()}
	for _, c := range []**producer.Client{&a.here, &a.there} {
		made := must.Get(producer.New(producer.Config{Timeout: rig.Patience, Redis: server.Client(), Buckets: []shaper.Bucket{b}}))(t)
		t.Cleanup(made.Close)
		*c = made
	}
	d := must.Get(New(Config{Timeout: rig.Patience, Redis: server.Client(), Buckets: []shaper.Bucket{b}, Workers: map[string]shaper.Worker{"b": shaper.WorkerFunc(obey)}}))(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return a
}

// describe says in short what came of a job.
func describe(r producer.Result) string {
	text := fmt.Sprint(r.State)
	for _, s := range []string{r.Cause, r.Reason} {
		if s != "" {
			text += " " + s
		}
	}
	if r.Answer == nil {
		return text
	}
	text += fmt.Sprintf(" %d %v %q", r.Answer.Status, r.Answer.Headers["X-Try"], r.Answer.Body)
	if r.Answer.Cut {
		text += " cut"
	}
	return text
}

func TestDo(t *testing.T) {
	t.Parallel()
	a := ask(t, nil)
	for name, tt := range map[string]struct {
		job  shaper.Job
		want string
	}{
		"delivered":               {shaper.Job{Payload: []byte("{}")}, `done 200 [1] "{}"`},
		"no payload":              {shaper.Job{}, `done 200 [1] ""`},
		"dead":                    {shaper.Job{Payload: []byte("dead")}, `dead permanent http_404 404 [1] "dead"`},
		"dead with two lines":     {shaper.Job{Payload: []byte("dead\n\x00\xff")}, `dead permanent http_404 404 [1] "dead\n\x00\xff"`},
		"the second time":         {shaper.Job{Payload: []byte("retry")}, `done 200 [2] "retry"`},
		"too long":                {shaper.Job{Payload: []byte(strings.Repeat("x", 31))}, `done 200 [1] "` + strings.Repeat("x", 30) + `" cut`},
		"not reached":             {shaper.Job{Payload: []byte("unreachable")}, "dead attempts-exhausted connect"},
		"a worker without answer": {shaper.Job{Payload: []byte("silent")}, "done"},
		"held":                    {shaper.Job{Payload: []byte("held for 50ms")}, `done 200 [2] "held for 50ms"`},
		"once, dead":              {shaper.Job{Once: true, Payload: []byte("dead")}, `dropped http_404 404 [1] "dead"`},
		"once, fails":             {shaper.Job{Once: true, Payload: []byte("retry")}, `dropped http_500 500 [1] "retry"`},
		"once, not reached":       {shaper.Job{Once: true, Payload: []byte("unreachable")}, "dropped connect"},
		"once, held":              {shaper.Job{Once: true, ExpiresIn: time.Hour, Payload: []byte("held for 50ms")}, `done 200 [2] "held for 50ms"`},
	} {
		job := tt.job
		job.Bucket = "b"
		result, err := a.here.Do(t.Context(), job)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := describe(result); got != tt.want || result.ID == "" || result.Bucket != "b" || result.Enqueued.IsZero() {
			t.Errorf("%s: %s, want %s (%+v)", name, got, tt.want, result)
		}
	}
	// Jobs that are sent once leave no dead letter.
	must.Equal(t, a.redis.ZCard(t.Context(), store.BucketKeys("b").Dead()).Val(), 3, "dead letters")
	// A hold that the job does not live to see the end of is its result.
	result, err := a.here.Do(t.Context(), shaper.Job{Bucket: "b", Once: true, ExpiresIn: time.Minute, Payload: []byte("held for 10m")})
	if err != nil || describe(result) != `dropped http_429 429 [1] "held for 10m"` {
		t.Errorf("%s, %v", describe(result), err)
	}
}

// Where the bucket keeps no results, one that the waiting process has read is dropped before one that nobody has read, although it came later.
// It can be read again until then.
func TestResultThatWasReadIsDroppedFirst(t *testing.T) {
	t.Parallel()
	a := ask(t, nil)
	receipt, unread, err := a.there.Await(t.Context(), shaper.Job{Bucket: "b", ID: "unread"})
	if err != nil || receipt.Refusal != nil {
		t.Fatal(receipt, err)
	}
	defer unread.Stop()
	for _, err = a.here.Result(t.Context(), "b", "unread"); err != nil; _, err = a.here.Result(t.Context(), "b", "unread") {
		if !errors.Is(err, shaper.ErrNotEnded) {
			t.Fatal(err)
		}
	}
	must.Get(a.here.Do(t.Context(), shaper.Job{Bucket: "b", ID: "read"}))(t)
	if ids := a.redis.ZRange(t.Context(), store.BucketKeys("b").ResultEnds(), 0, -1).Val(); !slices.Equal(ids, []string{"read", "unread"}) {
		t.Errorf("dropped in the order %v", ids)
	}
	for _, id := range []string{"read", "unread"} {
		if result, err := a.there.Do(t.Context(), shaper.Job{Bucket: "b", ID: id}); err != nil || result.State != shaper.StateDone {
			t.Errorf("%s again: %+v, %v", id, result, err)
		}
	}
}

func TestDoOfARefusedJob(t *testing.T) {
	t.Parallel()
	a := ask(t, func(b *shaper.Bucket) { b.ScheduledCapacity = 0 })
	result, err := a.here.Do(t.Context(), shaper.Job{Bucket: "b", Delay: time.Hour})
	refused, ok := errors.AsType[*producer.RefusedError](err)
	if !ok || refused.Receipt.Refusal.Reason != shaper.ReasonScheduledFull || result.ID == "" || result.ID != refused.Receipt.ID {
		t.Errorf("%+v, %v", result, err)
	}
	if _, err := a.here.Do(t.Context(), shaper.Job{Bucket: "none"}); !errors.Is(err, shaper.ErrUnknownBucket) {
		t.Error(err)
	}
}

// Two processes wait for the same job. A third one cancels one, for which the first waits.
func TestResultsElsewhere(t *testing.T) {
	t.Parallel()
	a := ask(t, nil)
	job := shaper.Job{Bucket: "b", ID: "one", Delay: 300 * time.Millisecond, Payload: []byte("same")}
	results := make(chan string, 2)
	for _, c := range []*producer.Client{a.here, a.there} {
		go func() {
			result, err := c.Do(t.Context(), job)
			results <- fmt.Sprint(describe(result), err)
		}()
	}
	for range 2 {
		if got := <-results; got != `done 200 [1] "same"<nil>` {
			t.Error(got)
		}
	}
	// Again, as it is done: there is its answer still.
	must.Equal(t, describe(must.Get(a.there.Do(t.Context(), job))(t)), `done 200 [1] "same"`, "describe")

	receipt, awaited, err := a.here.Await(t.Context(), shaper.Job{Bucket: "b", Delay: time.Hour})
	must.OK(t, err)
	defer awaited.Stop()
	if _, err := a.here.Result(t.Context(), "b", receipt.ID); !errors.Is(err, shaper.ErrNotEnded) {
		t.Errorf("of a job that waits: %v", err)
	}
	must.Get(a.there.Cancel(t.Context(), "b", receipt.ID))(t)
	if _, err := awaited.Result(t.Context()); !errors.Is(err, shaper.ErrNoResult) {
		t.Errorf("of a cancelled job: %v", err)
	}
	if _, err := a.here.Result(t.Context(), "b", "unknown"); !errors.Is(err, shaper.ErrNotFound) {
		t.Errorf("of an unknown job: %v", err)
	}
}

func TestWaitThatEnds(t *testing.T) {
	t.Parallel()
	a := ask(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	gaveUp := errors.New("gave up")
	receipt, awaited, err := a.here.Await(ctx, shaper.Job{Bucket: "b", Delay: time.Hour})
	must.OK(t, err)
	cancel(gaveUp)
	if _, err := awaited.Result(ctx); !errors.Is(err, gaveUp) {
		t.Error(err)
	}
	awaited.Stop()
	if len(a.here.Waiting()) != 0 {
		t.Errorf("waits for %v", a.here.Waiting())
	}
	if info, err := a.here.Job(t.Context(), "b", receipt.ID); err != nil || info.State != shaper.StateScheduled {
		t.Errorf("%+v, %v", info, err)
	}
	// A client that closes ends the waits of others.
	_, awaited, err = a.there.Await(t.Context(), shaper.Job{Bucket: "b", Delay: time.Hour})
	must.OK(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := awaited.Result(t.Context())
		ended <- err
	}()
	a.there.Close()
	if err := <-ended; !errors.Is(err, shaper.ErrClosed) {
		t.Error(err)
	}
}

// What nobody waits for is kept, if the bucket keeps results.
func TestKeptResults(t *testing.T) {
	t.Parallel()
	a := ask(t, func(b *shaper.Bucket) { b.Results.Retention, b.Results.Max = time.Hour, 2 })
	want := []string{"none", `dead permanent http_404 404 [1] "dead"`, `done 200 [1] "x"`}
	ids := []string{"first", "second", "third"}
	for n, payload := range []string{"y", "dead", "x"} {
		must.Get(a.here.Do(t.Context(), shaper.Job{Bucket: "b", ID: ids[n] + "-awaited", Payload: []byte(payload)}))(t)
		must.Get(a.here.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: ids[n], Payload: []byte(payload)}))(t)
		for result, err := a.there.Result(t.Context(), "b", ids[n]); err != nil; result, err = a.there.Result(t.Context(), "b", ids[n]) {
			if !errors.Is(err, shaper.ErrNotEnded) {
				t.Fatalf("%+v, %v", result, err)
			}
		}
	}
	var got []string
	for _, id := range ids {
		result, err := a.there.Result(t.Context(), "b", id)
		if errors.Is(err, shaper.ErrNoResult) {
			got = append(got, "none")
		} else {
			got = append(got, describe(result))
		}
	}
	want[1] = "none" // the one that was awaited came behind it
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
