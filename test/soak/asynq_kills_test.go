//go:build soak

package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/test/harness"
)

// asynqKilled is a bucket in front of asynq servers, with a dispatcher that dies at points that a test forces. Proxies stand between
// this dispatcher and both Redis servers. Nothing else uses them.
type asynqKilled struct {
	*harness.AsynqUnder

	tundish, handover *faultproxy.Proxy // to the Redis of Tundish, to that of asynq
	config            string            // of the dispatcher
	kills             int
}

const killedInFlight = 40

func startAsynqKilled(t *testing.T, moreKeys string) *asynqKilled {
	t.Helper()
	const perSecond, lease = 400, 2 * time.Second
	tasks := redistest.Start(t)
	u := &asynqKilled{AsynqUnder: &harness.AsynqUnder{Tasks: tasks, MaxInFlight: killedInFlight}}
	u.System = harness.Start(t, redistest.Start(t), harness.Plan{
		Rate: perSecond, Lease: lease, MaxInFlight: killedInFlight, Hold: 20 * time.Millisecond, Asynq: harness.AsynqKeys(tasks.URL()) + moreKeys,
	})
	u.Plan = harness.AsynqPlan{Tasks: tasks.URL(), Tundish: u.Redis.URL(), Receiver: u.Receiver.URL, Workers: 50}
	u.tundish, u.handover = proxyTo(t, u.Redis), proxyTo(t, tasks)
	text, err := os.ReadFile(u.Config)
	if err != nil {
		t.Fatal(err)
	}
	u.config = filepath.Join(t.TempDir(), "killed.toml")
	proxied := strings.NewReplacer(u.Redis.URL(), "redis://"+u.tundish.Addr(), tasks.URL(), "redis://"+u.handover.Addr()).Replace(string(text))
	if err := os.WriteFile(u.config, []byte(proxied), 0o600); err != nil {
		t.Fatal(err)
	}
	return u
}

func proxyTo(t *testing.T, server *redistest.Server) *faultproxy.Proxy {
	t.Helper()
	proxy, err := faultproxy.New(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	return proxy
}

// handedOver counts the tasks that wait in asynq and those that have started.
func (u *asynqKilled) handedOver() int64 {
	u.T.Helper()
	waiting, err := u.Tasks.Client().LLen(u.T.Context(), "asynq:{"+harness.AsynqQueue+"}:pending").Result()
	if err != nil {
		u.T.Fatal(err)
	}
	return waiting + int64(u.History.Check().Delivered)
}

func (u *asynqKilled) leases() int64 {
	u.Sample()
	return u.Inspector.ZCard(u.T.Context(), u.Key("leases")).Val()
}

// killPoint is where a dispatcher dies. arm prepares it, and returns what waits until the dispatcher is there. That runs with the bucket
// resumed. The dispatcher is killed right after it.
type killPoint struct {
	name string
	arm  func(u *asynqKilled) (reached func())
}

// dropAndFreeze is a point at which Redis has carried out a request, and the dispatcher never hears so.
func dropAndFreeze(proxy func(*asynqKilled) *faultproxy.Proxy, name, match string) killPoint {
	return killPoint{name, func(u *asynqKilled) func() {
		lost := proxy(u).DropReply(match)
		return func() {
			select {
			case <-lost:
			case <-time.After(harness.Patience * 20 * time.Second):
				u.T.Fatalf("%s: the dispatcher did not come there", name)
			}
			proxy(u).Freeze()
		}
	}}
}

func toTundish(u *asynqKilled) *faultproxy.Proxy { return u.tundish }
func toAsynq(u *asynqKilled) *faultproxy.Proxy   { return u.handover }

var (
	claimNotHeard    = dropAndFreeze(toTundish, "claimed, and it has not heard", lua.Claim.SHA()+"\r\n")
	handoverNotHeard = dropAndFreeze(toAsynq, "handed over, and it has not heard", "asynq:{"+harness.AsynqQueue+"}:t:")
	extendNotHeard   = dropAndFreeze(toTundish, "extended the leases, and it has not heard", lua.Extend.SHA()+"\r\n")
	settleNotHeard   = dropAndFreeze(toTundish, "settled, and it has not heard", lua.Settle.SHA()+"\r\n")

	claimedOnly = killPoint{"claimed, and nothing is handed over", func(u *asynqKilled) func() {
		u.handover.Freeze()
		return func() {
			harness.Await(u.T, 20*time.Second, "jobs are claimed", func() bool { return u.leases() > 0 })
		}
	}}
	handedOverOnly = killPoint{"handed over, and nothing after it", func(u *asynqKilled) func() {
		u.handover.Freeze()
		before := u.handedOver()
		return func() {
			looks := 0 // at leases in a row: the dispatcher is to hear of its claim, and jobs that were late to leave are claimed again
			harness.Await(u.T, 20*time.Second, "jobs are claimed", func() bool {
				if looks++; u.leases() == 0 {
					looks = 0
				}
				return looks > 15
			})
			u.tundish.Freeze()
			u.handover.Thaw()
			harness.Await(u.T, 20*time.Second, "tasks are in asynq", func() bool { return u.handedOver() > before })
		}
	}}
)

// die starts a dispatcher and kills it at a point. Before that no job is leased, so that what it claims there is new to it.
func (u *asynqKilled) die(at killPoint) {
	u.T.Helper()
	u.Operate("pause", harness.BucketName)
	d := harness.Run(u.T, u.Ops, "dispatcher", "run", "--config", u.config)
	harness.Await(u.T, 30*time.Second, "leases of the dispatcher before are over", func() bool { return u.leases() == 0 })
	reached := at.arm(u)
	u.Operate("resume", harness.BucketName)
	reached()
	d.Kill()
	u.kills++
	for _, proxy := range []*faultproxy.Proxy{u.tundish, u.handover} {
		proxy.CutAll() // what is frozen is lost
		proxy.Thaw()
	}
}

// finish runs a dispatcher that lives, and judges.
func (u *asynqKilled) finish() {
	u.T.Helper()
	harness.Run(u.T, u.Ops, "dispatcher", "run", "--config", u.config)
	if extra := u.End(); extra > 0 {
		u.T.Errorf("%d runs beyond the first, and no handler crashed", extra)
	}
}

// crashes are those of all jobs that are not finished.
func (u *asynqKilled) crashes() (jobs, crashes, lost int) {
	u.T.Helper()
	metas, err := u.Inspector.HGetAll(u.T.Context(), u.Key("meta")).Result()
	if err != nil {
		u.T.Fatal(err)
	}
	for id, meta := range metas {
		var state, epoch, attempts, lostHere, crashed int
		if _, err := fmt.Sscan(meta, &state, &epoch, &attempts, &lostHere, &crashed); err != nil {
			u.T.Fatalf("job %s has the meta %q: %v", id, meta, err)
		}
		jobs, crashes, lost = jobs+1, crashes+crashed, lost+lostHere
	}
	return jobs, crashes, lost
}

// TestAsynqKilledAtEachPoint kills the dispatcher at each point between claim and settlement, while asynq servers run. No handler crashes, so no
// job may run twice.
func TestAsynqKilledAtEachPoint(t *testing.T) {
	t.Parallel()
	const rounds, each = 5, 60
	for _, way := range []struct {
		name, keys string
		points     []killPoint
	}{
		{"handler", "", []killPoint{claimNotHeard, claimedOnly, handoverNotHeard, handedOverOnly, extendNotHeard}},
		// The same jobs are handed over again and again, for longer than the minute that asynq remembers a completed task by default.
		{"handover", "settle = \"handover\"\nretention = \"10m\"\n", []killPoint{claimNotHeard, claimedOnly, handoverNotHeard, handedOverOnly, settleNotHeard}},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			u := startAsynqKilled(t, way.keys)
			for range 2 {
				u.Servers = append(u.Servers, harness.StartAsynq(t, u.Plan))
			}
			for round := range rounds {
				for i, point := range way.points {
					u.Post(fmt.Sprintf("%s-%d-%d", way.name, round, i), each)
					u.die(point)
				}
			}
			u.finish()
			t.Logf("%d kills at %d points", u.kills, len(way.points))
		})
	}
}

// TestAsynqKilledAgainAndAgain kills dispatchers that have the same jobs, more often than a job may crash, while no asynq server runs. None of
// these jobs has started, so none is poison. Then servers start, and each job runs once: the tasks of dead dispatchers are revoked.
func TestAsynqKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	const rounds = 3
	points := []killPoint{claimNotHeard, claimedOnly, handoverNotHeard, handedOverOnly, extendNotHeard}
	u := startAsynqKilled(t, "")
	u.Post("again", killedInFlight/2)
	for range rounds {
		for _, point := range points {
			u.die(point)
		}
	}
	u.die(handedOverOnly) // waits until what the last one had is taken back
	jobs, crashes, lost := u.crashes()
	if crashes > 0 {
		t.Errorf("%d crashes of %d jobs that never started", crashes, jobs)
	}
	if jobs == 0 || lost <= shaper.MaxCrashes*jobs {
		t.Errorf("%d jobs lost their leases %d times: too few to show anything", jobs, lost)
	}
	waiting := u.handedOver()
	for range 2 {
		harness.StartAsynq(t, u.Plan)
	}
	u.finish()
	t.Logf("%d kills; %d jobs lost %d leases and counted %d crashes; %d tasks were in asynq when its servers started", u.kills, jobs, lost, crashes, waiting)
}
