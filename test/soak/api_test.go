//go:build soak

package soak

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/test/harness"
)

// TestAPI: three dispatchers call an API with OAuth that answers 429 to what is above its quotas, one of 10 s and one of a day. No call
// is above, every call is answered as long as the day's quota lasts, nothing leaves when it is used up, and each dispatcher fetches one
// token at most.
func TestAPI(t *testing.T) {
	const (
		rate, calls, more = 200, 2000, 100
		short, window     = 1000, 10 * time.Second
		long, day         = 2050, 24 * time.Hour // 50 more than the calls: a permit that is given back counts
	)
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		tokens := &tokenServer{}
		auth := httptest.NewServer(tokens)
		t.Cleanup(auth.Close)
		api := &strictAPI{quotas: []apiQuota{{short, window}, {long, day}}}
		s := start(t, redistest.Start(t), harness.Plan{
			Rate: rate, Dispatchers: 3, Bucket: fmt.Sprintf("quotas = [\"%d/%s\", \"%d/d\"]", short, window, long),
			API: fmt.Sprintf("serve_proxy = true\nauth.oauth2 = {token_url = %q, client_id = \"id\", client_secret = \"s\"}", auth.URL), Respond: api.respond,
		})
		client, op := s.library()

		// All ways in at once.
		ways := []func(first, n int){
			s.callByHTTP, func(first, n int) { callByLibrary(t, client, s.History.Admitted, "call", first, n) }, s.callByProxy,
		}
		var sending sync.WaitGroup
		for i, way := range ways {
			first := i * calls / len(ways)
			sending.Go(func() { way(first, (i+1)*calls/len(ways)-first) })
		}
		sending.Wait()
		harness.Await(t, 60*time.Second, "all calls are answered", func() bool { return s.Unfinished() == 0 })
		r := s.History.Check()
		harness.Report(t, rate, r)
		if len(r.Lost) > 0 || len(r.Unexpected) > 0 {
			t.Fatal(r.Err())
		}

		callByLibrary(t, client, func(id string, _ time.Time) { s.History.Unknown(id) }, "more", 0, more)
		last := op.Bucket(harness.BucketName).Job(fmt.Sprint("more-", more-1))
		harness.Await(t, 60*time.Second, "the day's quota holds the rest back", func() bool {
			info, err := last.Info(t.Context())
			return err == nil && time.Until(info.QuotaFrees) > time.Hour
		})
		harness.Await(t, 60*time.Second, "nothing is under way", func() bool { return s.Inspector.ZCard(t.Context(), s.Key("leases")).Val() == 0 })
		left := s.Unfinished()
		r = s.History.Check()
		over, wrong := api.faults()
		t.Logf("%d tokens for %d calls by 3 dispatchers; most in %s: %d of %d; %d calls in all of %d a day, %d wait; %d above a quota",
			tokens.count(), calls, window, r.MostIn(window), short, r.Delivered, long, left, over)
		switch {
		case wrong > 0 || tokens.count() > 3:
			t.Fatalf("%d were not as they should be, %d tokens", wrong, tokens.count())
		case r.Delivered > long || r.MostIn(window) > short || over > 0:
			return fmt.Sprintf("%d calls in %s, the quota is %d; %d in all, the day's is %d; %d were above", r.MostIn(window), window, short, r.Delivered, long, over)
		case r.Extra > 0 || int64(r.Delivered)+left != calls+more:
			return fmt.Sprintf("%d came twice; %d called and %d wait, of %d", r.Extra, r.Delivered, left, calls+more)
		}
		return stall.Crowded(r.MostIn, rate, harness.Steady, time.Second, 100*time.Millisecond)
	})
}

// tokenServer gives out OAuth tokens.
type tokenServer struct {
	mu     sync.Mutex
	tokens int
}

func (s *tokenServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens++
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token":"t%d","token_type":"Bearer","expires_in":3600}`, s.tokens)
}

func (s *tokenServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens
}

// apiQuota is how many calls an API takes in a sliding window.
type apiQuota struct {
	calls  int
	window time.Duration
}

// strictAPI takes GETs below its base URL with a token, and answers 429 where a quota is used up.
type strictAPI struct {
	quotas []apiQuota

	mu          sync.Mutex
	seen        []time.Time
	over, wrong int
}

func (a *strictAPI) respond(w http.ResponseWriter, r *http.Request, _ string, _ int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Method != http.MethodGet || r.URL.Path == "/" || len(r.Header.Get("Authorization")) != len("Bearer tN") {
		a.wrong++
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	now := time.Now()
	for _, q := range a.quotas {
		if before := len(a.seen) - q.calls; before >= 0 && now.Sub(a.seen[before]) < q.window {
			a.over++
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
	}
	a.seen = append(a.seen, now)
}

func (a *strictAPI) faults() (over, wrong int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.over, a.wrong
}

// library makes a client and an operator of the system's own configuration.
func (s *system) library() (*producer.Client, *operator.Operator) {
	s.T.Helper()
	cfg, err := config.Load(config.Options{Path: s.Config})
	if err != nil {
		s.T.Fatal(err)
	}
	var buckets []shaper.Bucket
	for _, b := range cfg.Buckets {
		buckets = append(buckets, b.Bucket)
	}
	client, err := producer.New(producer.Config{Redis: s.Redis.Client(), Buckets: buckets})
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(client.Close)
	op, err := operator.New(operator.Config{Redis: s.Redis.Client(), Buckets: buckets})
	if err != nil {
		s.T.Fatal(err)
	}
	return client, op
}

// callByHTTP enqueues calls through the producer.
func (s *system) callByHTTP(first, n int) {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"id":"call-%d","method":"GET","path":"customers/%d"}`, first+i, first+i)
	}
	s.PostLines(lines)
}

// callByProxy makes calls through the shaping proxy, 50 at a time, each of which has to be answered by the API.
func (s *system) callByProxy(first, n int) {
	const atOnce = 50
	var callers sync.WaitGroup
	numbers := make(chan int)
	for range atOnce {
		callers.Go(func() {
			for number := range numbers {
				r, err := http.NewRequestWithContext(s.T.Context(), http.MethodGet, fmt.Sprintf("%s/v1/proxy/%s/customers/%d", s.API, harness.BucketName, number), nil)
				if err != nil {
					s.T.Error(err)
					continue
				}
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					s.T.Error(err)
					continue
				}
				answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					s.T.Errorf("call %d through the proxy: %s", number, answer.Status)
				}
				s.History.Admitted(answer.Header.Get("Tundish-Job"), time.Now())
			}
		})
	}
	for number := range n {
		numbers <- first + number
	}
	close(numbers)
	callers.Wait()
}

// callByLibrary enqueues calls by the Go library, and tells of each that is in.
func callByLibrary(t *testing.T, client *producer.Client, admitted func(id string, at time.Time), prefix string, first, n int) {
	t.Helper()
	for i := range n {
		id := fmt.Sprint(prefix, "-", first+i)
		job := shaper.Job{Bucket: harness.BucketName, ID: id, Method: http.MethodGet, URL: fmt.Sprintf("/customers/%d", first+i)}
		receipts, err := client.Enqueue(context.WithoutCancel(t.Context()), job)
		if err != nil || receipts[0].Refusal != nil {
			t.Errorf("enqueue %s: %v, %+v", id, err, receipts)
			return
		}
		admitted(id, time.Now())
	}
}
