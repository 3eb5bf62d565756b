package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// caller pushes a burst every so often, and nothing in between. The periods
// are such that bursts seldom meet.
type caller struct {
	name  string
	every time.Duration
}

var callers = []caller{
	{"shop", time.Second},
	{"billing", 1700 * time.Millisecond},
	{"importer", 2300 * time.Millisecond},
}

// chunk is the number of jobs in one call of a burst.
const chunk = 20

// push makes every caller push its share until ctx ends.
func (s *stage) push(ctx context.Context) {
	var pushing sync.WaitGroup
	for _, c := range callers {
		size := ceil(s.opts.Factor * float64(s.opts.Rate) * c.every.Seconds() / float64(len(callers)))
		pushing.Go(func() {
			ticker := time.NewTicker(c.every)
			defer ticker.Stop()
			for {
				s.burst(ctx, c.name, int(size))
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
			}
		})
	}
	pushing.Wait()
}

// burst pushes n jobs as fast as possible. It counts and drops refused jobs: a real caller would retry after Refusal.RetryAfter.
func (s *stage) burst(ctx context.Context, name string, n int) {
	for first := 0; first < n && ctx.Err() == nil; first += chunk {
		jobs := make([]shaper.Job, min(chunk, n-first))
		for i := range jobs {
			jobs[i] = shaper.Job{
				Bucket:   bucketName,
				Payload:  fmt.Appendf(nil, `{"from":%q,"job":%d}`, name, first+i),
				Identity: admission.Identity{Caller: name},
			}
		}
		// A call under way gets its response also after the time is over.
		receipts, err := s.client.Enqueue(context.WithoutCancel(ctx), jobs...)
		if s.reported.Load() {
			continue
		}
		at := time.Now()
		for _, receipt := range receipts {
			switch {
			case err != nil:
				s.history.Unknown(receipt.ID)
			case receipt.Refusal != nil:
				s.history.Refused(1, at)
				s.tally.refused(receipt.Refusal.Reason)
			default:
				s.history.Admitted(receipt.ID, at)
				s.tally.admitted()
			}
		}
	}
}
