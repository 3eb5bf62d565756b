package test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tundish-io/tundish/test/harness"
)

// run has all of them at work until the time is over.
func (s *soak) run(length time.Duration) {
	ctx, end := context.WithTimeout(s.t.Context(), length)
	defer end()
	var working sync.WaitGroup
	for i, from := range s.producers {
		working.Go(func() {
			s.repeat(ctx, uint64(1+i), 40*time.Millisecond, func(r *rand.Rand) { s.enqueue(ctx, r, from) })
		})
	}
	working.Go(func() { s.repeat(ctx, 10, 60*time.Millisecond, s.operate) })
	working.Go(func() { s.repeat(ctx, 11, 300*time.Millisecond, s.pauseSome) })
	working.Go(func() { s.repeat(ctx, 13, 400*time.Millisecond, s.disturb) })
	working.Go(func() { s.repeat(ctx, 12, 50*time.Millisecond, func(*rand.Rand) { s.wantBounded() }) })
	working.Wait()
}

// repeat does something again and again, with pauses of that length on average.
func (s *soak) repeat(ctx context.Context, stream uint64, every time.Duration, do func(*rand.Rand)) {
	random := rand.New(rand.NewPCG(s.seed, stream))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(random.Int64N(int64(2 * every)))):
			do(random)
		}
	}
}

// count counts that something was done.
func (s *soak) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// figures is what was done, and how often.
func (s *soak) figures() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for what, n := range s.counts {
		all = append(all, fmt.Sprintf("%s %d", what, n))
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(a, b) })
	return strings.Join(all, ", ")
}

// wantBounded holds that no bucket has more jobs than it may have.
func (s *soak) wantBounded() {
	infos, err := s.operator.BucketInfos(context.WithoutCancel(s.t.Context()))
	if err != nil {
		s.t.Error(err)
	}
	for _, info := range infos {
		if info.Unfinished > info.Capacity || info.Scheduled > info.ScheduledCapacity {
			s.t.Errorf("bucket %s holds %d of %d and %d of %d for later", info.Name, info.Unfinished, info.Capacity, info.Scheduled, info.ScheduledCapacity)
		}
	}
}

// drain lets all go that still waits, as it was in the beginning.
func (s *soak) drain() {
	ctx := s.t.Context()
	s.helpers.Wait()
	began, left := time.Now(), ""
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(harness.Patience * 40 * time.Second); ; {
		infos, err := s.operator.BucketInfos(ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		left = ""
		for _, info := range infos {
			if info.Unfinished+info.Purging+info.InFlight+info.Scheduled+info.Waiting+info.Later > 0 {
				left += fmt.Sprintf(" %s: %d unfinished, %d in flight, %d waiting, %d for later, %d scheduled, %d to purge;",
					info.Name, info.Unfinished, info.InFlight, info.Waiting, info.Later, info.Scheduled, info.Purging)
			}
		}
		if left == "" {
			break
		}
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatalf("jobs are stuck %s after the end:%s\n%s", time.Since(began), left, s.figures())
		}
	}
	s.t.Logf("drained within %s", time.Since(began).Round(time.Millisecond))
	for _, p := range s.processes { // what they still have to say
		p.stop()
		<-p.done
	}
}
