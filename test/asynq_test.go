package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	hibiken "github.com/hibiken/asynq"
	"golang.org/x/time/rate"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/workers/asynq"
)

// asynqServer is a program: this one, started again. Its value is an asynqPlan.
const asynqServer = "TUNDISH_TEST_ASYNQ_SERVER"

func init() { mains[asynqServer] = asynqMain }

// asynqPlan says what an asynq server does.
type asynqPlan struct {
	Tasks    string // URL of the Redis of asynq
	Tundish  string // URL of the Redis of Tundish; "": the server has no middleware, and the limiter of asynq's wiki
	Receiver string // which each task calls
	Workers  int
	Rate     float64 // of that limiter
}

const asynqQueue = "default"

// asynqMain runs an asynq server until SIGTERM. Its handler calls the receiver as a webhook would.
func asynqMain(value string) error {
	var p asynqPlan
	if err := json.Unmarshal([]byte(value), &p); err != nil {
		return err
	}
	tasks, err := redisconn.Connect(p.Tasks, redisconn.Options{})
	if err != nil {
		return err
	}
	config := hibiken.Config{Concurrency: p.Workers, TaskCheckInterval: 50 * time.Millisecond, ShutdownTimeout: 10 * time.Second, LogLevel: hibiken.ErrorLevel}
	// A task whose server died is tried again after 15 to 45 s by default, and that only begins when its lease has run out.
	config.RetryDelayFunc = func(int, error, *hibiken.Task) time.Duration { return time.Second }
	mux := hibiken.NewServeMux()
	handler := hibiken.HandlerFunc(func(ctx context.Context, task *hibiken.Task) error { return callReceiver(ctx, p.Receiver, task) })
	if p.Tundish == "" {
		handler = wikiLimiter(&config, p.Rate, handler)
	} else {
		conn, err := redisconn.Connect(p.Tundish, redisconn.Options{})
		if err != nil {
			return err
		}
		leases, err := dispatcher.NewLeases(dispatcher.LeasesConfig{Redis: conn})
		if err != nil {
			return err
		}
		mux.Use(asynq.Middleware(leases))
	}
	mux.Handle("email:", handler)
	server := hibiken.NewServerFromRedisClient(tasks, config)
	if err := server.Start(mux); err != nil {
		return err
	}
	fmt.Println("ready")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	<-ctx.Done()
	server.Shutdown()
	os.Exit(0)
	return nil
}

func callReceiver(ctx context.Context, url string, task *hibiken.Task) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set(checker.IDHeader, task.Headers()[asynq.HeaderJob])
	request.Header.Set(checker.AttemptHeader, task.Headers()[asynq.HeaderAttempt])
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	switch response.StatusCode {
	case http.StatusGone:
		return fmt.Errorf("the receiver is gone: %w", hibiken.SkipRetry)
	case http.StatusConflict:
		return fmt.Errorf("the receiver has it: %w", hibiken.RevokeTask)
	case http.StatusServiceUnavailable:
		return errors.New("the receiver is busy")
	}
	return nil
}

// errRateLimit is the error of the limiter in asynq's wiki, page "Rate Limiting".
type errRateLimit struct{ retryIn time.Duration }

func (e *errRateLimit) Error() string { return "rate limited" }

// wikiLimiter limits a handler as that page does: a token bucket in each process, checked when the task runs. A task that is refused is
// retried after a random time. The page has a burst of three times the rate, and waits of up to 10 s.
func wikiLimiter(config *hibiken.Config, perSecond float64, next hibiken.HandlerFunc) hibiken.HandlerFunc {
	limiter := rate.NewLimiter(rate.Limit(perSecond), int(3*perSecond))
	config.IsFailure = func(err error) bool {
		var limited *errRateLimit
		return !errors.As(err, &limited)
	}
	config.RetryDelayFunc = func(n int, err error, task *hibiken.Task) time.Duration {
		var limited *errRateLimit
		if errors.As(err, &limited) {
			return limited.retryIn
		}
		return hibiken.DefaultRetryDelayFunc(n, err, task)
	}
	return func(ctx context.Context, task *hibiken.Task) error {
		if !limiter.Allow() {
			return &errRateLimit{retryIn: rand.N(10 * time.Second)}
		}
		return next(ctx, task)
	}
}

// startAsynq starts an asynq server and waits until it takes tasks.
func startAsynq(t *testing.T, p asynqPlan) *process {
	t.Helper()
	value, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	proc := &process{cmd: exec.Command(self), output: &lockedBuffer{}, done: make(chan struct{})}
	proc.cmd.Env = append(os.Environ(), asynqServer+"="+string(value))
	proc.cmd.Stdout, proc.cmd.Stderr = proc.output, proc.output
	if err := proc.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(proc.done)
		_ = proc.cmd.Wait() // how it ended is in its output
	}()
	t.Cleanup(func() {
		proc.kill()
		if t.Failed() {
			t.Logf("asynq server:\n%s", proc.output)
		}
	})
	await(t, 10*time.Second, "the asynq server is ready", func() bool { return proc.output.String() != "" })
	return proc
}

// asynqKeys are the keys of [buckets.asynq] of these tests.
func asynqKeys(url string) string {
	return fmt.Sprintf("queue = %q\ntask = \"email:send\"\nredis_url = %q\n", asynqQueue, url)
}

// atSoak is n, or fewer where tests shall be quick.
func atSoak(n, quick int) int {
	if redistest.Soak {
		return n
	}
	return quick
}

// TestAsynqIsEven has two asynq servers of 50 workers each behind a bucket of 100/s. In a soak the same load then goes through asynq alone, with
// the limiter of its wiki at half the rate in each process.
func TestAsynqIsEven(t *testing.T) {
	const perSecond, servers, workers = 100, 2, 50
	tasks := atSoak(3000, 400)
	redis := redistest.Start(t)
	s := start(t, redis, plan{rate: perSecond, dispatchers: 2, asynq: asynqKeys(redis.URL())})
	for range servers {
		startAsynq(t, asynqPlan{Tasks: redis.URL(), Tundish: redis.URL(), Receiver: s.receiver.URL, Workers: workers})
	}
	s.post("even", tasks)
	ours := s.awaitDelivered(time.Minute)
	t.Logf("Tundish and asynq: %s; most in 1s %d, most in 100ms %d", ours, ours.MostIn(time.Second), ours.MostIn(100*time.Millisecond))
	if redistest.Soak { // it is there for its figures
		asynqAlone(t, servers, workers, perSecond/servers, tasks)
	}

	if err := ours.Err(); err != nil || len(ours.Duplicated) > 0 {
		t.Errorf("%v; %d jobs ran more than once", err, len(ours.Duplicated))
	}
	// An asynq server polls every 25 to 75 ms when its queue is empty, which spreads the starts. The rest is for a busy machine.
	const spread = 200 * time.Millisecond
	for _, window := range []time.Duration{100 * time.Millisecond, time.Second} {
		most := int((window+spread).Seconds()*perSecond) + 2
		if got := ours.MostIn(window); got > most {
			t.Errorf("%d tasks started in %s, want at most %d", got, window, most)
		}
	}
}

// asynqAlone runs tasks through asynq servers that each limit themselves to a rate.
func asynqAlone(t *testing.T, servers, workers, perSecond, tasks int) {
	t.Helper()
	alone := redistest.Start(t)
	client := hibiken.NewClientFromRedisClient(alone.Client())
	theirs := &checker.History{}
	receiver := serveHistory(t, theirs)
	for range servers {
		startAsynq(t, asynqPlan{Tasks: alone.URL(), Receiver: receiver, Workers: workers, Rate: float64(perSecond)})
	}
	for i := range tasks {
		id := fmt.Sprint("alone-", i)
		headers := map[string]string{asynq.HeaderJob: id, asynq.HeaderAttempt: "1"}
		if _, err := client.Enqueue(hibiken.NewTaskWithHeaders("email:send", nil, headers), hibiken.Queue(asynqQueue)); err != nil {
			t.Fatal(err)
		}
		theirs.Admitted(id, time.Now())
	}
	await(t, 3*time.Minute, "asynq alone has run all tasks", func() bool { return len(theirs.Check().Lost) == 0 })
	r := theirs.Check()
	t.Logf("asynq with the limiter of its wiki: %s; most in 1s %d, most in 100ms %d", r, r.MostIn(time.Second), r.MostIn(100*time.Millisecond))
}

// serveHistory is a receiver that notes what it gets. It returns its URL.
func serveHistory(t *testing.T, history *checker.History) string {
	t.Helper()
	server := httptest.NewServer(&checker.Receiver{History: history})
	t.Cleanup(server.Close)
	return server.URL
}
