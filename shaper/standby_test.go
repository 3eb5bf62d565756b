//go:build soak

package shaper

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Nobody steps back where a claim is for one slot anyway, nor where there is enough
// for all.
func TestCrowded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		perSecond int
		want      bool
	}{{1, false}, {20, false}, {40, true}, {100, true}, {700, true}, {800, false}, {5000, false}} {
		interval := time.Second / time.Duration(test.perSecond)
		for questions := range 3 {
			if got := crowded(interval, horizon(interval, 0, questions)); got != test.want {
				t.Errorf("%d/s, %d questions: %t", test.perSecond, questions, got)
			}
		}
	}
}

// One that stands by alone, or with a few, goes on as ever. The more there are, the
// less often each looks; and never is one patient for longer than a patrol.
func TestStandby(t *testing.T) {
	t.Parallel()
	const whole = 160 * time.Millisecond
	for count, want := range map[int64]bool{0: false, 1: false, fewStandbys: false, fewStandbys + 1: true, 15: true, 10_000: true} {
		s := standby{is: true, count: count}
		if s.steps() != want {
			t.Errorf("%d stand by: steps back: %t", count, s.steps())
		}
		if ahead := s.horizon(whole); want != (ahead < whole) {
			t.Errorf("%d stand by: it looks %s ahead", count, ahead)
		}
		if !want {
			continue
		}
		early := 0
		for range 1000 {
			p := s.patience(whole)
			if p < -whole/standbyShare || p > patrolInterval || p > whole/standbyShare*time.Duration(count) {
				t.Fatalf("%d stand by: %s", count, p)
			}
			if p <= 0 {
				early++
			}
		}
		if count < 100 && early == 0 {
			t.Errorf("%d stand by: none of a thousand looks was in time", count)
		}
	}
	s := standby{count: 15}
	if s.steps() {
		t.Error("one whose claim was worth it steps back")
	}
}

// Those whose claims bring nothing count each other, and all go on when there is
// no one else.
func TestStandbysCountEachOther(t *testing.T) {
	t.Parallel()
	s := newStepped(t, WorkerFunc(func(context.Context, *Attempt) Outcome { return Done(200) }))
	drains := make([]*drain, fewStandbys+2)
	for i := range drains {
		drains[i] = s.drain()
		drains[i].dispatcher = fmt.Sprint("d", i)
	}
	for i := range 40 {
		s.enqueue(fmt.Sprint("j", i))
	}
	claim := func(i, want int) {
		t.Helper()
		if _, err := drains[i].claim(t.Context(), shortID(uint64(1000*i+want)), want); err != nil {
			t.Fatal(err)
		}
	}
	for i := range drains { // the first takes all slots of a horizon
		claim(i, 20)
		if stands := drains[i].standby.is; stands != (i > 0) {
			t.Errorf("dispatcher %d of those that claim stands by: %t", i, stands)
		}
	}
	last := drains[len(drains)-1]
	if got := last.standby.count; got != fewStandbys+1 || !last.standby.steps() {
		t.Errorf("%d stand by, want %d", got, fewStandbys+1)
	}
	// The first one is gone, and its slots go by: whoever comes takes over.
	s.step(time.Second)
	last.clock = newClock() // or it took that for a step of the clock
	claim(len(drains)-1, 21)
	if last.standby.is || last.standby.horizon(time.Second) != time.Second {
		t.Error("one that finds slots stands by")
	}
}

// One that serves stays with the probability of its share of the slots since its last claim.
func TestYields(t *testing.T) {
	t.Parallel()
	const interval = 10_000 // microseconds
	for name, c := range map[string]struct {
		s         standby
		b         brought
		low, high int // of a thousand
	}{
		"alone":                         {standby{free: interval}, brought{jobs: 8, free: 9 * interval}, 0, 0},
		"others took all":               {standby{free: interval}, brought{jobs: 0, free: 9 * interval}, 1000, 1000},
		"others took half":              {standby{free: interval}, brought{jobs: 4, free: 9 * interval}, 400, 600},
		"others took a quarter":         {standby{free: interval}, brought{jobs: 6, free: 9 * interval}, 150, 350},
		"it served before, and is late": {standby{free: interval}, brought{jobs: 8, from: 92 * interval, free: 100 * interval}, 0, 0},
		"it did not serve before":       {standby{}, brought{jobs: 2, free: 9 * interval}, 0, 0},
		"nothing is handed out":         {standby{free: interval}, brought{}, 0, 0},
	} {
		times := 0
		for range 1000 {
			if c.s.yields(c.b, interval*time.Microsecond) {
				times++
			}
		}
		if times < c.low || times > c.high {
			t.Errorf("%s: it yields %d times of a thousand", name, times)
		}
	}
}

// In a bucket with flows, those that find no slot stand by and are noted, so that a claim may wake them. Who is woken
// looks as one that serves.
func TestStandbysOfFlows(t *testing.T) {
	t.Parallel()
	flows := grouped("b", 100)
	flows.Group = nil
	for name, b := range map[string]Bucket{"flows": flows, "groups": grouped("b", 100)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSteppedBucket(t, WorkerFunc(func(context.Context, *Attempt) Outcome { return Done(200) }), b)
			for i := range 40 {
				job := Job{Bucket: "b", Flow: fmt.Sprint("f", i%4), Payload: []byte("{}")}
				if b.Group != nil {
					job.Group = "g"
				}
				if _, err := s.client.Enqueue(t.Context(), job); err != nil {
					t.Fatal(err)
				}
			}
			drains := make([]*drain, fewStandbys+2)
			for i := range drains {
				drains[i] = s.drain()
				drains[i].dispatcher = fmt.Sprint("d", i)
				if _, err := drains[i].claim(t.Context(), fmt.Sprint("first", i), 40); err != nil {
					t.Fatal(err)
				}
				if stands := drains[i].standby.is; stands != (i > 0) {
					t.Errorf("dispatcher %d of those that claim stands by: %t", i, stands)
				}
			}
			last := drains[len(drains)-1]
			if !last.standby.steps() {
				t.Fatalf("%d stand by", last.standby.count)
			}
			wait, err := last.claim(t.Context(), "again", 40)
			if err != nil || wait > maxHorizon+maxHorizon/standbyShare*(fewStandbys+1) {
				t.Errorf("it looks again in %s: %v", wait, err)
			}
			away, err := s.redis.ZRange(t.Context(), last.keys.sentAway(), 0, -1).Result()
			if err != nil || len(away) != 1 || away[0] != last.dispatcher {
				t.Errorf("%v are noted: %v", away, err)
			}
			last.standby.woken()
			if last.standby.steps() || last.standby.horizon(time.Second) != time.Second {
				t.Error("one that was woken stands by")
			}
		})
	}
}

// Where it is the rate of a flow that binds, slots go by that nobody takes: no one has shared them, and nobody stands by.
func TestNobodyStandsByForTurns(t *testing.T) {
	t.Parallel()
	b := grouped("b", 100)
	b.Group, b.Flow.Rate = nil, rate("5/s")
	s := newSteppedBucket(t, WorkerFunc(func(context.Context, *Attempt) Outcome { return Done(200) }), b)
	for range 9 {
		if _, err := s.client.Enqueue(t.Context(), Job{Bucket: "b", Flow: "f", Payload: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	r := s.drain()
	s.claim(r, "first") // gets the first slot, 10 ms away
	s.step(15 * time.Millisecond)
	s.claim(r, "second") // gets one 195 ms away, the last one within the horizon
	if left := s.redis.LLen(t.Context(), r.keys.queue("f")).Val(); left != 7 || r.standby.is {
		t.Errorf("%d of 9 jobs are left; it stands by: %t", left, r.standby.is)
	}
}
