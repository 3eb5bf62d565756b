package dispatcher

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// A stop while Redis is silent and 20 deliveries are under way ends within the shutdown timeout and 5 s, whether or not the responses come.
func TestStopWithASilentRedis(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		shutdown time.Duration
		responds bool
		most     time.Duration
	}{
		"no response comes":  {time.Second, false, 6 * time.Second},
		"all responses come": {time.Hour, true, settlePatience + 5*time.Second}, // not an hour
		"no time to wait":    {time.Nanosecond, false, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.shutdown > time.Minute && !redistest.Soak {
				t.Skip("it takes settlePatience")
			}
			w := rig.NewWorld(t, rig.Bucket("b", 1000))
			const jobs = 20
			started, respond := make(chan struct{}, jobs), make(chan struct{})
			worker := shaper.WorkerFunc(func(ctx context.Context, _ *shaper.Attempt) shaper.Outcome {
				started <- struct{}{}
				select {
				case <-respond:
				case <-ctx.Done():
					return shaper.Retry("interrupted", "")
				}
				return shaper.Done(200)
			})
			stop := dispatch(w, worker, func(cfg *Config) { cfg.ShutdownTimeout, cfg.Timeout = c.shutdown, time.Second })
			w.Enqueue(jobs)
			for range jobs {
				<-started
			}
			w.Server.Stop()
			defer w.Server.Cont()
			if c.responds {
				close(respond)
			}
			began := time.Now()
			err := stop()
			if took := time.Since(began); took > c.most {
				t.Errorf("the stop took %s, want at most %s (%v)", took, c.most, err)
			} else {
				t.Log(took, err)
			}
			if err == nil || c.responds && !strings.Contains(err.Error(), "Redis did not take") {
				t.Errorf("outcomes are not in Redis: %v", err)
			}
		})
	}
}
