package operator_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/tundishtest"
)

// judged is a bucket with a dispatcher whose receiver can be made to fail, in a bubble.
type judged struct {
	t      *testing.T
	conn   redis.UniversalClient
	b      shaper.Bucket
	op     *operator.Operator
	client *producer.Client
	stop   func() // the dispatcher; nil while none runs
	sent   int

	registry *prometheus.Registry // of the producer and the dispatcher, which are one process

	answer atomic.Pointer[shaper.Outcome] // of the receiver; nil: it accepts
	hangs  atomic.Pointer[chan struct{}]  // the receiver answers when it is closed
	late   atomic.Bool                    // the worker is not ready in time
}

func newVerdictRig(t *testing.T, change ...func(*shaper.Bucket)) *judged {
	t.Helper()
	j := judgeOn(t, tundishtest.Open(t).Redis(), change...)
	pass(6 * time.Second) // the fleet knows the dispatcher
	return j
}

// judgeOn is judge on any store, also outside of a bubble.
func judgeOn(t *testing.T, conn redis.UniversalClient, change ...func(*shaper.Bucket)) *judged {
	t.Helper()
	j := &judged{t: t, conn: conn, b: rig.Grouped("b", 2), registry: prometheus.NewRegistry()}
	j.b.Retry.MaxAttempts = 100
	for _, f := range change {
		if f != nil {
			f(&j.b)
		}
	}
	var err error
	if j.op, err = operator.New(operator.Config{Timeout: rig.Patience, Redis: j.conn, Buckets: []shaper.Bucket{j.b}}); err != nil {
		t.Fatal(err)
	}
	if j.client, err = producer.New(producer.Config{Timeout: rig.Patience, Redis: j.conn, Buckets: []shaper.Bucket{j.b}, Registerer: j.registry}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.client.Close)
	j.run()
	t.Cleanup(func() {
		j.repair()
		j.kill()
	})
	return j
}

// pass lets time pass, which in a bubble takes none.
func pass(d time.Duration) { <-time.After(d) }

func (j *judged) run() {
	worker := shaper.WorkerFunc(func(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
		if j.late.Load() {
			pass(5*time.Second + time.Millisecond)
		}
		if err := a.Depart(); err != nil {
			return shaper.Returned(shaper.ReasonLateConnect)
		}
		if hangs := j.hangs.Load(); hangs != nil {
			select {
			case <-*hangs:
			case <-ctx.Done():
			}
		}
		if answer := j.answer.Load(); answer != nil {
			return *answer
		}
		return shaper.Done(200)
	})
	buckets := []shaper.Bucket{j.b}
	d := must.Get(dispatcher.New(dispatcher.Config{
		Redis: j.conn, Timeout: rig.Patience, Buckets: buckets, Workers: rig.Workers(buckets, worker), Program: "dispatcher", Registerer: j.registry,
	}))(j.t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	j.stop = func() { cancel(); <-ended }
}

func (j *judged) kill() {
	if j.stop != nil {
		j.stop()
	}
	j.stop = nil
}

// repair has the receiver accept what it is sent, in time.
func (j *judged) repair() {
	j.answer.Store(nil)
	j.late.Store(false)
	if hangs := j.hangs.Swap(nil); hangs != nil {
		close(*hangs)
	}
}

func (j *judged) answers(o shaper.Outcome) { j.answer.Store(&o) }

// enqueue puts jobs into flow f of group g.
func (j *judged) enqueue(n int, change ...func(*shaper.Job)) {
	j.t.Helper()
	for range n {
		j.sent++
		job := shaper.Job{Bucket: "b", ID: fmt.Sprint(j.sent), Group: "g", Flow: "f", Payload: []byte("x"), Units: shaper.Units{"tokens": 10}}
		for _, f := range change {
			f(&job)
		}
		if receipts, err := j.client.Enqueue(j.t.Context(), job); err != nil || receipts[0].Refusal != nil {
			j.t.Fatal(receipts, err)
		}
	}
}

// verdict is the one of now. It holds that the jobs of its causes are what waits.
func (j *judged) verdict() operator.Verdict {
	j.t.Helper()
	v, waits, sum := j.readVerdict()
	if sum != v.Waits || v.Waits != waits {
		j.t.Errorf("the causes have %d jobs, and %d wait, by the bucket %d: %s %+v", sum, v.Waits, waits, v.Sentence(), v.Blocked)
	}
	return v
}

// readVerdict returns the verdict of now, how many jobs of the bucket wait, and how many the causes have.
func (j *judged) readVerdict() (v operator.Verdict, waits, sum int64) {
	j.t.Helper()
	infos := must.Get(j.op.BucketInfos(j.t.Context(), "b"))(j.t)
	all := must.Get(j.op.Verdicts(j.t.Context(), infos))(j.t)
	v = all[0]
	for _, c := range v.Blocked {
		sum += c.Jobs
	}
	return v, infos[0].Unfinished + infos[0].Scheduled - infos[0].InFlight, sum
}

// carryOut does what a cause says that helps: a command changes something, or shows what is to be repaired. Without one time helps.
func (j *judged) carryOut(c *operator.Blocked) {
	j.t.Helper()
	j.repair() // what is released while its receiver fails fails again
	words := c.Action
	if len(words) == 0 {
		words = c.Then
	}
	if len(words) == 0 {
		return
	}
	by, ctx := j.op.As("anna").Bucket("b"), j.t.Context()
	flow, group := by.Group("g").Flow("f"), by.Group("g")
	patch := func(text string) operator.BucketPatch {
		return rig.MustPatch(j.t, "max_in_flight", strings.TrimPrefix(text, "--max-in-flight="))
	}
	var err error
	switch strings.Join(words[:min(len(words), 2)], " ") {
	case "run":
		if j.stop == nil {
			j.run()
		}
	case "bucket resume":
		_, err = by.Resume(ctx)
	case "flow resume":
		_, err = flow.Resume(ctx)
	case "group resume":
		_, err = group.Resume(ctx)
	case "flow enable":
		_, err = flow.Enable(ctx)
	case "bucket release":
		_, err = by.Release(ctx)
	case "flow release":
		_, err = flow.Release(ctx)
	case "pool release":
		_, err = j.op.As("anna").Pool(words[2]).Release(ctx)
	case "bucket set":
		_, err = by.Set(ctx, patch(words[3]))
	case "flow set", "group set":
		var p operator.FlowPatch
		name, value, _ := strings.Cut(strings.TrimPrefix(words[2], "--"), "=")
		if err = p.Put(shaper.FlowSetting(strings.ReplaceAll(name, "-", "_")), value); err != nil {
			break
		}
		if words[0] == "flow" {
			_, err = flow.Set(ctx, p)
		} else {
			_, err = group.Set(ctx, p)
		}
	case "bucket drain":
		_, err = by.Drain(ctx, operator.DrainOptions{UntilEmpty: true})
	case "job list", "doctor", "fleet": // they show what is to be repaired
	default:
		j.t.Errorf("what does %q do?", c.Action)
	}
	if err != nil {
		j.t.Errorf("%s: %v", c.Action, err)
	}
}

// cure carries out what verdicts say that helps, until the bucket sends or is empty.
func (j *judged) cure() {
	j.t.Helper()
	for range 80 { // 53 minutes at least
		v := j.verdict()
		if v.Code == operator.WhySends || v.Code == operator.WhyEmpty {
			return
		}
		wait := 40 * time.Second
		for i := range v.Blocked {
			c := &v.Blocked[i]
			j.carryOut(c)
			if until := time.Until(c.Until); len(c.Action) == 0 && until > wait {
				wait = until + 10*time.Second
			}
		}
		pass(wait)
	}
	v := j.verdict()
	j.t.Errorf("after all that was said to help: %s: %s", v.Code, v.Sentence())
}

// silenced is a connection of a process that was killed: nothing comes through any more.
type silenced struct {
	redis.UniversalClient

	away *atomic.Bool
}

func (s silenced) Process(ctx context.Context, cmd redis.Cmder) error {
	if s.away.Load() {
		cmd.SetErr(context.DeadlineExceeded)
		return context.DeadlineExceeded
	}
	return s.UniversalClient.Process(ctx, cmd)
}
