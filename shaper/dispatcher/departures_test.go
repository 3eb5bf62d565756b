package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// departing has jobs depart through the queues of a bucket, each once its worker is ready.
type departing struct {
	queues   departureQueues
	settings shaper.Bucket
	ttl      time.Duration

	mu      sync.Mutex
	history checker.History
	delays  []time.Duration // of departures, after their slots
	void    int
	running sync.WaitGroup
}

// job begins a job at its slot, now. Its worker is ready after connects, or when the process goes on.
func (d *departing) job(name, flow string, slot time.Time, connects time.Duration, goesOn <-chan struct{}) {
	job := &leased{Attempt: shaper.Attempt{ID: name, Flow: flow}, slot: slot, permitTTL: d.ttl}
	d.running.Go(func() {
		<-time.After(connects)
		if goesOn != nil {
			<-goesOn
		}
		may := d.queues.wait(context.Background(), &d.settings, job)
		d.mu.Lock()
		defer d.mu.Unlock()
		if !may {
			d.void++
			return
		}
		d.history.Delivered(name, 1, time.Now())
		d.delays = append(d.delays, time.Since(slot))
	})
}

// Far receivers that close each connection, or keep it, or need very different times to connect get the rate without a bunch. A job whose connection
// is there departs at its slot, but for a few intervals behind others that are late.
func TestDeparturesKeepTheRate(t *testing.T) {
	t.Parallel()
	for name, connects := range map[string]func(i int) time.Duration{
		"close, 320ms":         func(int) time.Duration { return 320 * time.Millisecond },
		"kept":                 func(int) time.Duration { return 0 },
		"one in ten, 800ms":    func(i int) time.Duration { return time.Duration(i%10/9) * 800 * time.Millisecond },
		"each another, to 3 s": func(i int) time.Duration { return time.Duration(i*7919%3000) * time.Millisecond },
		"one packet is lost":   func(i int) time.Duration { return time.Duration(i/100*(1-min(i%100, 1))) * time.Second },
	} {
		for _, rate := range []int{10, 200} {
			t.Run(fmt.Sprint(name, ", ", rate, "/s"), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					const length = 60
					d := &departing{ttl: 5 * time.Second}
					interval := time.Second / time.Duration(rate)
					d.queues.setInterval(interval)
					for i := range rate * length {
						d.job(fmt.Sprint(i), "", time.Now(), connects(i), nil)
						<-time.After(interval)
					}
					d.running.Wait()
					r := d.history.Check()
					slices.Sort(d.delays)
					median := d.delays[len(d.delays)/2]
					t.Logf("%s; void %d, most in 1s %d, in 100ms %d; delay median %s, most %s", r, d.void, r.MostIn(time.Second), r.MostIn(100*time.Millisecond), median, d.delays[len(d.delays)-1])
					if sent := len(d.delays); sent < rate*length*95/100 {
						t.Errorf("%d of %d departed", sent, rate*length)
					}
					if got, want := r.MostIn(time.Second), rate*103/100+1; got > want {
						t.Errorf("%d in a second, want at most %d", got, want)
					}
					if got, want := r.MostIn(100*time.Millisecond), rate*115/1000+1; got > want {
						t.Errorf("%d in 100 ms, want at most %d", got, want)
					}
					if name == "one packet is lost" && median > 2*interval {
						t.Errorf("connections that are there wait %s behind one that is not", median)
					}
				})
			})
		}
	}
}

// The process stands still while it connects, however long and often: what is ready when it goes on makes no bunch, and once all is over, jobs
// depart at their slots again.
func TestDeparturesAfterAStall(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.IntRange(5, 200).Draw(rt, "rate")
		stalls := rapid.SliceOfN(rapid.IntRange(10, 6000), 1, 4).Draw(rt, "stalls")
		connects := time.Duration(rapid.IntRange(0, 900).Draw(rt, "connects")) * time.Millisecond
		flows := rapid.IntRange(0, 3).Draw(rt, "flows")
		synctest.Test(t, func(t *testing.T) {
			d := &departing{ttl: 5 * time.Second}
			if flows > 0 {
				f := shaper.DefaultFlowSettings()
				f.Rate = rig.RateOf(int64(max(rate/flows/2, 1)), time.Second)
				d.settings.Flow = &f
			}
			interval, n := time.Second/time.Duration(rate), 0
			d.queues.setInterval(interval)
			run := func(jobs int, goesOn <-chan struct{}) {
				for range jobs {
					d.job(fmt.Sprint(n), fmt.Sprint("f", n%max(flows, 1)), time.Now(), connects, goesOn)
					n++
					<-time.After(interval)
				}
			}
			for _, stall := range stalls {
				run(rate, nil)
				goesOn := make(chan struct{})
				run(rate/2, goesOn) // these are ready only when the process goes on
				<-time.After(time.Duration(stall) * time.Millisecond)
				close(goesOn)
			}
			run(rate, nil)
			d.running.Wait()
			r := d.history.Check()
			if got, want := r.MostIn(time.Second), rate*103/100+2; got > want {
				rt.Fatalf("%d in a second, want at most %d", got, want)
			}
			if got, want := r.MostIn(100*time.Millisecond), rate*125/1000+2; got > want {
				rt.Fatalf("%d in 100 ms, want at most %d", got, want)
			}
			<-time.After(10 * time.Second) // without work all delay is over
			before := time.Now()
			if !d.queues.wait(t.Context(), &d.settings, &leased{slot: before, permitTTL: time.Second}) || time.Since(before) > departureSlack {
				rt.Fatalf("a job waits for %s after a pause", time.Since(before))
			}
		})
	})
}

// Jobs that wait in the queue when the process stands still wait on in their order, with their distances.
func TestStallOfDeparturesThatWait(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	s := spacing{slot: at(0), at: at(1300), waiting: []*departure{{at(1100)}, {at(1200)}, {at(1300)}}}
	s.catchUp(at(1102))
	must.Equal(t, s.shift, 0, "within the slack the timeline moves by")
	s.catchUp(at(3100))
	must.Equal(t, s.shift, 2*time.Second, "it moves by")
	s.catchUp(at(3100))
	if got := s.next(at(100), 100*time.Millisecond, at(3100)); s.shift != 2*time.Second || !got.Equal(at(3399)) {
		t.Errorf("the next one departs at %s, the timeline is %s behind", got.Sub(begin), s.shift)
	}
}

// What is remembered of flows is bounded, and of flows that are on time nothing is.
func TestDeparturesForgetFlows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := shaper.DefaultFlowSettings()
		f.Rate = rig.RateOf(1, time.Second)
		d := &departing{ttl: 5 * time.Second, settings: shaper.Bucket{Flow: &f}}
		for i := range maxSpacings + 100 {
			d.job("on time", fmt.Sprint(i), time.Now(), 0, nil)
		}
		d.running.Wait()
		must.Equal(t, len(d.queues.parts), 0, "flows are remembered that were on time")
		for i := range maxSpacings + 100 {
			d.job("late", fmt.Sprint(i), time.Now(), 500*time.Millisecond, nil)
		}
		d.running.Wait()
		must.Equal(t, len(d.queues.parts), maxSpacings, "flows are remembered")
		<-time.After(shaper.MaxPermitTTL)
		d.job("late", "another", time.Now(), 500*time.Millisecond, nil)
		d.running.Wait()
		must.Equal(t, len(d.queues.parts), 1, "flows are remembered after a while")
	})
}

// A queue that has just been made, and has no job yet, is not taken for an old one.
func TestDeparturesKeepNewQueues(t *testing.T) {
	t.Parallel()
	var d departureQueues
	part := func(i int) departurePart { return departurePart{flow: strconv.Itoa(i), isFlow: true} }
	for i := range maxSpacings {
		d.spacingOf(part(i))
	}
	if d.spacingOf(part(maxSpacings)) != nil || len(d.parts) != maxSpacings {
		t.Errorf("%d of %d queues are there", len(d.parts), maxSpacings)
	}
}

// A job that waits for its departure ends with its delivery.
func TestDepartureEndsWithItsDelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q departureQueues
		q.setInterval(4 * time.Second)
		settings, begin := &shaper.Bucket{}, time.Now()
		if !q.wait(t.Context(), settings, &leased{slot: begin, permitTTL: 5 * time.Second}) {
			t.Fatal("the first one waits")
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if q.wait(ctx, settings, &leased{slot: begin.Add(-time.Second), permitTTL: 9 * time.Second}) || time.Since(begin) != time.Second || len(q.bucket.waiting) != 0 {
			t.Errorf("after %s it waits on", time.Since(begin))
		}
	})
}

// Why a delivery is late for its slot: the reply of the claim, or the process.
func TestLateness(t *testing.T) {
	t.Parallel()
	slot := time.Now()
	for want, job := range map[string]leased{
		"":                       {woken: slot.Add(12 * time.Millisecond)},
		shaper.ReasonLateProcess: {woken: slot.Add(13 * time.Millisecond), arrived: slot.Add(-time.Millisecond)},
		shaper.ReasonLateRedis:   {woken: slot.Add(40 * time.Millisecond), arrived: slot.Add(30 * time.Millisecond)},
	} {
		job.slot, job.wakeLimit, job.permitTTL = slot, lateWake, 5*time.Second
		must.Equal(t, job.lateness(), want, "lateness")
	}
	conn := &bucketConn{Bucket: store.SettleOnly(&shaper.Bucket{Name: "b"}, store.BucketKeys("b")), store: &store.Store{}, life: t.Context()}
	s := newSettler(newLeaseHolder(conn, nil), nil, nil)
	must.Equal(t, s.settlementOf(&leased{}, shaper.Returned("late")).outcome.Reason, shaper.ReasonLateConnect, "a worker that is late is counted as")
}
