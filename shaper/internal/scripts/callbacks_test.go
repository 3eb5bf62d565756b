package scripts_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// firstLine is that of a job's body in Redis.
func (r *rig) firstLine(id string) string {
	r.t.Helper()
	body := r.stored("body", id)
	line, _, _ := strings.Cut(body, "\n")
	return line
}

// callback is one that was handed out.
type callback struct{ name, text string }

// moveCallbacks says what became of some ("" moved on, or microseconds), and has others handed out.
func (r *rig) moveCallbacks(atMost, mostBytes int, said ...string) []callback {
	r.t.Helper()
	args := []any{atMost, mostBytes, r.withFlows(), "none"}
	for i, word := range said {
		if args = append(args, word); i%2 == 1 {
			args = append(args, "") // of no bundle
		}
	}
	in := lua.NewReader(r.run(lua.MoveCallbacks, r.keysOf(lua.MoveCallbacks), args...))
	var all []callback
	for in.Left() > 0 {
		all = append(all, callback{in.Text(), in.Text()})
	}
	r.ok(in.Err())
	return all
}

// callbacks are those there are, by id and epoch: "id epoch: second line/body", sorted. It fails if the two keys do not name the same.
func (r *rig) callbacks() string {
	r.t.Helper()
	texts := r.hash("callback_texts")
	var all []string
	for name, text := range texts {
		at := must.Get(r.c.ZScore(r.ctx, r.key("callbacks"), name).Result())(r.t)
		parts := strings.SplitN(name, " ", 3)
		must.Equal(r.t, fmt.Sprintf("%.0f", at), parts[0], "%q is to be handed out at %.0f", name, at)
		lines := strings.SplitN(text, "\n", 3)
		if !strings.HasSuffix(strings.Fields(lines[0])[2], "^") {
			r.t.Errorf("%q begins with %q", name, lines[0])
		}
		all = append(all, fmt.Sprintf("%s %s: %s/%s", parts[2], parts[1], lines[1], lines[2]))
	}
	if n := r.zcard("callbacks"); int(n) != len(texts) {
		r.t.Errorf("there are %d names and %d texts", n, len(texts))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// withCallback returns the outcome of a job whose callback is to be written.
func (r *rig) withCallback(l lease, result int) outcome {
	r.t.Helper()
	return outcome{lease: l, result: result, head: `{"state":"x"}`, body: "answer\nof " + l.id, callback: r.firstLine(l.id), last: `{"cause":"permanent"}`}
}

// A callback is written in the run that ends its job, and only there; twice sent, once.
func TestCallbacksOfSettlements(t *testing.T) {
	t.Parallel()
	for _, levels := range []string{"plain", "flows", "pool"} {
		t.Run(levels, func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
				flow := ""
				switch levels {
				case "flows":
					r.configureFlows(settings{}, flowSettings{})
					flow = "f"
				case "pool":
					r.pool = "p"
					r.configurePool(poolSettings{rateCount: 1000})
					r.configure(settings{})
				default:
					r.configure(settings{})
				}
				var jobs []entry
				for _, id := range []string{"done", "dead", "retry", "held", "back", "quiet"} {
					jobs = append(jobs, entry{id: id, flow: flow, callback: id != "quiet"})
				}
				r.enqueue(nil, jobs...)
				r.pass(10 * second)
				leases := map[string]lease{}
				take := r.claim
				if flow != "" {
					take = r.drain
				}
				for _, job := range take(ask{}).jobs {
					leases[job.id] = job
				}
				outcomes := []outcome{
					r.withCallback(leases["done"], done), r.withCallback(leases["dead"], dead), r.withCallback(leases["retry"], retry), r.withCallback(leases["held"], wasHeld),
					r.withCallback(leases["back"], returned), {lease: leases["quiet"], result: done},
				}
				for range 2 {
					r.settle(outcomes...)
					want := "dead 1: {\"state\":\"x\"}/answer\nof dead, done 1: {\"state\":\"x\"}/answer\nof done"
					must.Equal(t, r.callbacks(), want, "callbacks")
				}
				late := r.withCallback(leases["held"], dead) // its lease has ended
				if r.settle(late); strings.Contains(r.callbacks(), "held") {
					t.Errorf("a late word wrote %s", r.callbacks())
				}
				// Of a dead letter that is redriven, each death is told.
				if codes := r.redrive("dead"); codes[0] != 1 {
					t.Fatalf("redrive: %v", codes)
				}
				r.pass(10 * second)
				for _, job := range take(ask{}).jobs {
					if job.id == "dead" {
						r.settle(r.withCallback(job, dead))
					}
				}
				if got := r.callbacks(); strings.Count(got, "dead ") != 2 || !strings.Contains(got, "dead 2: ") {
					t.Errorf("after the second death: %q", got)
				}
			})
		})
	}
}

// Jobs that die where nobody delivers them have callbacks too.
func TestCallbacksOfOtherDeaths(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{})
		wants := func(what, want string) {
			t.Helper()
			must.Equal(t, r.callbacks(), want, "%s", what)
			r.del("callbacks", "callback_texts")
		}
		r.enqueue(nil, entry{id: "late", flow: "f", expires: second, callback: true}, entry{id: "quiet", flow: "f", expires: second})
		r.pass(10 * second)
		r.drain(ask{})
		wants("expired", "late 0: 5 0 0 0 0 - "+expiredLast+"/")

		r.hset("settings", "max_age", second)
		r.enqueue(nil, entry{id: "old", flow: "f", callback: true})
		r.pass(second)
		job := r.drain(ask{}).jobs[0]
		r.settle(outcome{lease: job, result: retry, delay: second, last: `{"status":500}`, attempt: fmt.Sprintf(`{"at":%d,"result":"retry"}`, r.now())})
		r.pass(10 * second)
		r.drain(ask{})
		wants("max-age", fmt.Sprintf(`old 1: 5 1 1 0 0 %s {"cause":"max-age","status":500}/`, job.claim))
		r.hset("settings", "max_age", 0)

		r.enqueue(nil, entry{id: "poison", flow: "f", callback: true})
		claim := ""
		for range 3 {
			r.pass(second)
			jobs := r.drain(ask{}).jobs
			must.Be(t, len(jobs), 1, "jobs")
			claim = jobs[0].claim
			r.end(jobs[0].id)
			r.sweep(sweep{})
		}
		wants("poison", fmt.Sprintf("poison 3: 5 3 0 3 3 %s %s/", claim, `{"cause":"poison"}`))

		r.enqueue(nil, entry{id: "gone", flow: "f", callback: true}, entry{id: "waits", flow: "f", callback: true}, entry{id: "silent", flow: "f"})
		r.pass(second)
		gone := r.withCallback(r.drain(ask{want: 1}).jobs[0], wasGone)
		gone.signal, gone.reason = accepted, "http_410"
		r.settle(gone)
		r.emptyDisabled("f", 500)
		wants("disabled", "gone 1: {\"state\":\"x\"}/answer\nof gone, waits 0: 5 0 0 0 0 - {\"cause\":\"flow-disabled\"}/")
	})
}

// Callbacks that wait take the places of new jobs, and of no other.
func TestCallbacksCountAgainstTheCapacity(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{capacity: 3, scheduled: 3})
		r.enqueue(nil, entry{id: "a", callback: true}, entry{id: "b", callback: true}, entry{id: "dies"})
		r.pass(10 * second)
		for _, job := range r.claim(ask{}).jobs {
			if job.id == "dies" {
				r.settle(outcome{lease: job, result: dead, last: `{}`})
			} else {
				r.settle(r.withCallback(job, done))
			}
		}
		if a := r.enqueue(nil, entry{id: "c"}, entry{id: "d"}, entry{id: "e", due: "+5000000"}); a[0].code != 1 || a[1].code != 7 || a[1].position != 3 || a[2].code != 2 {
			t.Errorf("with two callbacks: %+v", a)
		}
		if codes := r.redrive("dies"); codes[0] != 2 {
			t.Errorf("redriven: %v", codes)
		}
		keys, args := r.alike(nil, 1, 3, "")
		in := r.reader(lua.Enqueue, keys, append(args, "alike", "00000000000cn001 \n{}")...)
		if in.Int(); in.Int() != 0 || in.Int() != 7 {
			t.Error("a job of many that are alike got in")
		}
		// Where callbacks take all places, jobs that come with a delay are refused too.
		r.pass(second)
		c := r.claim(ask{want: 1}).jobs[0]
		r.settle(outcome{lease: c, result: done, head: "{}", callback: "0 0 00000000000cn001^ "})
		if a := r.enqueue(nil, entry{id: "f", due: "+5000000"}, entry{id: "c"}); a[0].code != 7 || a[1].code != 3 {
			t.Errorf("with three callbacks: %+v", a)
		}
		oldest := r.inspect()
		if oldest.callbacks != 3 || oldest.firstCallback != oldest.now-second || oldest.unfinished != 0 {
			t.Errorf("inspected: %d callbacks, the oldest from %d, now is %d; %d jobs", oldest.callbacks, oldest.firstCallback, oldest.now, oldest.unfinished)
		}
		var said []string
		for _, one := range r.moveCallbacks(100, 1000) {
			said = append(said, one.name, "")
		}
		for range 2 { // sent twice
			r.moveCallbacks(0, 1, said...)
		}
		if a := r.enqueue(nil, entry{id: "d"}); a[0].code != 1 || r.inspect().callbacks != 0 {
			t.Errorf("without callbacks: %+v", a)
		}
	})
}

// hasCallbacks writes callbacks as scripts do, each a second after the one before, and returns their names.
func (r *rig) hasCallbacks(n, bytes int) (names []string) {
	r.t.Helper()
	for i := range n {
		r.pass(second)
		name := fmt.Sprintf("%d 1 j%d", r.now(), i)
		names = append(names, name)
		r.hset("callback_texts", name, strings.Repeat("x", bytes))
		r.zadd("callbacks", name, r.now())
	}
	return names
}

// Callbacks are handed out the oldest first, within bounds, and not again for a while; none is lost, whoever dies and whatever is sent
// twice.
func TestMoveCallbacks(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		names := r.hasCallbacks(5, 100)
		is := func(what string, got []callback, want ...int) {
			t.Helper()
			var all []string
			for _, one := range got {
				all = append(all, fmt.Sprint(slices.Index(names, one.name)))
			}
			must.Equal(t, fmt.Sprint(all), fmt.Sprint(want), "%s: %v, want %v", what, all, want)
		}
		is("two at most", r.moveCallbacks(2, 1000), 0, 1)
		is("sent twice", r.moveCallbacks(2, 1000), 2, 3)
		is("the rest", r.moveCallbacks(100, 1000), 4)
		is("while they are away", r.moveCallbacks(100, 1000))
		r.pass(5 * second)
		is("after 5 s, by bytes", r.moveCallbacks(100, 250), 0, 1)
		is("one that is too large", r.moveCallbacks(100, 1), 2)
		// 0 and 2 are moved on, 1 is put off, 3 goes back to its place.
		is("moved on", r.moveCallbacks(1, 1000, names[0], "", names[2], "", names[1], "60000000", names[3], "0"), 3)
		is("moved on again", r.moveCallbacks(100, 1000, names[0], "", names[2], "", names[0], "0"), 4)
		r.pass(5 * second)
		is("then", r.moveCallbacks(100, 1000), 3, 4)
		r.pass(55 * second)
		is("after a minute", r.moveCallbacks(100, 1000, names[3], "", names[4], ""), 1)
		r.moveCallbacks(0, 1, names[1], "")
		must.Equal(t, r.exists("callbacks", "callback_texts"), 0, "keys are left")
	})
}

// What was deleted by hand is mended: a text without a time is handed out, and a time without a text is forgotten.
func TestCallbacksAreMended(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		names := r.hasCallbacks(250, 10)
		r.del("callbacks")
		r.hdel("callback_texts", names[0])
		r.zadd("callbacks", names[0], 1)
		seen := map[string]bool{}
		for range 20 {
			var said []string
			for _, one := range r.moveCallbacks(100, 100_000) {
				seen[one.name] = true
				said = append(said, one.name, "")
			}
			r.moveCallbacks(0, 1, said...)
		}
		if len(seen) != 249 || r.exists("callbacks", "callback_texts") != 0 {
			t.Errorf("%d of 249 were handed out", len(seen))
		}
	})
}

// A page is bounded, and so is what it costs.
func TestCostOfMovingCallbacks(t *testing.T) {
	t.Parallel()
	r := realRig(t)
	r.configure(settings{})
	r.hasCallbacks(400, 64<<10)
	r.moveCallbacks(0, 1) // the server knows the script
	r.ok(r.c.ConfigResetStat(r.ctx).Err())
	for range 5 {
		page := r.moveCallbacks(100, 1<<20)
		bytes := 0
		var said []string
		for _, one := range page {
			bytes += len(one.text)
			said = append(said, one.name, "")
		}
		if bytes > 1<<20 || len(page) == 0 {
			t.Errorf("a page of %d has %d bytes", len(page), bytes)
		}
		r.moveCallbacks(0, 1, said...)
	}
	stats := must.Get(r.c.Info(r.ctx, "commandstats").Result())(r.t)
	t.Logf("10 runs, 16 callbacks of 64 KiB handed out by each second one: %s", regexp.MustCompile(`fcall:\S+`).FindString(stats))
}
