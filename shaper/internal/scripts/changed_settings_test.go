package scripts_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// level is where a rate and a burst hold; set changes them.
type level struct {
	name  string
	begin func(r *rig) // configures and fills, with all other bounds wide
	set   func(r *rig, rateCount, burst int64)
}

// wide are settings that hold nothing back.
var wide = settings{rateCount: 50_000, burst: 1000, capacity: 10_000, inFlight: 10_000}

func levels() []level {
	const jobs = 500
	bucket := func(r *rig, rateCount, burst int64) {
		s := wide
		s.rateCount, s.burst = rateCount, burst
		r.configure(s)
	}
	flows := func(r *rig, rateCount, burst int64) {
		r.configureFlows(wide, flowSettings{rateCount: rateCount, burst: burst})
	}
	groups := func(r *rig, rateCount, burst int64) {
		r.configureGroups(wide, flowSettings{}, flowSettings{rateCount: rateCount, burst: burst})
	}
	return []level{
		{"bucket", func(r *rig) { bucket(r, 1, 1); r.putMany(jobs) }, bucket},
		{"bucket with flows", func(r *rig) { r.configureFlows(wide, flowSettings{}); bucket(r, 1, 1); r.fillFlow("f", jobs) }, bucket},
		{"flows", func(r *rig) { flows(r, 1, 1); r.fillFlow("f", jobs) }, flows},
		{"one flow", func(r *rig) { r.configureFlows(wide, flowSettings{}); r.fillFlow("f", jobs) }, func(r *rig, rateCount, burst int64) {
			r.controlFlow("f", "set", rateCount, second, burst, "", "", "")
		}},
		{"groups", func(r *rig) { groups(r, 1, 1); r.fillFlow(path("g", "f"), jobs) }, groups},
		{"one group", func(r *rig) { groups(r, 0, 1); r.fillFlow(path("g", "f"), jobs) }, func(r *rig, rateCount, burst int64) {
			r.controlGroup("g", "set", rateCount, second, burst, "", "", "")
		}},
		{"pool", func(r *rig) { r.pool = "p"; r.configurePool(poolSettings{}); r.configure(wide); r.putMany(jobs) }, func(r *rig, rateCount, burst int64) {
			r.configurePool(poolSettings{rateCount: rateCount, burst: burst})
		}},
	}
}

// fillFlow enqueues so many jobs of a flow.
func (r *rig) fillFlow(flow string, n int) {
	r.t.Helper()
	for from := 0; from < n; from += 500 {
		r.putIn(flow, 3, 0, named(fmt.Sprint("j", from, "-"), min(n-from, 500))...)
	}
}

// take claims what may go until the horizon, and lets time pass. It returns the slots.
func (r *rig) take(micros int64) (slots []int64) {
	r.t.Helper()
	for range 3 {
		c := r.claimOrDrain(ask{want: 500})
		for _, job := range c.jobs {
			slots = append(slots, job.slot)
		}
		if len(c.jobs) == 0 {
			break
		}
	}
	r.pass(micros)
	return slots
}

func (r *rig) claimOrDrain(a ask) claimed {
	r.t.Helper()
	if r.withFlows() > 0 {
		return r.drain(a)
	}
	return r.claim(a)
}

// Burst set 100, 1, 100 again and again: what was used of it stays used, wherever it is set.
func TestChangedBurstMakesNoDepartures(t *testing.T) {
	t.Parallel()
	for _, l := range levels() {
		t.Run(l.name, func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
				l.begin(r)
				l.set(r, 1, 100)
				r.take(second)
				r.pass(100 * second) // the burst is whole
				var slots []int64
				for range 4 {
					for _, burst := range []int64{100, 1} {
						l.set(r, 1, burst)
						slots = append(slots, r.take(second/2)...)
						slots = append(slots, r.take(second/2)...)
					}
				}
				took := slots[len(slots)-1] - slots[0]
				t.Logf("%d departures in %d ms", len(slots), took/1000)
				checkWindows(t, slots, settings{rateCount: 1, ratePer: second, burst: 100})
				if len(slots) < 100 {
					t.Errorf("%d departures though a burst of 100 was whole", len(slots))
				}
			})
		})
	}
}

// Slots that were handed out ahead, before the burst was raised, stay the last ones: a burst goes before them, and what comes after
// another change goes behind them. A lower rate holds from the last of them on.
func TestLowerRateWithSlotsAhead(t *testing.T) {
	t.Parallel()
	for _, l := range levels() {
		if l.name != "bucket" && l.name != "one flow" { // as above
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, base *rig) {
				for phase := range int64(10) {
					r := base.fresh(t, fmt.Sprint("phase", nextClaim()))
					l.begin(r)
					l.set(r, 1, 1)
					r.take(phase * 100)
					l.set(r, 20, 1)
					slots := r.take(421) // from 50 ms on, as nothing has been sent
					l.set(r, 3, 100)
					slots = append(slots, r.take(1)...)
					l.set(r, 20, 10)
					slots = append(slots, r.take(1)...)
					checkWindows(t, slots, settings{rateCount: 20, ratePer: second, burst: 100})
					if len(slots) < 90 {
						t.Errorf("%d departures though a burst of 100 was nearly whole", len(slots))
					}
					l.set(r, 3, 1)
					r.pass(second)
					if c := r.claimOrDrain(ask{want: 500}); len(c.jobs) == 0 {
						t.Errorf("a second after the rate is 3/s nothing departs")
					}
				}
			})
		})
	}
}

// Whatever is set, and however often: over all changes at most the largest rate and the largest burst hold.
func TestChangesMakeNoDepartures(t *testing.T) {
	t.Parallel()
	for _, l := range levels() {
		if l.name != "bucket" && l.name != "one flow" { // the others are the same arithmetic, and take as long
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			server := realRig(t)
			rapid.Check(t, func(rt *rapid.T) {
				r := server.fresh(rt, fmt.Sprint("b", nextClaim()))
				l.begin(r)
				largest := settings{ratePer: second}
				set := func() {
					rate := rapid.SampledFrom([]int64{1, 3, 20, 200}).Draw(rt, "rate")
					burst := rapid.SampledFrom([]int64{1, 2, 10, 100}).Draw(rt, "burst")
					l.set(r, rate, burst)
					largest.rateCount, largest.burst = max(largest.rateCount, rate), max(largest.burst, burst)
				}
				set()
				r.take(0)
				r.pass(rapid.SampledFrom([]int64{0, second, 1000 * second}).Draw(rt, "idle"))
				var slots []int64
				for range rapid.IntRange(1, 8).Draw(rt, "rounds") {
					slots = append(slots, r.take(rapid.Int64Range(1, second/2).Draw(rt, "micros"))...)
					if rapid.Bool().Draw(rt, "changes") {
						set()
					}
				}
				// Each change may round up a microsecond.
				checkWindows(rt, slots, largest)
			})
		})
	}
}

// A flow that was forgotten has used what it used of the burst before.
func TestChangedBurstOfAForgottenFlow(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, r *rig) {
		r.configureFlows(wide, flowSettings{rateCount: 1, burst: 100})
		r.claimFlows(ask{}, reserved{}) // begins the pace
		r.pass(1000 * second)
		var slots []int64
		send := func(n int) {
			r.putIn("f", 3, 0, named(fmt.Sprint("j", nextClaim(), "-"), n)...)
			for range 3 {
				for _, job := range r.drain(ask{want: 500}).jobs {
					slots = append(slots, job.slot)
					r.settle(outcome{lease: job, result: done})
				}
				r.pass(3 * second)
			}
		}
		r.setFlow("f", flowSettings{burst: 100})
		send(100)
		r.setFlow("f", flowSettings{burst: 1})
		send(1)
		r.sweep(sweep{none: true, flowCursor: "0"})
		r.setFlow("f", flowSettings{burst: 100})
		send(100)
		checkWindows(t, slots, settings{rateCount: 1, ratePer: second, burst: 100})
	})
}
