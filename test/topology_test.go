package test

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tundish-io/tundish/internal/checker"
)

// The keys of the bucket under test are in one slot; any of them names it.
const busyKey = "tundish:{" + bucketName + "}:b:" + bucketName + ":body"

// What a failover may cost at most. The receiver sees what the slots allow, and
// permits of workers that took their time to connect, but less than permit_ttl.
const (
	clusterResume  = 6 * time.Second
	sentinelResume = 5 * time.Second
	permitTTL      = 250 * time.Millisecond
	lostWrites     = 100 * time.Millisecond // of a master that is killed: loopback is fast
)

// mostAfterLoss is how many may arrive in a window around a failover.
func mostAfterLoss(window time.Duration, rate int, stall time.Duration) int {
	return mostIn(window, rate, permitTTL+stall) + int(float64(rate)*lostWrites.Seconds()) + 1
}

// stream is a steady load of single jobs, and what was answered.
type stream struct {
	s    *system
	stop chan struct{}
	all  sync.WaitGroup

	mu      sync.Mutex
	answers map[int]int
}

// load sends so many jobs a second until end.
func (s *system) load(prefix string, perSecond int) *stream {
	const callers = 10
	l := &stream{s: s, stop: make(chan struct{}), answers: map[int]int{}}
	for caller := range callers {
		l.all.Go(func() {
			tick := time.NewTicker(callers * time.Second / time.Duration(perSecond))
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-l.stop:
					return
				case <-tick.C:
				}
				status := s.send(fmt.Sprintf("%s%d-%d", prefix, caller, i))
				l.mu.Lock()
				l.answers[status]++
				l.mu.Unlock()
			}
		})
	}
	return l
}

func (l *stream) end() map[int]int {
	close(l.stop)
	l.all.Wait()
	return l.answers
}

// awaitMore waits until so many more jobs have arrived, and returns how long
// that took.
func (s *system) awaitMore(limit time.Duration, jobs int, what string) time.Duration {
	s.t.Helper()
	began, before := time.Now(), s.history.Check().Delivered
	await(s.t, limit, what, func() bool { return s.history.Check().Delivered >= before+jobs })
	return time.Since(began)
}

// judge waits for the last job and holds the whole run to the promises.
func (s *system) judge(stall *stallWatch, rate int, answers map[int]int, failovers int) (r checker.Result, fault string) {
	s.t.Helper()
	deadline := time.Now().Add(patience * 40 * time.Second)
	await(s.t, time.Minute, "every admitted job arrives", func() bool {
		r = s.history.Check()
		return len(r.Lost) == 0 || time.Now().After(deadline)
	})
	report(s.t, rate, r)
	s.t.Logf("answers by status: %v", answers)
	for _, id := range r.Lost {
		// A master that dies between its answer and the replica's copy takes the
		// write with it: then no trace of the job is left. One that is known, in
		// whatever state, is our loss.
		status, answer := s.request(http.MethodGet, "/v1/buckets/"+bucketName+"/jobs/"+id, "", nil)
		s.t.Logf("job %s was answered 202 and did not arrive; the store says %d %s", id, status, answer)
		if status != http.StatusNotFound || failovers == 0 {
			s.t.Errorf("job %s is lost", id)
		}
	}
	if len(r.Lost) > failovers { // the more the slower the replicas' copies are
		fault = fmt.Sprintf("%d jobs were lost with %d masters", len(r.Lost), failovers)
	}
	if len(r.Unexpected) > 0 || r.Admitted == 0 {
		s.t.Errorf("%d admitted, unexpected %v", r.Admitted, r.Unexpected)
	}
	for _, window := range []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second} {
		if got, most := r.MostIn(window), mostAfterLoss(window, rate, stall.soFar()); got > most {
			fault = fmt.Sprintf("%d in %s, want at most %d", got, window, most)
		}
	}
	return r, fault
}
