package httpapi_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/httpworker"
)

func TestProxyWaits(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t)
	// The first slot is in an hour. One that goes away takes its job with it, and so does one whose server stops; the one behind the next hour is refused.
	ctx, leave := context.WithCancel(t.Context())
	left := p.start(ctx, "slow")
	p.untilJobs("slow", 1)
	second := p.start(t.Context(), "slow")
	p.untilJobs("slow", 2)
	asked, answers := make(chan struct{}), make(chan struct{})
	p.answerWith(func(http.ResponseWriter, *http.Request) { close(asked); <-answers })
	underWay := p.start(t.Context(), "api")
	<-asked
	a := p.do("GET", "/v1/proxy/slow/x", "").want(429, "wait-too-long")
	if retry := a.header.Get("Retry-After"); retry < "3500" || retry > "3600" || len(retry) != 4 {
		t.Errorf("Retry-After: %s", retry)
	}
	leave()
	must.Equal(t, <-left, 0, "answered with")
	p.untilJobs("slow", 1)
	p.handler.Drain()
	must.Equal(t, <-second, http.StatusServiceUnavailable, "answered with")
	p.untilJobs("slow", 0)
	close(answers) // what is under way when the server stops is answered
	must.Equal(t, <-underWay, http.StatusOK, "answered with")
	must.Equal(t, len(p.called()), 1, "calls")
}

// A client whose request cannot leave in time is refused at once, and told when it may come: whatever holds the bucket back.
func TestProxyRefusesAtOnce(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t)
	set := func(key, field, value string) {
		t.Helper()
		must.OK(t, p.redis.HSet(t.Context(), key, field, value).Err())
	}
	now := must.Get(p.redis.Time(t.Context()).Result())(t)
	for range 2 {
		p.do("GET", "/v1/proxy/api/x", "").want(200, "")
	}
	set(stored.Key("api", "settings"), "quotas", "1000 3600000000;") // from then on departures are noted, those of late permits too
	p.do("GET", "/v1/proxy/api/x", "").want(200, "")
	p.do("GET", "/v1/proxy/api/x", "").want(200, "")
	set(stored.Key("api", "settings"), "quotas", "2 3600000000;")
	p.do("GET", "/v1/proxy/gone/x", "").want(502, "no-answer")
	set(stored.Key("gone", "pace"), "down", stored.Downstream{RateCount: 1, RatePer: 1_000_000_000, Cut: now.UnixMicro(), ChangedAt: now.UnixMicro(), Reason: "status-429"}.String())
	// The one after this has to wait. If this one wakes too late for its slot, it gives that back and waits for the next one.
	if a := p.do("GET", "/v1/proxy/gone/x", ""); a.status == http.StatusGatewayTimeout {
		a.want(504, "not-in-time")
	} else {
		a.want(502, "no-answer")
	}
	set(stored.PoolKey("vendor", "pace"), "down", stored.Downstream{Till: now.Add(1000 * time.Second).UnixMicro(), ChangedAt: now.UnixMicro(), Reason: "status-429"}.String())
	p.called()
	// The time out is 30 s, and 4 s of gone. A quota of an hour counts 11 s more.
	for bucket, most := range map[string]int{"api": 3611 - 30, "gone": 1000 - 4, "pooled": 1000 - 30} {
		a := p.do("GET", "/v1/proxy/"+bucket+"/x", "").want(429, "wait-too-long")
		if retry, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || retry > most || retry < most-60 {
			t.Errorf("%s: Retry-After %q, want about %d", bucket, a.header.Get("Retry-After"), most)
		}
	}
	if calls := p.called(); len(calls) > 0 {
		t.Errorf("%d calls", len(calls))
	}
}

func TestProxyHolds(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t)
	held := 0
	p.answerWith(func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if held++; held == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = io.WriteString(w, "at last")
	})
	if a := p.do("GET", "/v1/proxy/api/x", "").want(200, ""); a.text != "at last" || held != 2 {
		t.Errorf("%q after %d calls", a.text, held)
	}
	p.answerWith(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	if a := p.do("GET", "/v1/proxy/api/x", ""); a.status != 429 || a.header.Get("Retry-After") != "600" || a.text != "" {
		t.Errorf("%d %v %s", a.status, a.header, a.text)
	}
	// From then on nobody needs to be asked.
	p.called()
	if a := p.do("GET", "/v1/proxy/api/x", "").want(429, "wait-too-long"); a.header.Get("Retry-After") > "600" {
		t.Errorf("%v", a.header)
	}
	if calls := p.called(); len(calls) > 0 {
		t.Error("the API was called during its hold")
	}
}

func TestProxyIdempotencyKeys(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t, keyOf("a", []string{"*"}, apikey.RoleEnqueue), keyOf("b", []string{"*"}, apikey.RoleEnqueue))
	n := 0
	p.answerWith(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		n++
		fmt.Fprint(w, n, r.Header.Get("Idempotency-Key"))
	})
	post := func(key, caller, body string) *answer {
		return p.do("POST", "/v1/proxy/api/x", body, "Idempotency-Key", key, "Api-Key", caller)
	}
	for _, tt := range []struct {
		key, caller, body, want string
	}{
		{"one: any text!", "a", "{}", "1one: any text!"},
		{"one: any text!", "a", "{}", "1one: any text!"},
		{"one: any text!", "b", "{}", "2one: any text!"},
		{"two", "a", "{}", "3two"},
	} {
		must.Equal(t, post(tt.key, tt.caller, tt.body).want(200, "").text, tt.want, "%s of %s", tt.key, tt.caller)
	}
	post("two", "a", "[]").want(422, "id-reused")
	p.redis.Del(t.Context(), p.redis.Keys(t.Context(), "*:results").Val()...)
	post("two", "a", "{}").want(409, "answer-not-kept")

	// A request that was given up may be made again.
	for range 2 {
		ctx, leave := context.WithCancel(t.Context())
		left := p.start(ctx, "slow", "Api-Key", "a", "Idempotency-Key", "again")
		p.untilJobs("slow", 1)
		leave()
		<-left
		p.untilJobs("slow", 0)
	}
}

// The last client that waits under an Idempotency-Key takes its request back. One that waits at another process has it made again.
func TestProxyWaitsForEachClientOfAKey(t *testing.T) {
	t.Parallel()
	for name, far := range map[string]bool{"one process": false, "two processes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxyRig(t, keyOf("a", []string{"*"}, apikey.RoleEnqueue))
			headers := []string{"Api-Key", "a", "Idempotency-Key", "shared"}
			at := p
			if far {
				at = p.other
			}
			start := func(at *proxyRig) (leave context.CancelFunc, status <-chan int) {
				ctx, leave := context.WithCancel(t.Context())
				t.Cleanup(leave)
				waits := len(at.client.Waiting())
				status = at.start(ctx, "slow", headers...)
				until(t, func() bool { return len(at.client.Waiting()) > waits })
				p.untilJobs("slow", 1)
				return leave, status
			}
			leave, left := start(p)
			leaveToo, second := start(at)
			until(t, func() bool { return len(p.client.Waiting())+len(p.other.client.Waiting()) == 2 })
			before := p.bodies("slow")
			leave()
			<-left
			if far { // another job of the same id takes its place
				until(t, func() bool { now := p.bodies("slow"); return len(now) == 1 && now[0] != before[0] })
			} else {
				until(t, func() bool { return len(p.client.Waiting()) == 1 })
				p.untilJobs("slow", 1)
			}
			third, answered := start(at)
			defer third()
			leaveToo()
			<-second
			until(t, func() bool { return len(at.client.Waiting()) == 1 })
			var patch operator.BucketPatch
			must.OK(t, patch.Put(shaper.SettingRate, "1000/s"))
			must.Get(p.op.As("test").Bucket("slow").Set(t.Context(), patch))(t)
			must.Equal(t, <-answered, http.StatusOK, "the last one is answered with")
			must.Equal(t, len(p.called()), 1, "calls")
		})
	}
}

func (p *proxyRig) bodies(bucket string) []string {
	return p.redis.HVals(p.t.Context(), stored.Key(bucket, "body")).Val()
}

func until(t *testing.T, is func() bool) {
	t.Helper()
	for !is() {
		if t.Context().Err() != nil {
			t.Fatal("the test is over")
		}
		runtime.Gosched()
	}
}

// A rule reads the body of a response that the API has compressed, as the client accepts it: here the bucket waits a second, and the client gets the
// second response.
func TestProxyHoldsByACompressedBody(t *testing.T) {
	t.Parallel()
	limited := workers.DefaultRule()
	limited.Status, limited.Pointer, limited.Value, limited.Outcome = []string{"200"}, "/errors/*/extensions/code", "THROTTLED", workers.RuleHold
	p := newProxyRigOf(t, func(_ *shaper.Bucket, c *httpworker.Config) { c.Policy.Rules = workers.Rules{limited} })
	for _, accepted := range []string{"gzip, deflate", "br, gzip;q=0.5", "br"} {
		var calls atomic.Int64
		p.answerWith(func(w http.ResponseWriter, r *http.Request) {
			body := `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`
			if calls.Add(1) > 1 {
				body = `{"data":1}`
			}
			switch coding := r.Header.Get("Accept-Encoding"); coding {
			case "":
				_, _ = io.WriteString(w, body)
			case "gzip":
				w.Header().Set("Content-Encoding", "gzip")
				zipped := gzip.NewWriter(w)
				_, _ = io.WriteString(zipped, body)
				_ = zipped.Close()
			default:
				w.Header().Set("Content-Encoding", coding)
			}
		})
		a := p.do("GET", "/v1/proxy/api/x", "", "Accept-Encoding", accepted).want(200, "")
		if a.header.Get("Content-Encoding") == "gzip" {
			plain := must.Get(gzip.NewReader(strings.NewReader(a.text)))(t)
			text, _ := io.ReadAll(plain)
			a.text = string(text)
		}
		if a.text != `{"data":1}` || calls.Load() != 2 {
			t.Errorf("%s: %q after %d calls", accepted, a.text, calls.Load())
		}
	}
}
