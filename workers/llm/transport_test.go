package llm

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// queued is an API behind a Transport, which the client uses.
type queued struct {
	*Transport

	base     string
	client   *http.Client
	operator *operator.Operator
}

// newQueued makes a bucket of a budget of 2,000 tokens an hour, all of which may leave at once.
func newQueued(t *testing.T, config Config) *queued {
	t.Helper()
	conn := must.Get(redisconn.Connect(redistest.Start(t).URL(), redisconn.Options{Timeout: 10 * time.Second}))(t)
	t.Cleanup(func() { _ = conn.Close() })
	b := shaper.DefaultBucket()
	b.Name = "model"
	b.Rate, _ = admission.ParseRate("1000/s")
	budget := must.Get(admission.ParseRate("2000 tokens/h"))(t)
	b.Budgets, b.BudgetBurst, b.Breaker.Failures = shaper.Budgets{budget}, 100, 0
	buckets, w := []shaper.Bucket{b}, workerOf(t, config)
	d := must.Get(dispatcher.New(dispatcher.Config{Redis: conn, Buckets: buckets, Workers: map[string]shaper.Worker{b.Name: w}}))(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	client := must.Get(producer.New(producer.Config{Redis: conn, Buckets: buckets, Timeout: 10 * time.Second}))(t)
	leases := must.Get(dispatcher.NewLeases(dispatcher.LeasesConfig{Redis: conn, Timeout: 10 * time.Second}))(t)
	permits := dispatcher.NewPermits(client, leases)
	t.Cleanup(func() { permits.Close(); leases.Close(); client.Close() })
	o := must.Get(operator.New(operator.Config{Redis: conn, Buckets: buckets}))(t)
	transport := &Transport{Permits: permits, Worker: w, Bucket: b.Name}
	return &queued{transport, config.HTTP.BaseURL, &http.Client{Transport: transport}, o}
}

// answered is an answer, with its body as far as it came.
type answered struct {
	status int
	header http.Header
	body   string
}

// post asks for a chat, with more of its members.
func (q *queued) post(ctx context.Context, more string) (answered, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, q.base+"/chat/completions?v=1", strings.NewReader(chat(more)))
	if err != nil {
		return answered{}, err
	}
	r.Header.Set("Authorization", "Bearer theirs")
	answer, err := q.client.Do(r)
	if err != nil {
		return answered{}, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answered{answer.StatusCode, answer.Header, string(body)}, err
}

// charged awaits that so many tokens are charged, and no job is left.
func (q *queued) charged(t *testing.T, want int64) {
	t.Helper()
	var info operator.BucketInfo
	for began := time.Now(); time.Since(began) < 20*time.Second; {
		var err error
		if info, err = q.operator.Bucket("model").Info(t.Context()); err != nil {
			t.Fatal(err)
		}
		if info.Unfinished == 0 && info.Budgets[0].Charged == want {
			return
		}
	}
	t.Errorf("%d unfinished, budgets %+v; want %d charged", info.Unfinished, info.Budgets, want)
}

// A client that knows nothing of Tundish gets what the API answers, less the chunk that only we have asked for, and is charged what that used.
func TestTransportPassesOn(t *testing.T) {
	t.Parallel()
	config := apiOf(t, OpenAI, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Seen", r.RequestURI+" "+r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, chatStream)
	})
	config.HTTP.BaseURL += "/v1/"
	config.HTTP.Auth.Bearer = "ours"
	q := newQueued(t, config)
	q.base = strings.TrimSuffix(q.base, "/")
	q.Prepare = func(_ *http.Request, job *shaper.Job) { job.Priority = shaper.PriorityLow }
	a, err := q.post(t.Context(), `,"stream":true`)
	if err != nil || a.status != http.StatusOK || a.body != strings.Replace(chatStream, usageChunk, "", 1) || a.header.Get(HeaderJob) == "" {
		t.Fatalf("%+v, %v", a, err)
	}
	must.Equal(t, a.header.Get("X-Seen"), "/v1/chat/completions?v=1 Bearer ours", "the API has seen")
	q.charged(t, 1209)
}

// Where the API asks for less, the client waits. It gets that answer if there is no time.
func TestTransportWaits(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	q := newQueued(t, apiOf(t, Anthropic, func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) != 3 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(529)
		}
		_, _ = io.WriteString(w, "answer")
	}))
	if a, err := q.post(t.Context(), ""); err != nil || a.status != http.StatusOK || a.body != "answer" || calls.Load() != 3 {
		t.Errorf("after %d calls: %+v, %v", calls.Load(), a, err)
	}
	q.Wait = 2500 * time.Millisecond
	if a, err := q.post(t.Context(), ""); err != nil || a.status != 529 || a.body != "answer" {
		t.Errorf("%+v, %v", a, err)
	}
}

// What is not sent, what gets no answer, and what nobody reads to its end.
func TestTransportFaults(t *testing.T) {
	t.Parallel()
	read := make(chan struct{})
	config := apiOf(t, OpenAI, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"user":"nobody"`) {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, strings.SplitAfter(chatStream, "\n\n")[0])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(read)
	})
	config.CountMaxTokens = true
	q := newQueued(t, config)
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, q.base+"/v1/chat/completions", strings.NewReader(chat(`,"stream":true`)))
	answer, err := q.client.Do(r)
	must.OK(t, err)
	if n, err := answer.Body.Read(make([]byte, 10)); n != 10 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	_ = answer.Body.Close()
	<-read // the API sees that the client has gone
	cancel()

	var unanswered *NoAnswerError
	if _, err := q.post(t.Context(), `,"user":"nobody"`); !errors.As(err, &unanswered) || unanswered.JobID == "" {
		t.Errorf("no answer: %v", err)
	}
	var refused *producer.RefusedError
	if _, err := q.post(t.Context(), `,"max_tokens":5000`); !errors.As(err, &refused) || refused.Receipt.Refusal.Reason != shaper.ReasonImpossible {
		t.Errorf("above the budget: %v", err)
	}
	before := q.base
	for _, base := range []string{"http://127.0.0.1:1/v1", "https" + strings.TrimPrefix(before, "http")} {
		if q.base = base; true {
			if _, err := q.post(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "is not below the llm.base_url "+before) {
				t.Errorf("elsewhere: %v", err)
			}
		}
	}
	q.base = before
	gone, stop := context.WithCancel(t.Context())
	stop()
	if _, err := q.post(gone, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has gone: %v", err)
	}
}
