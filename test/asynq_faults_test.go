package test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// asynqUnder is a bucket in front of asynq servers of two processes, with a Redis of its own for asynq.
type asynqUnder struct {
	*system

	tasks       *redistest.Server
	servers     []*process
	plan        asynqPlan
	maxInFlight int64
	most        int64        // leases at a time, as sampled
	doomed      atomic.Value // path at the receiver of the server that is to die: no request there is answered
	caught      atomic.Int64 // how many came there
}

func startAsynqUnder(t *testing.T, lease time.Duration, hold time.Duration) *asynqUnder {
	t.Helper()
	const perSecond, maxInFlight = 200, 100
	tasks := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	u := &asynqUnder{tasks: tasks, maxInFlight: maxInFlight}
	respond := func(_ http.ResponseWriter, r *http.Request, _ string, _ int) {
		answer := time.After(hold)
		if r.URL.Path == u.doomed.Load() {
			u.caught.Add(1)
			answer = nil
		}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}
	u.system = start(t, redistest.Start(t), plan{
		rate: perSecond, dispatchers: 2, lease: lease, maxInFlight: maxInFlight, respond: respond, asynq: asynqKeys(tasks.URL()),
	})
	u.plan = asynqPlan{Tasks: tasks.URL(), Tundish: u.redis.URL(), Receiver: u.receiver.URL, Workers: 50}
	for i := range 2 {
		u.servers = append(u.servers, u.startServer(pathOf(i)))
	}
	return u
}

func pathOf(server int) string { return fmt.Sprint("/", server) }

// startServer starts an asynq server whose handlers call that path of the receiver.
func (u *asynqUnder) startServer(path string) *process {
	u.t.Helper()
	p := u.plan
	p.Receiver += path
	return startAsynq(u.t, p)
}

// awaitMore waits until n more tasks have started, and looks at how many leases there are.
func (u *asynqUnder) awaitMore(n int) {
	u.t.Helper()
	before := u.history.Check().Delivered
	await(u.t, time.Minute, fmt.Sprintf("%d more tasks start", n), func() bool {
		u.sample()
		return u.history.Check().Delivered >= before+n || len(u.history.Check().Lost) == 0
	})
}

func (u *asynqUnder) sample() {
	u.t.Helper()
	leases, err := u.inspector.ZCard(u.t.Context(), u.key("leases")).Result()
	if err != nil {
		u.t.Fatal(err)
	}
	if u.most = max(u.most, leases); leases > u.maxInFlight {
		u.t.Errorf("%d leases, more than max_in_flight (%d)", leases, u.maxInFlight)
	}
}

// end waits for all jobs, and wants that none is lost, dead or left over.
func (u *asynqUnder) end() (duplicates int) {
	u.t.Helper()
	u.awaitDelivered(2 * time.Minute)
	await(u.t, time.Minute, "no job is left", func() bool { u.sample(); return u.unfinished() == 0 })
	r := u.history.Check()
	u.t.Logf("%s; %d extra runs; at most %d leases of %d", r, r.Extra, u.most, u.maxInFlight)
	if err := r.Err(); err != nil {
		u.t.Error(err)
	}
	if dead, err := u.inspector.ZCard(u.t.Context(), u.key("dead")).Result(); dead != 0 || err != nil {
		u.t.Errorf("%d dead letters, %v", dead, err)
	}
	return r.Extra
}

// TestAsynqDispatchersDie kills dispatchers between claim, hand-over and settlement, again and again. No handler crashes, so none runs twice.
func TestAsynqDispatchersDie(t *testing.T) {
	t.Parallel()
	kills, each := atSoak(12, 4), 150
	u := startAsynqUnder(t, 2*time.Second, 5*time.Millisecond)
	u.post("die", (kills+2)*each)
	for kill := range kills {
		u.awaitMore(each / 2)
		i := kill % len(u.dispatchers)
		u.dispatchers[i].kill()
		u.dispatchers[i] = u.restart[i]()
	}
	if extra := u.end(); extra > 0 {
		t.Errorf("%d runs beyond the first, and no handler crashed", extra)
	}
}

// TestAsynqServersDie kills asynq servers in their handlers. Only what they ran may run again.
func TestAsynqServersDie(t *testing.T) {
	onlyInCI(t)
	t.Parallel()
	kills, each := atSoak(8, 2), 200
	u := startAsynqUnder(t, 2*time.Second, 50*time.Millisecond)
	for kill := range kills {
		u.caught.Store(0)
		u.doomed.Store(pathOf(kill))
		u.post(fmt.Sprint("crash", kill), each)
		await(t, time.Minute, "the server that is to die runs a task", func() bool { u.sample(); return u.caught.Load() > 0 })
		u.servers[kill%2].kill()
		u.servers[kill%2] = u.startServer(pathOf(kill + 2)) //nolint:mnd // two servers run
	}
	if extra := u.end(); extra < kills {
		t.Errorf("%d runs beyond the first, and each of %d servers died in a task", extra, kills)
	} else if extra > kills*u.plan.Workers {
		t.Errorf("%d runs beyond the first; the servers that died had %d at most", extra, kills*u.plan.Workers)
	}
}

// TestAsynqRedisAway stops the Redis of asynq under load, for 10 s in a soak: the jobs are held, none is lost, and none runs twice.
func TestAsynqRedisAway(t *testing.T) {
	onlyInCI(t)
	t.Parallel()
	away := time.Duration(atSoak(10, 3)) * time.Second
	u := startAsynqUnder(t, 2*time.Second, 5*time.Millisecond)
	u.post("away", 1000)
	u.awaitMore(200)
	u.tasks.Stop()
	began := time.Now()
	await(t, time.Minute, "the Redis of asynq has been away", func() bool {
		u.sample()
		return time.Since(began) >= away
	})
	u.tasks.Cont()
	u.awaitMore(1)
	t.Logf("the first task started within %s of the return", time.Since(began)-away)
	if extra := u.end(); extra > 0 {
		t.Errorf("%d runs beyond the first", extra)
	}
	for _, d := range u.dispatchers {
		if strings.Contains(d.output.String(), "cause=poison") {
			t.Error("a job is called poison")
		}
	}
}
