package operator_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/tundishtest"
)

// A bucket whose permits come back unused says so, and why; so does the job.
func TestWhyNamesReturnedPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := tundishtest.Open(t).Redis()
		b := rig.Bucket("b", 10)
		op, err := operator.New(operator.Config{Timeout: rig.Patience, Redis: conn, Buckets: []shaper.Bucket{b}})
		if err != nil {
			t.Fatal(err)
		}
		client, err := producer.New(producer.Config{Timeout: rig.Patience, Redis: conn, Buckets: []shaper.Bucket{b}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
			<-time.After(5*time.Second + time.Millisecond)
			if a.Depart() != nil {
				return shaper.Returned("late")
			}
			return shaper.Done(200)
		})
		d, err := dispatcher.New(dispatcher.Config{
			Redis: conn, Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, worker), Program: "dispatcher", Registerer: prometheus.NewRegistry(),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		if _, err := client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: "far", Payload: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		<-time.After(29 * time.Second)
		stop() // the job is queued, for sure
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		info, err := op.Bucket("b").Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s, err := op.Fleet().Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		permits := s.Permits("b")
		permits.Late = map[string]int64{shaper.ReasonLateConnect: 4} // the dispatcher has left the fleet, with its counts
		if why := info.Why(true, permits); why.Code != operator.WhyLate || !strings.Contains(why.Sentence, "connecting") {
			t.Errorf("the bucket says %+v", why)
		}
		permits.Departed = 1000
		if why := info.Why(true, permits); why.Code != operator.WhySends || !strings.Contains(why.Sentence, "1 % of its permits came back unused") {
			t.Errorf("with few of them the bucket says %+v", why)
		}
		job, err := op.Bucket("b").Job("far").Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if job.Attempts != 0 || job.Returned < 3 || !strings.Contains(job.Why(), "permits came back unused") {
			t.Errorf("the job was returned %d times, and says %q", job.Returned, job.Why())
		}
	})
}
