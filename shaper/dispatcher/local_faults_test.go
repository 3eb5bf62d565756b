package dispatcher

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// sickHost is a worker whose host has no resolver for as long as a test says: each attempt fails after ten seconds.
type sickHost struct {
	isSick atomic.Bool
	tries  atomic.Int64 // while it was sick
	first  atomic.Value // the id of the first job that it tried
	sent   atomic.Int64
}

func (h *sickHost) Deliver(ctx context.Context, attempt *shaper.Attempt) shaper.Outcome {
	if h.isSick.Load() {
		h.tries.Add(1)
		h.first.CompareAndSwap(nil, attempt.ID)
		sleep(ctx, 10*time.Second)
		return shaper.LocalFault("local_resolver", "i/o timeout", 20*time.Second)
	}
	if attempt.Depart() != nil {
		return shaper.Returned("late")
	}
	h.sent.Add(1)
	return shaper.Done(200)
}

// TestLocalFaults has two dispatchers, of which one cannot connect: the other one soon has the whole rate, no attempt is spent and no breaker
// opens. Where the sick one is alone, jobs wait, and are tried now and then.
func TestLocalFaults(t *testing.T) {
	t.Parallel()
	for _, isAlone := range []bool{false, true} {
		t.Run(fmt.Sprintf("alone %t", isAlone), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { localFaultsIn(t, !isAlone, isAlone) })
		})
	}
}

func localFaultsIn(t *testing.T, withFlows, isAlone bool) {
	const rate, jobs = 4, 400
	b := rig.Bucket("b", rate)
	if withFlows {
		b = rig.Flowing("b", shaper.FlowKeyJob)
		b.Rate = rig.PerSecond(rate)
	}
	b.Retry.MaxAttempts, b.Retry.MinBackoff, b.Retry.MaxBackoff = 1, time.Second, 3*time.Second
	b.Breaker = shaper.Breaker{Failures: 3, OpenFor: time.Minute, MaxOpen: time.Minute}
	mini := miniredis.NewMiniRedis()
	t.Cleanup(mini.Close)
	conn := rig.BubbleClient(t, mini.Dial)
	all := []shaper.Bucket{b}
	client := must.Get(producer.New(producer.Config{Timeout: rig.Patience, Redis: conn, Buckets: all}))(t)
	t.Cleanup(client.Close)
	log := &lockedBuffer{}
	sick, well := &sickHost{}, &sickHost{}
	sick.isSick.Store(true)
	hosts := []*sickHost{sick, well}
	if isAlone {
		hosts = hosts[:1]
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	for _, host := range hosts {
		d := must.Get(New(Config{Redis: conn, Buckets: all, Workers: rig.Workers(all, host), Logger: slog.New(slog.NewTextHandler(log, nil))}))(t)
		go func() { ended <- d.Run(ctx) }()
	}
	synctest.Wait()
	for i := range jobs {
		job := shaper.Job{Bucket: "b", ID: fmt.Sprint("j", i), Payload: []byte("x")}
		if withFlows {
			job.Flow = fmt.Sprint("f", i%50)
		}
		if receipts, err := client.Enqueue(t.Context(), job); err != nil || receipts[0].Refusal != nil {
			t.Fatalf("%+v, %v", receipts, err)
		}
	}
	<-time.After(30 * time.Second) // the sick one finds out
	before := well.sent.Load()
	<-time.After(time.Minute)
	if sent := well.sent.Load() - before; !isAlone && sent < rate*60*95/100 {
		t.Errorf("beside a sick dispatcher %d jobs were sent in a minute, of %d", sent, rate*60)
	}
	if tries := sick.tries.Load(); tries > 30*rate+20 {
		t.Errorf("the sick dispatcher tried %d jobs", tries)
	}
	if lines := log.lines("this host could not connect: no attempt is spent, and the dispatcher claims less while most attempts end so"); len(lines) < 1 || len(lines) > 3 || !strings.Contains(lines[0], "i/o timeout") {
		t.Errorf("logged: %q", lines)
	}
	if id, _ := sick.first.Load().(string); isAlone { // it has ended, and waits by itself for a while
		if info, err := client.Job(t.Context(), "b", id); err != nil || info.Attempts != 0 || info.Last.Reason != "local_resolver" {
			t.Errorf("job %q has spent %d attempts, the last one ended by %+v: %v", id, info.Attempts, info.Last, err)
		}
	}
	tries := sick.tries.Load()
	<-time.After(5 * time.Minute)
	if more := sick.tries.Load() - tries; isAlone && (more < 5 || more > 20) { // each takes 10 s, and a pause of 7.5 s or more follows it
		t.Errorf("in five minutes the sick dispatcher tried %d jobs, want a probe now and then", more)
	}
	sick.isSick.Store(false)
	<-time.After(5 * time.Minute)
	op := must.Get(operator.New(operator.Config{Redis: conn, Timeout: rig.Patience}))(t)
	infos := must.Get(op.BucketInfos(t.Context(), "b"))(t)
	info := infos[0]
	if sent := sick.sent.Load() + well.sent.Load(); sent != jobs || info.Dead > 0 || info.Unfinished > 0 {
		t.Errorf("sent: %d of %d; dead: %d, unfinished: %d", sent, jobs, info.Dead, info.Unfinished)
	}
	if lines := log.lines("a circuit breaker opened: its receiver does not work; only a probe leaves now and then"); len(lines) > 0 {
		t.Errorf("%q", lines)
	}
	if lines := log.lines("swept: leases ended without an outcome, as a dispatcher died, hung or was cut off from Redis; their jobs wait again"); len(lines) > 0 {
		t.Errorf("%q", lines)
	}
	if lines := log.lines("this host connects again"); isAlone && len(lines) != 1 {
		t.Errorf("logged: %q", lines)
	}
	stop()
	for range hosts {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
