package load

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

// api is a server that answers each job by script, the n-th request by the
// n-th entry and all further ones by 202.
type api struct {
	mu     sync.Mutex
	script []func(w http.ResponseWriter, jobs []job)
	times  []time.Time
	seen   map[string]int // jobs by id
	bad    []string
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	batch := strings.HasSuffix(r.URL.Path, "/batch")
	var jobs []job
	for decoder := json.NewDecoder(r.Body); ; {
		var j job
		if err := decoder.Decode(&j); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		jobs = append(jobs, j)
	}
	a.mu.Lock()
	a.times = append(a.times, time.Now())
	if a.seen == nil {
		a.seen = map[string]int{}
	}
	for _, j := range jobs {
		a.seen[j.ID]++
	}
	if path := strings.TrimSuffix(r.URL.Path, "/batch"); path != "/v1/buckets/webhooks/jobs" || r.Method != http.MethodPost {
		a.bad = append(a.bad, r.Method+" "+r.URL.Path)
	}
	answer := accept
	if len(a.script) > 0 {
		answer, a.script = a.script[0], a.script[1:]
	} else if batch {
		answer = results("202")
	}
	a.mu.Unlock()
	answer(w, jobs)
}

func accept(w http.ResponseWriter, jobs []job) {
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprintf(w, `{"id":%q,"state":"queued"}`, jobs[0].ID)
}

// refuse answers a problem, with a Retry-After if that is not "".
func refuse(status int, code, after string) func(http.ResponseWriter, []job) {
	return func(w http.ResponseWriter, _ []job) {
		w.Header().Set("Content-Type", "application/problem+json")
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"title":"no","status":%d,"code":%q}`, status, code)
	}
}

// results answers a batch, each job by its status, by "429 code", or by
// "429 code" with seconds to wait behind it.
func results(each ...string) func(http.ResponseWriter, []job) {
	return func(w http.ResponseWriter, jobs []job) {
		parts := make([]string, len(jobs))
		for i := range jobs {
			status, code, _ := strings.Cut(each[i%len(each)], " ")
			code, after, _ := strings.Cut(code, " ")
			parts[i] = fmt.Sprintf(`{"status":%s,"code":%q,"retry_after":%s}`, status, code, cmp.Or(after, "0"))
		}
		fmt.Fprintf(w, `{"results":[%s]}`, strings.Join(parts, ","))
	}
}

// slow answers after d.
func slow(d time.Duration) func(http.ResponseWriter, []job) {
	return func(w http.ResponseWriter, jobs []job) {
		time.Sleep(d) //nolint:forbidigo // in a bubble: no time passes
		accept(w, jobs)
	}
}

func drop(http.ResponseWriter, []job) { panic(http.ErrAbortHandler) }

// RoundTrip serves a request without a network, for bubbles of fake time. A
// handler that panics has hung up.
func (a *api) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	recorder := httptest.NewRecorder()
	defer func() {
		if recover() != nil {
			resp, err = nil, io.ErrUnexpectedEOF
		}
	}()
	a.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}

func options(change func(o *Options)) Options {
	o := DefaultOptions()
	o.Server, o.Bucket, o.Jobs, o.Concurrency = "http://tundish.test", "webhooks", 1, 1
	if change != nil {
		change(&o)
	}
	return o
}

// explain answers with a problem.
func explain(status int, problem string) func(http.ResponseWriter, []job) {
	return func(w http.ResponseWriter, _ []job) {
		w.WriteHeader(status)
		io.WriteString(w, problem)
	}
}
