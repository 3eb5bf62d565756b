package harness

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tundish-io/tundish/internal/checker"
)

// BusyKey is a key of the bucket under test. Its keys are in one slot; any of them names it.
const BusyKey = "tundish:{" + BucketName + "}:b:" + BucketName + ":body"

// What a failover may cost at most. The receiver sees what the slots allow, and
// permits of workers that took their time to connect, but less than permit_ttl.
const (
	ClusterResume  = 6 * time.Second
	SentinelResume = 5 * time.Second
	PermitTTL      = 250 * time.Millisecond
	lostWrites     = 100 * time.Millisecond // of a master that is killed: loopback is fast
)

// mostAfterLoss returns how many jobs may arrive in a window around a failover.
func mostAfterLoss(window time.Duration, rate int, stall time.Duration) int {
	return MostIn(window, rate, PermitTTL+stall) + int(float64(rate)*lostWrites.Seconds()) + 1
}

// Stream is a steady load of single jobs, with the results.
type Stream struct {
	s    *System
	stop chan struct{}
	all  sync.WaitGroup

	mu      sync.Mutex
	answers map[int]int
}

// Load sends perSecond jobs a second until end.
func (s *System) Load(prefix string, perSecond int) *Stream {
	const callers = 10
	l := &Stream{s: s, stop: make(chan struct{}), answers: map[int]int{}}
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
				status := s.Send(fmt.Sprintf("%s%d-%d", prefix, caller, i))
				l.mu.Lock()
				l.answers[status]++
				l.mu.Unlock()
			}
		})
	}
	return l
}

// End stops the load and returns how often each status was returned.
func (l *Stream) End() map[int]int {
	close(l.stop)
	l.all.Wait()
	return l.answers
}

// AwaitMore waits until jobs more jobs have arrived, and returns how long that took.
func (s *System) AwaitMore(limit time.Duration, jobs int, what string) time.Duration {
	s.T.Helper()
	began, before := time.Now(), s.History.Check().Delivered
	Await(s.T, limit, what, func() bool { return s.History.Check().Delivered >= before+jobs })
	return time.Since(began)
}

// Judge waits for the last job and checks the whole run against the promises.
func (s *System) Judge(stall *StallWatch, rate int, answers map[int]int, failovers int) (r checker.Result, fault string) {
	s.T.Helper()
	deadline := time.Now().Add(Patience * 40 * time.Second)
	Await(s.T, time.Minute, "every admitted job arrives", func() bool {
		r = s.History.Check()
		return len(r.Lost) == 0 || time.Now().After(deadline)
	})
	Report(s.T, rate, r)
	s.T.Logf("answers by status: %v", answers)
	for _, id := range r.Lost {
		// A master that dies between its reply and the replica's copy takes the write with it: then no trace of the job remains. A job that is still
		// known, in any state, is our loss.
		status, answer := s.Request(http.MethodGet, "/v1/buckets/"+BucketName+"/jobs/"+id, "", nil)
		s.T.Logf("job %s was answered 202 and did not arrive; the store says %d %s", id, status, answer)
		if status != http.StatusNotFound || failovers == 0 {
			s.T.Errorf("job %s is lost", id)
		}
	}
	if len(r.Lost) > failovers { // the more the slower the replicas' copies are
		fault = fmt.Sprintf("%d jobs were lost with %d masters", len(r.Lost), failovers)
	}
	if len(r.Unexpected) > 0 || r.Admitted == 0 {
		s.T.Errorf("%d admitted, unexpected %v", r.Admitted, r.Unexpected)
	}
	for _, window := range []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second} {
		if got, most := r.MostIn(window), mostAfterLoss(window, rate, stall.SoFar()); got > most {
			fault = fmt.Sprintf("%d in %s, want at most %d", got, window, most)
		}
	}
	return r, fault
}
