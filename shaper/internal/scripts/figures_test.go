package scripts_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// enqueueAlike sends n new jobs as the usual batch and returns how many were
// admitted and what is left.
func (r *rig) enqueueAlike(l limit, n int) (admitted, remaining int64) {
	r.t.Helper()
	keys, args := r.alike([]limit{l}, n, 3, "")
	for i := range n {
		args = append(args, fmt.Sprint("alike", nextClaim()), fmt.Sprintf("%011dcn%03d \n", 0, i+1))
	}
	in := r.reader(lua.Enqueue, keys, args...)
	in.Int()
	if in.Int() == 1 {
		for range 4 {
			in.Int()
		}
		return int64(n), in.Int()
	}
	for range n {
		if in.Int() == 1 {
			admitted++
		}
		for range 4 {
			in.Int()
		}
		remaining = in.Int()
		in.Int()
		in.Int()
	}
	r.ok(in.Err())
	return admitted, remaining
}

// A batch is admitted as its jobs would be one after the other.
func TestBatchesEqualSingles(t *testing.T) {
	conform(t, func(t *testing.T, base *rig, a algorithm) {
		rapid.Check(t, func(rt *rapid.T) {
			r := base.fresh(rt, fmt.Sprint("b", nextClaim()))
			r.configure(settings{capacity: 10_000})
			count := rapid.Int64Range(1, 30).Draw(rt, "count")
			batched := a.window(count, 31*24*3600*second)
			single := batched
			batched.key, single.key = "batched", "single"
			for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
				n := rapid.IntRange(1, 20).Draw(rt, "jobs")
				got, left := r.enqueueAlike(batched, n)
				want, wantLeft := int64(0), int64(0)
				for range n {
					one, rest := r.enqueueAlike(single, 1)
					want, wantLeft = want+one, rest
				}
				if got != want || left != wantLeft {
					rt.Fatalf("%d jobs: %d admitted and %d left, one by one %d and %d", n, got, left, want, wantLeft)
				}
			}
			// Costs above 1 too, decided one by one in one script or in several.
			var jobs []entry
			for range rapid.IntRange(1, 5).Draw(rt, "more") {
				jobs = append(jobs, entry{cost: cost(count).Draw(rt, "cost")})
			}
			for i := range jobs {
				jobs[i].id = fmt.Sprint("j", nextClaim())
			}
			answers := r.enqueue([]limit{batched}, jobs...)
			alone := make([]answer, len(jobs))
			for i := range jobs {
				jobs[i].id = fmt.Sprint("j", nextClaim())
				alone[i] = r.enqueue([]limit{single}, jobs[i])[0]
			}
			for i, got := range answers {
				left := alone[i].limits[0][1]
				if got.code == 5 { // a refused job is told what is left after its batch
					left = alone[len(alone)-1].limits[0][1]
				}
				if got.code != alone[i].code || got.limits[0][1] != left {
					rt.Fatalf("job %d, cost %d: %+v, alone %+v, after all of them %d are left", i, jobs[i].cost, got, alone[i], left)
				}
			}
		})
	})
}

// The edge of a window: a limit of 100/s, a request every 100 µs, 100 of them
// before the edge and 100 after it.
func TestEdgeBurst(t *testing.T) {
	want := map[string][2]int{
		// In 10 ms a token bucket gets one token more. A counter forgets one
		// request of 100 10 ms after the edge, and the last one comes before.
		"token_bucket":                         {100, 1},
		"sliding_window_log":                   {100, 0},
		"sliding_window_counter":               {100, 0},
		"sliding_window_counter, precision 10": {100, 0},
		"fixed_window":                         {100, 100},
	}
	onBothInCI(t, func(t *testing.T, r *rig) {
		const edge = epoch / second * second
		table := fmt.Sprintf("%-38s %s\n", "limit 100/s", "before the edge, after it, together")
		for _, a := range algorithms {
			l := a.window(100, second)
			l.key = a.name
			rule := a.define(l)
			if e, ok := rule.(bucketOf); ok {
				e.at = edge - second
			}
			var got, defined [2]int
			for i := range int64(200) {
				now := edge - 10_000 + i*100
				if r.allow(l, 1, now).verdict == allowed {
					got[i/100]++
				}
				if rule.free(now) > 0 {
					rule.take(now, 1)
					defined[i/100]++
				}
			}
			table += fmt.Sprintf("%-38s %3d %3d %3d\n", a.name, got[0], got[1], got[0]+got[1])
			if got != defined || got != want[a.name] {
				t.Errorf("%s: %v, by its definition %v, want %v", a.name, got, defined, want[a.name])
			}
		}
		t.Logf("\n%s", table)
	})
}

// The error of the counter against the exact log, for traffic of twice the
// limit. The figures are those of the doc comment of SlidingWindowCounter.
func TestErrorOfTheCounter(t *testing.T) {
	t.Parallel()
	r := realRig(t)
	const count, window = 100, second
	requests := atLength(6000, 6)
	traffic := map[string]func(random *rand.Rand) int64{
		"random": func(random *rand.Rand) int64 { return int64(random.ExpFloat64() * window / (2 * count)) },
		"bursty": func(random *rand.Rand) int64 { // bursts of 50 within 5 ms
			if random.IntN(50) > 0 {
				return 100
			}
			return int64(random.ExpFloat64() * window * 50 / (2 * count))
		},
	}
	table := fmt.Sprintf("%-7s  %-9s  %-13s  %-10s  %-13s  %s\n",
		"traffic", "precision", "most in 1 s", "mean error", "largest error", "admitted, of the log's")
	for _, kind := range []string{"random", "bursty"} {
		for _, pieces := range []int64{1, 10, 100} {
			random := rand.New(rand.NewPCG(1, 2)) // the same traffic each time
			l := sliding(pieces)(count, window)
			l.key = fmt.Sprint(kind, pieces)
			var past, log []int64 // what the counter and the log admitted in the last window
			now, most, admitted, byLog := int64(epoch), 0, 0, 0
			sum, largest := int64(0), int64(0)
			recent := func(times []int64) []int64 {
				for len(times) > 0 && times[0] <= now-window {
					times = times[1:]
				}
				return times
			}
			for range requests {
				now += traffic[kind](random)
				past, log = recent(past), recent(log)
				got := r.allow(l, 1, now)
				counted := count - got.remaining
				if got.verdict == allowed {
					counted-- // before it
				}
				off := max(counted-int64(len(past)), int64(len(past))-counted)
				sum, largest = sum+off, max(largest, off)
				if got.verdict == allowed {
					past = append(past, now)
					most = max(most, len(past))
					admitted++
				}
				if len(log) < count {
					log = append(log, now)
					byLog++
				}
			}
			mean, share := float64(sum)/float64(requests), 100*float64(admitted)/float64(byLog)
			table += fmt.Sprintf("%-7s  %9d  %11d  %8.1f %%  %11d %%  %.1f %%\n", kind, pieces, most, mean, largest, share)
			if most > 2*count || mean > 30 || share < 90 || share > 110 {
				t.Errorf("%s, precision %d: %d in a window, %.1f off, %.1f %% admitted", kind, pieces, most, mean, share)
			}
		}
	}
	t.Logf("\n%s", table)
}

// The memory of one key, full, as the doc comments of the algorithms say it.
func TestMemoryOfAKey(t *testing.T) {
	t.Parallel()
	r := realRig(t)
	table := ""
	measure := func(name string, l limit, step int64) int64 {
		l.key = "caller-of-22-characters"
		r.del("limit:" + l.key)
		rounds := l.full
		if l.algorithm == "" {
			rounds = l.full / second
		}
		for i := range rounds {
			if got := r.allow(l, 1, epoch+i*step); got.verdict != allowed {
				t.Fatalf("%s: %+v", name, got)
			}
		}
		bytes := must.Get(r.c.MemoryUsage(r.ctx, r.key("limit:"+l.key), 0).Result())(r.t)
		table += fmt.Sprintf("%-40s %8d bytes\n", name, bytes)
		return bytes
	}
	hour, many := int64(3600*second), atLength(10_000, 10)
	for _, a := range algorithms {
		most := int64(400)
		if a.name == "sliding_window_log" {
			most = 15_000
		}
		if bytes := measure(a.name+", 100/h", a.window(100, hour), 30*second); bytes > most {
			t.Errorf("%s: %d bytes", a.name, bytes)
		}
	}
	if bytes := measure(fmt.Sprintf("sliding_window_log, %d/h", many), algorithms[1].window(many, hour), 100_000); bytes > 200*many {
		t.Errorf("log: %d bytes", bytes)
	}
	t.Logf("\n%s", table)
}
