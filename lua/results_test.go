package lua_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/lua"
)

// keepsResults has a bucket keep results, within bounds.
func (r *rig) keepsResults(retention, most, bytes int64) {
	r.t.Helper()
	r.ok(r.c.HSet(r.ctx, r.key("conf"), "result_retention", retention, "results_max", most, "results_bytes", bytes).Err())
}

// resultOf asks for the result of a job, in a line.
func (r *rig) resultOf(id string) string {
	r.t.Helper()
	keys := r.fixed(lua.InspectResult)
	keys[len(keys)-1] = r.key("answer:" + id)
	text := strings.Trim(fmt.Sprint(r.run(lua.InspectResult, keys, id)), "[]")
	if strings.Count(text, " ") > 1 {
		text = strings.TrimSuffix(text, " 0") // of a bucket that knows no callers
	}
	return text
}

// takeOne claims one job, and returns its outcome.
func (r *rig) takeOne(result int) outcome {
	r.t.Helper()
	r.pass(second)
	jobs := r.claim(ask{want: 1}).jobs
	if len(jobs) != 1 {
		r.t.Fatalf("claimed %v", jobs)
	}
	return outcome{lease: jobs[0], result: result, kept: true, head: "head of " + jobs[0].id, body: "body"}
}

// resultCounts are how many results there are, by both keys, their bytes and how many were dropped.
func (r *rig) resultCounts() string {
	r.t.Helper()
	kept, err := r.c.HGetAll(r.ctx, r.key("results")).Result()
	r.ok(err)
	bytes := 0
	for id, text := range kept {
		bytes += len(id) + len(text)
	}
	counted, err := r.c.HMGet(r.ctx, r.key("count"), "result_bytes", "results_dropped").Result()
	r.ok(err)
	if is := fmt.Sprint(counted[0]); is != fmt.Sprint(bytes) && (bytes != 0 || counted[0] != nil && is != "0") {
		r.t.Errorf("%v bytes are counted, %d are there", counted[0], bytes)
	}
	return fmt.Sprintf("%d %d %v", len(kept), r.c.ZCard(r.ctx, r.key("result_ends")).Val(), counted[1])
}

func TestResults(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.keepsResults(60*second, 10, 1000)
		if got := r.resultOf("a"); got != "" {
			t.Errorf("of an unknown job: %s", got)
		}
		r.put("a", "b", "c", "d")
		if got := r.resultOf("a"); got != "1 0" {
			t.Errorf("of a queued job: %s", got)
		}
		done := r.takeOne(1)
		if got := r.resultOf("a"); got != "3 0" {
			t.Errorf("of a job in flight: %s", got)
		}
		for again := range 2 { // the second writes nothing
			if got := r.settle(done); got[0] != int64(1-again) {
				t.Errorf("settled: %v", got)
			}
			if got := r.resultOf("a"); got != "6 2 head of a\nbody" {
				t.Errorf("of a job that is done: %s", got)
			}
		}
		r.settle(r.takeOne(3))
		if got := r.resultOf("b"); got != "5 2 head of b\nbody" {
			t.Errorf("of a dead job: %s", got)
		}
		retried := r.takeOne(2)
		retried.delay = 3600 * second
		r.settle(retried)
		if got := r.resultOf("c"); got != "4 0" || r.resultCounts() != "2 2 <nil>" {
			t.Errorf("of a job that waits for its next attempt: %s, %s", got, r.resultCounts())
		}
		unkept := r.takeOne(1)
		unkept.head, unkept.kept = "", false
		r.settle(unkept)
		if got := r.resultOf(unkept.id); got != "6 1" {
			t.Errorf("without a result: %s", got)
		}
		// A dead letter that goes back into the queue has none until it ends again.
		r.redrive("b")
		if got := r.resultOf("b"); got != "1 0" {
			t.Errorf("redriven: %s", got)
		}
		r.settle(r.takeOne(1))
		if got := r.resultOf("b"); got != "6 2 head of b\nbody" || !strings.HasPrefix(r.resultCounts(), "2 2 ") {
			t.Errorf("done at last: %s, %s", got, r.resultCounts())
		}
		r.pass(60 * second)
		if n := r.run(lua.TrimResults, r.fixed(lua.TrimResults), 1); n != int64(1) {
			t.Errorf("trimmed %v", n)
		}
		if n := r.run(lua.TrimResults, r.fixed(lua.TrimResults), 10); n != int64(1) || r.resultCounts() != "0 0 <nil>" {
			t.Errorf("trimmed %v, %s", n, r.resultCounts())
		}
	})
}

// However many results come, and of what sizes, no more are kept than may be.
func TestResultBounds(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.keepsResults(60*second, 5, 400)
		for n := range 12 {
			r.put(fmt.Sprint("j", n))
			o := r.takeOne(1)
			o.body = strings.Repeat("x", []int{10, 150, 380, 20}[n%4])
			if n == 9 {
				o.body = strings.Repeat("x", 500) // more than all may have
			}
			r.settle(o)
			counts := r.resultCounts()
			kept, _, _ := strings.Cut(counts, " ")
			bytes, err := r.c.HGet(r.ctx, r.key("count"), "result_bytes").Int()
			if err != nil || bytes > 400 || kept > "5" {
				t.Errorf("after %d: %s results of %d bytes, %v", n, kept, bytes, err)
			}
			if got := r.resultOf(o.id); (got == "6 1") != (len(o.head)+1+len(o.body)+len(o.id) > 400) {
				t.Errorf("the newest of %d bytes: %.40s", len(o.body), got)
			}
		}
		// A lower bound holds from the next one on.
		r.keepsResults(60*second, 1, 400)
		r.put("last")
		r.settle(r.takeOne(1))
		if counts := r.resultCounts(); !strings.HasPrefix(counts, "1 1 ") {
			t.Errorf("%s", counts)
		}
	})
}

// Who waits gets the answer, kept or not, and hears of it; who waits for a job that does not end hears nothing.
func TestAwaitedAnswers(t *testing.T) {
	t.Parallel()
	for _, levels := range []string{"plain", "flows", "pool"} {
		t.Run(levels, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, r *rig) {
				switch levels {
				case "flows":
					r.configureFlows(settings{}, flowSettings{})
				case "pool":
					r.pool = "p"
					r.configurePool(poolSettings{rateCount: 1000})
					r.configure(settings{})
				default:
					r.configure(settings{})
				}
				sub := r.c.Subscribe(r.ctx, "answers")
				defer sub.Close()
				if _, err := sub.Receive(r.ctx); err != nil {
					t.Fatal(err)
				}
				leases := map[string]lease{}
				if levels == "flows" {
					for _, id := range []string{"a", "b", "c", "d"} {
						p := placed{id: id, flow: "f" + id, state: isInFlight, in: 30 * second}
						r.place(p)
						leases[id] = p.lease()
					}
				} else {
					r.put("a", "b", "c", "d")
					r.pass(10 * second)
					for _, job := range r.claim(ask{want: 4}).jobs {
						leases[job.id] = job
					}
				}
				var outcomes []outcome
				for n, id := range []string{"a", "b", "c", "d"} {
					o := outcome{lease: leases[id], result: []int{done, retry, dead, done}[n], head: "head", body: "body of " + id, waiter: "answers"}
					if id == "d" {
						o.waiter, o.head = "", ""
					}
					outcomes = append(outcomes, o)
				}
				if len(outcomes) != 4 {
					t.Fatalf("%v", outcomes)
				}
				r.settle(outcomes...)
				var heard []string
				for range 2 {
					message, err := sub.ReceiveTimeout(r.ctx, time.Minute)
					if err != nil {
						t.Fatal(err)
					}
					heard = append(heard, fmt.Sprint(message))
				}
				slices.Sort(heard)
				if got := fmt.Sprint(heard); got != "[Message<answers: "+r.name+" a> Message<answers: "+r.name+" c>]" {
					t.Errorf("heard %s", got)
				}
				for id, want := range map[string]string{"a": "6 2 head\nbody of a", "b": "4 0", "c": "5 2 head\nbody of c", "d": "6 1"} {
					if got := r.resultOf(id); got != want {
						t.Errorf("%s: %s, want %s", id, got, want)
					}
				}
				if list := r.c.LRange(r.ctx, r.key("answer:a"), 0, -1).Val(); fmt.Sprint(list) != "[head body of a end]" {
					t.Errorf("%v", list)
				}
				if left := r.c.PTTL(r.ctx, r.key("answer:a")).Val(); left <= 0 {
					t.Errorf("the answer expires in %s", left)
				}
			})
		})
	}
}

// A job that would wait too long is refused, and spends nothing.
func TestMaxWait(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10})
		for n := range 10 {
			r.put(fmt.Sprint("before", n))
		}
		for name, tt := range map[string]struct {
			maxWait    string
			code, wait int64
		}{
			"long enough":         {"1200000/0.000", 1, 0},
			"too short":           {"500000/0.000", 17, 600_000},
			"too short in a pool": {"2000000/1000000.000", 17, 8_000_000},
		} {
			got := r.enqueue(nil, entry{id: strings.ReplaceAll(name, " ", ""), maxWait: tt.maxWait})[0]
			if got.code == 1 {
				r.cancel(strings.ReplaceAll(name, " ", ""), "")
			}
			if got.code != tt.code || got.wait != tt.wait {
				t.Errorf("%s: %+v", name, got)
			}
		}
		r.ok(r.c.HSet(r.ctx, r.key("conf"), "paused", r.now()).Err())
		if got := r.enqueue(nil, entry{id: "paused", maxWait: "9000000/0.000"})[0]; got.code != 17 || got.wait != 0 {
			t.Errorf("paused: %+v", got)
		}
	})
}
