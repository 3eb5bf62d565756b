package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
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

// AsynqUnder is a bucket in front of asynq servers of two processes, with a Redis of its own for asynq.
type AsynqUnder struct {
	*System

	Tasks       *redistest.Server
	Servers     []*Process
	Plan        AsynqPlan
	MaxInFlight int64
	most        int64        // leases at a time, as sampled
	Doomed      atomic.Value // path at the receiver of the server that is to die: requests there get no response
	Caught      atomic.Int64 // the number of requests there
}

// StartAsynqUnder starts two asynq servers, in processes of their own, behind a bucket with the given lease. A handler takes hold.
func StartAsynqUnder(t *testing.T, lease time.Duration, hold time.Duration) *AsynqUnder {
	t.Helper()
	const perSecond, maxInFlight = 200, 100
	tasks := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	u := &AsynqUnder{Tasks: tasks, MaxInFlight: maxInFlight}
	respond := func(_ http.ResponseWriter, r *http.Request, _ string, _ int) {
		answer := time.After(hold)
		if r.URL.Path == u.Doomed.Load() {
			u.Caught.Add(1)
			answer = nil
		}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}
	u.System = Start(t, redistest.Start(t), Plan{
		Rate: perSecond, Dispatchers: 2, Lease: lease, MaxInFlight: maxInFlight, Respond: respond, Asynq: AsynqKeys(tasks.URL()),
	})
	u.Plan = AsynqPlan{Tasks: tasks.URL(), Tundish: u.Redis.URL(), Receiver: u.Receiver.URL, Workers: 50}
	for i := range 2 {
		u.Servers = append(u.Servers, u.StartServer(PathOf(i)))
	}
	return u
}

// PathOf is the path at the receiver that a server calls, by its number.
func PathOf(server int) string { return fmt.Sprint("/", server) }

// StartServer starts an asynq server whose handlers call that path of the receiver.
func (u *AsynqUnder) StartServer(path string) *Process {
	u.T.Helper()
	p := u.Plan
	p.Receiver += path
	return StartAsynq(u.T, p)
}

// AwaitMore waits until n more tasks have started, and checks the number of leases.
func (u *AsynqUnder) AwaitMore(n int) {
	u.T.Helper()
	before := u.History.Check().Delivered
	Await(u.T, time.Minute, fmt.Sprintf("%d more tasks start", n), func() bool {
		u.Sample()
		return u.History.Check().Delivered >= before+n || len(u.History.Check().Lost) == 0
	})
}

// Sample records the most tasks that asynq has had at once.
func (u *AsynqUnder) Sample() {
	u.T.Helper()
	leases, err := u.Inspector.ZCard(u.T.Context(), u.Key("leases")).Result()
	if err != nil {
		u.T.Fatal(err)
	}
	if u.most = max(u.most, leases); leases > u.MaxInFlight {
		u.T.Errorf("%d leases, more than max_in_flight (%d)", leases, u.MaxInFlight)
	}
}

// End waits for all jobs, and requires that none is lost, dead or left over.
func (u *AsynqUnder) End() (duplicates int) {
	u.T.Helper()
	u.AwaitDelivered(2 * time.Minute)
	Await(u.T, time.Minute, "no job is left", func() bool { u.Sample(); return u.Unfinished() == 0 })
	r := u.History.Check()
	u.T.Logf("%s; %d extra runs; at most %d leases of %d", r, r.Extra, u.most, u.MaxInFlight)
	if err := r.Err(); err != nil {
		u.T.Error(err)
	}
	if dead, err := u.Inspector.ZCard(u.T.Context(), u.Key("dead")).Result(); dead != 0 || err != nil {
		u.T.Errorf("%d dead letters, %v", dead, err)
	}
	return r.Extra
}

// asynqServer is a program: this one, started again. Its value is an asynqPlan.
const asynqServer = "TUNDISH_TEST_ASYNQ_SERVER"

func init() { Mains[asynqServer] = asynqMain }

// AsynqPlan describes an asynq server.
type AsynqPlan struct {
	Tasks    string // URL of the Redis of asynq
	Tundish  string // URL of the Redis of Tundish; "": the server has no middleware, and the limiter of asynq's wiki
	Receiver string // which each task calls
	Workers  int
	Rate     float64 // of that limiter
}

// AsynqQueue is the queue of asynq that the bucket hands its jobs to.
const AsynqQueue = "default"

// asynqMain runs an asynq server until SIGTERM. Its handler calls the receiver as a webhook would.
func asynqMain(value string) error {
	var p AsynqPlan
	if err := json.Unmarshal([]byte(value), &p); err != nil {
		return err
	}
	tasks, err := redisconn.Connect(p.Tasks, redisconn.Options{})
	if err != nil {
		return err
	}
	config := hibiken.Config{Concurrency: p.Workers, TaskCheckInterval: 50 * time.Millisecond, ShutdownTimeout: 10 * time.Second, LogLevel: hibiken.ErrorLevel}
	// A task whose server died is retried after 15 to 45 s by default, which only begins when its lease has run out.
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

// StartAsynq starts an asynq server and waits until it accepts tasks.
func StartAsynq(t *testing.T, p AsynqPlan) *Process {
	t.Helper()
	value, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	proc := &Process{Cmd: exec.Command(self), Output: &LockedBuffer{}, Done: make(chan struct{})}
	proc.Cmd.Env = append(os.Environ(), asynqServer+"="+string(value))
	proc.Cmd.Stdout, proc.Cmd.Stderr = proc.Output, proc.Output
	if err := proc.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(proc.Done)
		_ = proc.Cmd.Wait() // how it ended is in its output
	}()
	t.Cleanup(func() {
		proc.Kill()
		if t.Failed() {
			t.Logf("asynq server:\n%s", proc.Output)
		}
	})
	Await(t, 10*time.Second, "the asynq server is ready", func() bool { return proc.Output.String() != "" })
	return proc
}

// AsynqKeys are the keys of [buckets.asynq] of these tests.
func AsynqKeys(url string) string {
	return fmt.Sprintf("queue = %q\ntask = \"email:send\"\nredis_url = %q\n", AsynqQueue, url)
}
