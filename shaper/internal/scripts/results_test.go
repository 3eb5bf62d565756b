package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// keepsResults has a bucket keep results, within bounds.
func (r *rig) keepsResults(retention, most, bytes int64) {
	r.t.Helper()
	r.hset("settings", "result_retention", retention, "results_max", most, "results_bytes", bytes)
}

// resultOf asks for the result of a job, in a line.
func (r *rig) resultOf(id string) string { return r.readResult(id, 0) }

// readResult asks for the result of a job, in a line, as a process that has waited for it (1) or not (0).
func (r *rig) readResult(id string, waited int) string {
	r.t.Helper()
	text := strings.Trim(fmt.Sprint(r.run(lua.InspectResult, r.keysOf(lua.InspectResult), id, waited)), "[]")
	goesOn := len(text) > 1 && strings.HasPrefix(text[1:], " 0") // a state and 0
	want := "[1 1]"
	if goesOn {
		want = "[1 0]"
	}
	if got := fmt.Sprint(r.run(lua.Ended, r.keysOf(lua.Ended), "unknown", id)); got != want {
		r.t.Errorf("ended: %s, want %s: of %s the result is %q", got, want, id, text)
	}
	return text
}

// takeOne claims one job, and returns its outcome.
func (r *rig) takeOne(result int) outcome {
	r.t.Helper()
	r.pass(second)
	jobs := r.claim(ask{want: 1}).jobs
	must.Be(r.t, len(jobs), 1, "claimed %v", jobs)
	return outcome{lease: jobs[0], result: result, kept: true, head: "head of " + jobs[0].id, body: "body"}
}

// resultCounts are how many results there are, by both keys, their bytes and how many were dropped.
func (r *rig) resultCounts() string {
	r.t.Helper()
	kept := r.hash("results")
	bytes := 0
	for id, text := range kept {
		bytes += len(id) + len(text)
	}
	counted := must.Get(r.c.HMGet(r.ctx, r.key("count"), "result_bytes", "results_dropped").Result())(r.t)
	if is := fmt.Sprint(counted[0]); is != fmt.Sprint(bytes) && (bytes != 0 || counted[0] != nil && is != "0") {
		r.t.Errorf("%v bytes are counted, %d are there", counted[0], bytes)
	}
	return fmt.Sprintf("%d %d %v", len(kept), r.zcard("result_ends"), counted[1])
}

func TestResults(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.keepsResults(60*second, 10, 1000)
		must.Equal(t, r.resultOf("a"), "", "of an unknown job")
		r.put("a", "b", "c", "d")
		must.Equal(t, r.resultOf("a"), "1 0", "of a queued job")
		done := r.takeOne(1)
		must.Equal(t, r.resultOf("a"), "3 0", "of a job in flight")
		for again := range 2 { // the second writes nothing
			if got := r.settle(done); got[0] != int64(1-again) {
				t.Errorf("settled: %v", got)
			}
			must.Equal(t, r.resultOf("a"), "6 2 head of a\nbody", "of a job that is done")
		}
		r.settle(r.takeOne(3))
		must.Equal(t, r.resultOf("b"), "5 2 head of b\nbody", "of a dead job")
		retried := r.takeOne(2)
		retried.delay = 3600 * second
		r.settle(retried)
		if got := r.resultOf("c"); got != "4 0" || r.resultCounts() != "2 2 <nil>" {
			t.Errorf("of a job that waits for its next attempt: %s, %s", got, r.resultCounts())
		}
		unkept := r.takeOne(1)
		unkept.head, unkept.kept = "", false
		r.settle(unkept)
		must.Equal(t, r.resultOf(unkept.id), "6 1", "without a result")
		// A dead letter that goes back into the queue has none until it ends again.
		r.redrive("b")
		must.Equal(t, r.resultOf("b"), "1 0", "redriven")
		r.settle(r.takeOne(1))
		if got := r.resultOf("b"); got != "6 2 head of b\nbody" || !strings.HasPrefix(r.resultCounts(), "2 2 ") {
			t.Errorf("done at last: %s, %s", got, r.resultCounts())
		}
		r.pass(60 * second)
		must.Equal[any](t, r.run(lua.TrimResults, r.keysOf(lua.TrimResults), 1), int64(1), "trimmed")
		if n := r.run(lua.TrimResults, r.keysOf(lua.TrimResults), 10); n != int64(1) || r.resultCounts() != "0 0 <nil>" {
			t.Errorf("trimmed %v, %s", n, r.resultCounts())
		}
	})
}

// However many results come, and of what sizes, no more are kept than may be.
func TestResultBounds(t *testing.T) {
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
			onBothInCI(t, func(t *testing.T, r *rig) {
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
				must.Get(sub.Receive(r.ctx))(t)
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
				must.Be(t, len(outcomes), 4, "%v", outcomes)
				r.settle(outcomes...)
				var heard []string
				for range 2 {
					message := must.Get(sub.ReceiveTimeout(r.ctx, time.Minute))(t)
					heard = append(heard, fmt.Sprint(message))
				}
				slices.Sort(heard)
				must.Equal(t, fmt.Sprint(heard), "[Message<answers: "+r.name+" a> Message<answers: "+r.name+" c>]", "heard")
				for id, want := range map[string]string{"a": "6 2 head\nbody of a", "b": "4 0", "c": "5 2 head\nbody of c", "d": "6 1"} {
					must.Equal(t, r.resultOf(id), want, "%s", id)
				}
				must.Equal(t, r.resultCounts(), "2 2 <nil>", "there are")
			})
		})
	}
}

// Answers that processes wait for have the bounds of results, also where the bucket keeps none, and whether they are read or not.
func TestAwaitedAnswersAreBounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		retention int64
		isRead    bool
	}{
		"none is kept":       {},
		"none is kept, read": {isRead: true},
		"kept":               {retention: 3600 * second},
		"kept, read":         {retention: 3600 * second, isRead: true},
	} {
		t.Run(name, func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
				r.configure(settings{})
				const most, size = 500, 100
				r.keepsResults(tt.retention, 10, int64(most))
				for n := range 12 {
					r.put(fmt.Sprint("j", n))
					o := r.takeOne(1)
					o.body, o.waiter, o.kept = strings.Repeat("x", size), "answers", tt.retention > 0
					r.settle(o)
					bytes := 0
					for _, key := range r.c.Keys(r.ctx, "*").Val() {
						if strings.Contains(key, "answer") {
							t.Errorf("there is a key %s", key)
						}
					}
					for _, id := range r.c.HKeys(r.ctx, r.key("results")).Val() {
						length := must.Get(r.c.HStrLen(r.ctx, r.key("results"), id).Result())(r.t)
						bytes += len(id) + int(length)
					}
					if bytes > most || n > 9 && bytes < most/2 {
						t.Errorf("%d bytes after %d answers", bytes, n+1)
					}
					must.Equal(t, r.readResult(o.id, map[bool]int{true: 1}[tt.isRead]), "6 2 "+o.head+"\n"+o.body, "the newest")
				}
				r.resultCounts()
			})
		})
	}
}

// An answer that a process waits for is there for 30 s, and for 5 s once that process has read it: it can read it again, and others can. One
// that the bucket keeps stays for its retention. Nothing that is dropped goes on counting.
func TestAnswersAfterTheWait(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		there := func(at string, want ...string) {
			t.Helper()
			r.run(lua.TrimResults, r.keysOf(lua.TrimResults), 100)
			r.resultCounts()
			ids := r.c.HKeys(r.ctx, r.key("results")).Val()
			slices.Sort(ids)
			if !slices.Equal(ids, want) {
				t.Errorf("%s: %v, want %v", at, ids, want)
			}
		}
		r.put("gone", "kept", "looked", "read")
		var all []outcome
		for range 4 {
			o := r.takeOne(1)
			o.waiter = "answers"
			all = append(all, o)
		}
		retention := map[bool]int64{true: 60 * second}
		for _, o := range all {
			o.kept = o.id == "kept"
			r.keepsResults(retention[o.kept], 10, 1000)
			r.settle(o)
			if o.kept {
				r.readResult("kept", 1)
			}
		}
		r.keepsResults(0, 10, 1000)
		for range 2 { // read twice, the second time later
			must.Equal(t, r.readResult("read", 1), "6 2 head of read\nbody", "read")
			r.resultOf("looked") // as a caller that did not wait
			r.pass(3 * second)
		}
		there("after 6 s", "gone", "kept", "looked")
		r.pass(24 * second)
		there("after 30 s", "kept")
		r.pass(30 * second)
		there("after the retention")
		must.Equal(t, r.readResult("read", 1), "6 1", "at last")
	})
}

// A job that would wait too long is refused, and spends nothing.
func TestMaxWait(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10})
		for n := range 10 {
			r.put(fmt.Sprint("before", n))
		}
		for name, tt := range map[string]struct {
			maxWait    string
			code, wait int64
		}{
			"long enough": {"1200000", 1, 0},
			"too short":   {"500000", 17, 600_000},
		} {
			got := r.enqueue(nil, entry{id: strings.ReplaceAll(name, " ", ""), maxWait: tt.maxWait})[0]
			if got.code == 1 {
				r.cancel(strings.ReplaceAll(name, " ", ""), "")
			}
			if got.code != tt.code || got.wait != tt.wait {
				t.Errorf("%s: %+v", name, got)
			}
		}
		r.hset("settings", "paused", r.now())
		if got := r.enqueue(nil, entry{id: "paused", maxWait: "9000000"})[0]; got.code != 17 || got.wait != 0 {
			t.Errorf("paused: %+v", got)
		}
	})
}

// The result of a job that is done after other attempts has these, too, and one at the first attempt has none.
func TestResultsHaveTheEarlierAttempts(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.hset("settings", "keep_attempts", 2)
		r.keepsResults(60*second, 10, 1000)
		r.put("a")
		for n := range 3 {
			failed := r.takeOne(2)
			failed.attempt = fmt.Sprintf(`{"at":%d,"number":%d,"result":"retry"}`, r.now(), n+1)
			r.settle(failed)
			r.pass(second)
		}
		last := r.takeOne(1)
		last.head = `{"state":"done"}`
		for range 2 { // the second writes nothing
			r.settle(last)
			got := r.resultOf("a")
			if strings.Count(got, `"number":`) != 2 || !strings.HasPrefix(got, `6 2 {"state":"done","tried":[{"at":`) || !strings.Contains(got, `"number":3,"result":"retry"}]}`) {
				t.Errorf("the result is %s", got)
			}
			r.resultCounts()
		}
		if n := r.c.HExists(r.ctx, r.key("attempts"), "a").Val(); n {
			t.Error("its attempts are kept apart, too")
		}
		r.put("b")
		last = r.takeOne(1)
		last.head = `{"state":"done"}`
		r.settle(last)
		must.Equal(t, r.resultOf("b"), "6 2 {\"state\":\"done\"}\nbody", "of a job that had one attempt")
	})
}
