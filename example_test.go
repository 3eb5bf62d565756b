package tundish_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/tundish-io/tundish"
	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/tundishtest"
)

// redisURL is that of your Redis, such as "redis://localhost:6379/0". Here it is one inside the process.
var redisURL string

func TestMain(m *testing.M) {
	store, err := tundishtest.StartStore()
	if err != nil {
		panic(err)
	}
	defer store.Close()
	redisURL = store.URL()
	m.Run()
}

type Letter struct{ To string }

// A program that puts letters in and sends twenty a second, however many programs do the same.
func Example() {
	letters := tundish.Define[Letter]("letters")
	t, err := tundish.Open(redisURL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer t.Close()
	ctx, stop := context.WithCancel(context.Background())
	t.Handle(letters.Work(tundish.Settings{Rate: "20/s"}, func(_ context.Context, l Letter) error {
		fmt.Println("dear", l.To)
		stop() // a real program works until it is told to stop
		return nil
	}))
	if _, err := letters.Enqueue(ctx, t, Letter{To: "ada"}); err != nil {
		fmt.Println(err)
		return
	}
	if err := t.Run(ctx); err != nil {
		fmt.Println(err)
	}

	// Output: dear ada
}

func ExampleOpen() {
	t, err := tundish.Open("redis+cluster://node1:6379,node2:6379")
	if err != nil { // the URL is wrong; nothing was dialled yet
		fmt.Println(err)
		return
	}
	fmt.Println(t.Close())

	// Output: <nil>
}

func ExampleNew() {
	t, err := tundish.New(tundish.Config{
		URL: redisURL,
		Log: slog.New(slog.DiscardHandler),
		Dispatcher: func(d *dispatcher.Config) { // any setting of a package below
			d.Concurrency, d.ShutdownTimeout = 1000, 5*time.Second
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(t.Close())

	// Output: <nil>
}

// A name and a type; the settings are in Redis.
func ExampleDefine() {
	letters := tundish.Define[Letter]("letters")
	raw := tundish.Define[[]byte]("uploads") // payloads as they are
	fmt.Println(letters.Name(), raw.Name())

	// Output: letters uploads
}

func ExampleBucket_Enqueue() {
	letters := tundish.Define[Letter]("enqueued")
	t, _ := tundish.Open(redisURL)
	defer t.Close()
	t.Handle(letters.Work(tundish.Settings{Rate: "1/h", Capacity: 1}, func(context.Context, Letter) error { return nil }))

	receipt, err := letters.Enqueue(context.Background(), t, Letter{To: "ada"}, tundish.ID("letter-1"))
	fmt.Println(receipt.ID, receipt.State, err)

	receipt, err = letters.Enqueue(context.Background(), t, Letter{To: "ada"}, tundish.ID("letter-1"))
	fmt.Println(receipt.ID, receipt.Duplicate, err)

	_, err = letters.Enqueue(context.Background(), t, Letter{To: "bob"})
	if refused, ok := errors.AsType[*tundish.RefusedError](err); ok {
		fmt.Println("refused:", refused.Receipt.Refusal.Reason)
	}

	// Output:
	// letter-1 queued <nil>
	// letter-1 true <nil>
	// refused: bucket-full
}

// Many jobs at once, of any buckets, share round trips.
func ExampleClient_Enqueue() {
	letters := tundish.Define[Letter]("many")
	t, _ := tundish.Open(redisURL)
	defer t.Close()
	t.Handle(letters.Work(tundish.Settings{Rate: "1/h"}, func(context.Context, Letter) error { return nil }))

	var jobs []tundish.Job
	for _, name := range []string{"ada", "bob", "cy"} {
		job, err := letters.Job(Letter{To: name}, tundish.ID(name))
		if err != nil {
			fmt.Println(err)
			return
		}
		jobs = append(jobs, job)
	}
	receipts, err := t.Enqueue(context.Background(), jobs...)
	if err != nil { // not known whether they are in: enqueue the same ids again
		fmt.Println(err)
		return
	}
	for _, r := range receipts {
		fmt.Println(r.ID, r.Refusal == nil)
	}

	// Output:
	// ada true
	// bob true
	// cy true
}

// An option is any function that changes the job.
func ExampleOption() {
	expires := func(d time.Duration) tundish.Option {
		return func(j *tundish.Job) { j.ExpiresIn = d }
	}
	job, _ := tundish.Define[Letter]("letters").Job(Letter{To: "ada"}, tundish.Flow("customer-7"),
		tundish.In(time.Hour), tundish.Priority(shaper.PriorityHigh), expires(2*time.Hour))
	fmt.Println(job.Flow, job.Delay, job.Priority, job.ExpiresIn)

	// Output: customer-7 1h0m0s high 2h0m0s
}

func ExampleAt() {
	morning := time.Date(2027, 1, 4, 9, 0, 0, 0, time.UTC)
	job, _ := tundish.Define[Letter]("letters").Job(Letter{To: "ada"}, tundish.At(morning))
	fmt.Println(job.NotBefore)

	// Output: 2027-01-04 09:00:00 +0000 UTC
}

// What an error of the function says of the job.
func ExampleBucket_Work() {
	call := func(context.Context, Letter) (status int, err error) { return 429, nil }
	letters := tundish.Define[Letter]("answers")
	handler := letters.Work(tundish.Settings{Rate: "20/s", Quotas: []string{"2000/d"}, MaxAttempts: 5}, func(ctx context.Context, l Letter) error {
		status, err := call(ctx, l)
		switch {
		case err != nil:
			return err // again later, with waits that grow
		case status == 429:
			return tundish.Hold(30*time.Second, errors.New("asked for less")) // all wait; no attempt is counted
		case status == 503:
			return tundish.RetryIn(time.Minute, errors.New("down"))
		case status == 404:
			return tundish.Skip(errors.New("nobody there")) // over, and no dead letter
		case status >= 400:
			return tundish.Dead(fmt.Errorf("status %d", status)) // an operator looks
		}
		return nil
	})
	t, _ := tundish.Open(redisURL)
	defer t.Close()
	t.Handle(handler)

	// Output:
}

func ExampleBucket_Schedule() {
	letters := tundish.Define[Letter]("digests")
	night := letters.Schedule("nightly", "0 2 * * *", Letter{To: "all"})
	night.Timezone = "Europe/Paris"
	t, _ := tundish.Open(redisURL)
	defer t.Close()
	t.Handle(letters.Work(tundish.Settings{Rate: "20/s", Schedules: []tundish.Schedule{night}}, func(context.Context, Letter) error { return nil }))

	// Output:
}

func ExampleAttemptOf() {
	letters := tundish.Define[Letter]("attempts")
	t, _ := tundish.Open(redisURL)
	defer t.Close()
	ctx, stop := context.WithCancel(context.Background())
	t.Handle(letters.Work(tundish.Settings{Rate: "20/s"}, func(ctx context.Context, l Letter) error {
		a := tundish.AttemptOf(ctx)
		fmt.Printf("attempt %d of %s for %s\n", a.Number, a.ID, l.To)
		stop()
		return nil
	}))
	_, _ = letters.Enqueue(ctx, t, Letter{To: "ada"}, tundish.ID("letter-1"))
	_ = t.Run(ctx)

	// Output: attempt 1 of letter-1 for ada
}

// A worker of another kind, and a bucket with all its settings.
func ExampleDeliver() {
	bucket := shaper.DefaultBucket()
	bucket.Name = "printed"
	bucket.Rate, _ = admission.ParseRate("20/s")
	ctx, stop := context.WithCancel(context.Background())
	printer := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		fmt.Println(string(a.Payload))
		stop()
		return shaper.Done(0)
	})
	t, _ := tundish.Open(redisURL)
	defer t.Close()
	t.Handle(tundish.Deliver(bucket, printer))
	_, _ = t.Enqueue(ctx, tundish.Job{Bucket: "printed", Payload: []byte("dear reader")})
	_ = t.Run(ctx)

	// Output: dear reader
}

// A caller paces its own calls at a rate that all programs share.
func ExampleLimit_Wait() {
	t, _ := tundish.Open(redisURL)
	defer t.Close()
	api, err := t.Limit("vendor-api", "1000/s", tundish.Evenly)
	if err != nil {
		fmt.Println(err)
		return
	}
	for n := range 3 {
		if err := api.Wait(context.Background(), ""); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("call", n)
	}

	// Output:
	// call 0
	// call 1
	// call 2
}

func ExampleLimit_Allow() {
	t, _ := tundish.Open(redisURL)
	defer t.Close()
	logins, err := t.Limit("logins", "2/h")
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		decision, err := logins.Allow(context.Background(), "ada")
		if err != nil { // Redis is down: nothing was decided
			fmt.Println(err)
			return
		}
		fmt.Println(decision.Allowed, decision.Remaining)
	}

	// Output:
	// true 1
	// true 0
	// false 0
}

func ExampleLimit_Middleware() {
	t, _ := tundish.Open(redisURL)
	defer t.Close()
	perClient, err := t.Limit("requests", "1/h")
	if err != nil {
		fmt.Println(err)
		return
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	server := httptest.NewServer(perClient.Middleware(hello))
	defer server.Close()
	for range 2 {
		answer, err := http.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = answer.Body.Close()
		fmt.Println(answer.StatusCode)
	}

	// Output:
	// 200
	// 429
}

// Looking at a job, taking it back, and waiting for its result are of package producer.
func ExampleClient_Producer() {
	letters := tundish.Define[Letter]("looked-at")
	t, _ := tundish.Open(redisURL)
	defer t.Close()
	t.Handle(letters.Work(tundish.Settings{Rate: "1/h"}, func(context.Context, Letter) error { return nil }))
	ctx := context.Background()
	_, _ = letters.Enqueue(ctx, t, Letter{To: "ada"}, tundish.ID("letter-1"))

	job, err := t.Producer().Job(ctx, letters.Name(), "letter-1")
	fmt.Println(job.State, err)
	state, err := t.Producer().Cancel(ctx, letters.Name(), "letter-1")
	fmt.Println(state, err)

	// Output:
	// queued <nil>
	// cancelled <nil>
}

// Pausing, changing and redriving are of package operator.
func ExampleClient_Redis() {
	letters := tundish.Define[Letter]("paused")
	t, _ := tundish.Open(redisURL)
	defer t.Close()
	t.Handle(letters.Work(tundish.Settings{Rate: "1/h"}, func(context.Context, Letter) error { return nil }))
	ctx := context.Background()
	_, _ = letters.Enqueue(ctx, t, Letter{To: "ada"})

	op, err := operator.New(operator.Config{Redis: t.Redis()})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(op.As("anna").Bucket(letters.Name()).Pause(ctx, "the receiver is down"))
	info, err := op.Bucket(letters.Name()).Info(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(info.Waiting, "waits:", info.Pause.Reason)

	// Output:
	// <nil>
	// 1 waits: the receiver is down
}

// Behind proxies, and with a cost, the middleware of package httplimit asks the same limit.
func ExampleClient_Limiter() {
	t, _ := tundish.Open(redisURL)
	defer t.Close()
	if _, err := t.Limit("uploads", "10/m"); err != nil {
		fmt.Println(err)
		return
	}
	limited := httplimit.Middleware(t.Limiter(), httplimit.Policy{
		Limit:   "uploads",
		Proxies: httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		Cost:    func(r *http.Request) int64 { return 1 + r.ContentLength/1_000_000 },
	})
	http.Handle("/uploads", limited(http.NotFoundHandler()))

	// Output:
}
