package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/test/harness"
)

// TestAsynqDispatchersDie kills dispatchers between claim, hand-over and settlement, again and again. No handler crashes, so none runs twice.
func TestAsynqDispatchersDie(t *testing.T) {
	t.Parallel()
	kills, each := atSoak(12, 4), 150
	u := harness.StartAsynqUnder(t, 2*time.Second, 5*time.Millisecond)
	u.Post("die", (kills+2)*each)
	for kill := range kills {
		u.AwaitMore(each / 2)
		i := kill % len(u.Dispatchers)
		u.Dispatchers[i].Kill()
		u.Dispatchers[i] = u.Restart[i]()
	}
	if extra := u.End(); extra > 0 {
		t.Errorf("%d runs beyond the first, and no handler crashed", extra)
	}
}

// TestAsynqServersDie kills asynq servers in their handlers. Only what they ran may run again.
func TestAsynqServersDie(t *testing.T) {
	harness.OnlyInCI(t)
	t.Parallel()
	kills, each := atSoak(8, 2), 200
	u := harness.StartAsynqUnder(t, 2*time.Second, 50*time.Millisecond)
	for kill := range kills {
		u.Caught.Store(0)
		u.Doomed.Store(harness.PathOf(kill))
		u.Post(fmt.Sprint("crash", kill), each)
		harness.Await(t, time.Minute, "the server that is to die runs a task", func() bool { u.Sample(); return u.Caught.Load() > 0 })
		u.Servers[kill%2].Kill()
		u.Servers[kill%2] = u.StartServer(harness.PathOf(kill + 2)) //nolint:mnd // two servers run
	}
	if extra := u.End(); extra < kills {
		t.Errorf("%d runs beyond the first, and each of %d servers died in a task", extra, kills)
	} else if extra > kills*u.Plan.Workers {
		t.Errorf("%d runs beyond the first; the servers that died had %d at most", extra, kills*u.Plan.Workers)
	}
}

// TestAsynqRedisAway stops the Redis of asynq under load, for 10 s in a soak: the jobs are held, none is lost, and none runs twice.
func TestAsynqRedisAway(t *testing.T) {
	harness.OnlyInCI(t)
	t.Parallel()
	away := time.Duration(atSoak(10, 3)) * time.Second
	u := harness.StartAsynqUnder(t, 2*time.Second, 5*time.Millisecond)
	u.Post("away", 1000)
	u.AwaitMore(200)
	u.Tasks.Stop()
	began := time.Now()
	harness.Await(t, time.Minute, "the Redis of asynq has been away", func() bool {
		u.Sample()
		return time.Since(began) >= away
	})
	u.Tasks.Cont()
	u.AwaitMore(1)
	t.Logf("the first task started within %s of the return", time.Since(began)-away)
	if extra := u.End(); extra > 0 {
		t.Errorf("%d runs beyond the first", extra)
	}
	for _, d := range u.Dispatchers {
		if strings.Contains(d.Output.String(), "cause=poison") {
			t.Error("a job is called poison")
		}
	}
}
