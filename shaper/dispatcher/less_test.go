package dispatcher

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/workers"
)

// vendor is an API with a limit of its own, in virtual time.
type vendor struct {
	respond func(v *vendor, a *shaper.Attempt, since time.Duration) (refused bool, status int, header http.Header, body string)

	mu       sync.Mutex
	began    time.Time
	calls    int
	refused  int
	accepted map[string]int
	counts   map[string]int // for respond
}

func (v *vendor) deliver(policy workers.Policy) shaper.WorkerFunc {
	return func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		if a.Depart() != nil {
			return shaper.Returned("late")
		}
		v.mu.Lock()
		v.calls++
		refused, status, header, body := v.respond(v, a, time.Since(v.began))
		if refused {
			v.refused++
		} else if status != 0 {
			v.accepted[a.ID]++
		}
		v.mu.Unlock()
		<-time.After(5 * time.Millisecond)
		if status == 0 {
			return workers.ClassifyError(context.DeadlineExceeded)
		}
		if header == nil {
			header = http.Header{}
		}
		return policy.Judge(&workers.Response{Status: status, Header: header, Body: []byte(body), At: time.Now(), Number: a.Number, InDoubt: a.InDoubt})
	}
}

// left is how many jobs are dead, and how many are not done.
type left struct{ dead, unfinished int64 }

// sendTo sends jobs to a vendor until all of them are settled, or a time is over.
func (v *vendor) sendTo(t *testing.T, b shaper.Bucket, policy workers.Policy, jobs int, within time.Duration) (l left) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		<-time.After(26 * 365 * 24 * time.Hour) // a bubble begins in 2000, before Unix times tell themselves from seconds
		mini := miniredis.NewMiniRedis()
		mini.ClockTTL(true)
		t.Cleanup(mini.Close)
		conn, all := rig.BubbleClient(t, mini.Dial), []shaper.Bucket{b}
		client := must.Get(producer.New(producer.Config{Timeout: rig.Patience, Redis: conn, Buckets: all}))(t)
		v.accepted, v.counts = map[string]int{}, map[string]int{}
		d := must.Get(New(Config{Redis: conn, Buckets: all, Workers: rig.Workers(all, v.deliver(policy)), Lease: time.Minute, Enqueue: client.Enqueue}))(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		<-time.After(3 * time.Second)
		v.began = time.Now()
		for i := range jobs {
			job := shaper.Job{Bucket: b.Name, ID: fmt.Sprint("job-", i), Payload: []byte("{}")}
			if b.Flow != nil {
				job.Flow = fmt.Sprint("chat-", i%4)
			}
			must.Get(client.Enqueue(t.Context(), job))(t)
		}
		keys := (*d.loops.Load())[0].Keys
		for end := time.Now().Add(within); time.Now().Before(end); <-time.After(time.Second) {
			l.dead, l.unfinished = conn.ZCard(t.Context(), keys.Dead()).Val(), conn.HLen(t.Context(), keys.Body()).Val()
			if l.unfinished -= l.dead; l.unfinished == 0 {
				break
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l
}

func listedPolicy(rules ...workers.Rule) workers.Policy {
	return workers.Policy{Rules: rules, Statuses: []string{"408", "425", "429", "5xx"}, Hold: true, HoldAtZero: true}
}

// TestLessAndWhen: an API says "less, and when" in another way than by 429. One attempt is all that a job has, so that none may be spent.
func TestLessAndWhen(t *testing.T) {
	t.Parallel()
	const limitedFrom, limitedTo = 3 * time.Second, 13 * time.Second
	// limited refuses everything for a while, with a status and a header.
	limited := func(status int, offset time.Duration, name func(h http.Header, end, now time.Time)) func(*vendor, *shaper.Attempt, time.Duration) (bool, int, http.Header, string) {
		return func(v *vendor, _ *shaper.Attempt, since time.Duration) (bool, int, http.Header, string) {
			h, now := http.Header{}, time.Now().Add(offset)
			h.Set("Date", now.UTC().Format(http.TimeFormat))
			if since < limitedFrom || since >= limitedTo {
				return false, 200, h, "{}"
			}
			name(h, v.began.Add(limitedTo+offset), now)
			return true, status, h, "{}"
		}
	}
	seconds := func(h http.Header, end, now time.Time) {
		h.Set("Retry-After", strconv.Itoa(int(end.Sub(now).Seconds())+1))
	}
	date := func(h http.Header, end, _ time.Time) {
		h.Set("Retry-After", end.Add(time.Second).UTC().Format(http.TimeFormat))
	}
	zero := func(h http.Header, end, _ time.Time) {
		h.Set("X-RateLimit-Remaining", "0")
		h.Set("X-RateLimit-Reset", strconv.FormatInt(end.Unix()+1, 10))
	}
	throttled := workers.Rule{Status: []string{"200"}, Pointer: "/errors/*/extensions/code", Value: "THROTTLED", Outcome: workers.RuleHold, WaitDefault: 2 * time.Second}
	telegram := workers.Rule{Status: []string{"429"}, Pointer: "/parameters/retry_after", Outcome: workers.RuleHold, Wait: "/parameters/retry_after"}
	for name, c := range map[string]struct {
		respond    func(*vendor, *shaper.Attempt, time.Duration) (bool, int, http.Header, string)
		policy     workers.Policy
		flows      bool
		jobs, most int // requests that may be refused
	}{
		"403 with Retry-After":            {limited(403, 0, seconds), listedPolicy(), false, 60, 2},
		"403 with 0 remaining":            {limited(403, 0, zero), listedPolicy(), false, 60, 2},
		"509":                             {limited(509, 0, seconds), listedPolicy(), false, 60, 2},
		"a clock that is 5m behind":       {limited(429, -5*time.Minute, date), listedPolicy(), false, 60, 2},
		"a clock that is 5m ahead":        {limited(429, 5*time.Minute, date), listedPolicy(), false, 60, 2},
		"a clock that is 20s behind":      {limited(429, -20*time.Second, zero), listedPolicy(), false, 60, 2},
		"a clock that is 20s ahead":       {limited(403, 20*time.Second, zero), listedPolicy(), false, 60, 2},
		"windows of 5 in 5s, in each 200": {windows, listedPolicy(), false, 30, 0},
		"a query cost, in a 200": {func(v *vendor, _ *shaper.Attempt, since time.Duration) (bool, int, http.Header, string) {
			if float64(v.counts["cost"]) >= 10+5*since.Seconds() {
				return true, 200, nil, `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}]}`
			}
			v.counts["cost"]++
			return false, 200, nil, `{"data":{}}`
		}, listedPolicy(throttled), false, 80, 30},
		"a ban of each chat, in the body": {func(v *vendor, a *shaper.Attempt, since time.Duration) (bool, int, http.Header, string) {
			if since < limitedTo && v.counts[a.Flow] >= 5 {
				return true, 429, nil, fmt.Sprintf(`{"ok":false,"error_code":429,"parameters":{"retry_after":%d}}`, int((limitedTo-since).Seconds())+1)
			}
			v.counts[a.Flow]++
			return false, 200, nil, `{"ok":true}`
		}, listedPolicy(telegram), true, 60, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := rig.Bucket("b", 10)
			if c.flows {
				b = rig.Flowing("b", shaper.FlowKeyJob)
				b.Rate = rig.PerSecond(10)
			}
			b.Adapt, b.Retry.MaxAttempts, b.Capacity = shaper.DefaultAdapt(), 1, 1000
			v := &vendor{respond: c.respond}
			l := v.sendTo(t, b, c.policy, c.jobs, 20*time.Minute)
			t.Logf("%d calls, %d refused, %d accepted, %d dead", v.calls, v.refused, len(v.accepted), l.dead)
			if l.dead > 0 || l.unfinished > 0 || len(v.accepted) != c.jobs || v.calls-v.refused != c.jobs || v.refused > c.most {
				t.Errorf("%d calls, %d refused, %d jobs accepted of %d, %d dead, %d unfinished; want none dead and %d refused at most",
					v.calls, v.refused, len(v.accepted), c.jobs, l.dead, l.unfinished, c.most)
			}
		})
	}
}

// windows accepts 5 requests in each window of 5 s, and says so in every response.
func windows(v *vendor, _ *shaper.Attempt, since time.Duration) (bool, int, http.Header, string) {
	const width, most = 5 * time.Second, 5
	window := fmt.Sprint(since / width)
	remaining := most - v.counts[window] - 1
	h := http.Header{"Ratelimit": {fmt.Sprintf(`"default";r=%d;t=%d`, max(remaining, 0), int((width-since%width).Seconds())+1)}}
	if remaining < 0 {
		return true, 429, h, ""
	}
	v.counts[window]++
	return false, 200, h, ""
}

// TestConflictAfterDoubt: a request had no response, and the next one with its key gets a 409 as long as the API is at work on the first.
// A 409 to a first attempt is final.
func TestConflictAfterDoubt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first int
		want  left
	}{"no response": {0, left{}}, "504": {504, left{}}, "no doubt": {425, left{dead: 1}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := rig.Bucket("b", 10)
			b.Retry.MaxAttempts, b.Retry.MinBackoff, b.Retry.MaxBackoff = 6, time.Second, time.Second
			v := &vendor{respond: func(v *vendor, _ *shaper.Attempt, _ time.Duration) (bool, int, http.Header, string) {
				switch {
				case v.calls == 1:
					return c.first != 0, c.first, nil, ""
				case v.calls == 3:
					return true, 429, http.Header{"Retry-After": {"1"}}, ""
				case v.calls < 5:
					return true, 409, nil, ""
				}
				return false, 201, nil, ""
			}}
			must.Equal(t, v.sendTo(t, b, listedPolicy(), 1, 5*time.Minute), c.want, "after %d calls", v.calls)
		})
	}
}
