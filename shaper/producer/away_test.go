package producer_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// TestEnqueueWhileRedisHangs: many callers, also before the bucket was ever
// used, are all answered within the client's timeout and the time that one
// command in line before them takes. They do not wait for each other.
func TestEnqueueWhileRedisHangs(t *testing.T) {
	t.Parallel()
	const callers = 40
	for _, warm := range []bool{false, true} {
		t.Run(fmt.Sprintf("used_before_%v", warm), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := must.Get(redisconn.Connect(server.URL(), redisconn.Options{Timeout: 300 * time.Millisecond}))(t)
			t.Cleanup(func() { _ = client.Close() })
			const timeout = 400 * time.Millisecond
			c := must.Get(rig.NewActors(producer.Config{Redis: client, Buckets: []shaper.Bucket{rig.BucketAt(t, "away", "50/s")}, Timeout: timeout}))(t)
			began := time.Now()
			for used := !warm; !used; { // the timeout is short, and machines are busy
				_, err := c.Enqueue(t.Context(), shaper.Job{Bucket: "away", Payload: []byte("1")})
				if used = err == nil; !used && time.Since(began) > 20*time.Second {
					t.Fatal(err)
				}
			}
			server.Stop()
			defer server.Cont()
			start := time.Now()
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					_, err := c.Enqueue(t.Context(), shaper.Job{Bucket: "away", Payload: []byte("1")})
					if err == nil || !redisconn.Unavailable(err) {
						t.Errorf("enqueue while Redis hangs: %v", err)
					}
					var jobError *producer.JobError
					if errors.As(err, &jobError) {
						t.Errorf("it is no fault of the job: %v", err)
					}
				})
			}
			all.Wait()
			// One after the other they would take callers times as long.
			if took := time.Since(start); took > callers/4*timeout {
				t.Errorf("%d callers took %s, the timeout of one is %s", callers, took, timeout)
			}
		})
	}
}
