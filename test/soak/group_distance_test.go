//go:build soak

package soak

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/test/harness"
)

// TestGroupsFromAfar: in a bucket with groups a claim takes three questions, one after the other, and a
// far Redis costs no slots for all that. What it costs to start is not counted, nor may any window of
// slots have more in it than the rate allows. A round trip takes a twentieth longer than it is far, for a
// network and a Redis are never as quick as those of a bubble.
func TestGroupsFromAfar(t *testing.T) {
	t.Parallel()
	for rate, length := range map[int]time.Duration{100: 5 * time.Second, 1000: 1200 * time.Millisecond} {
		for _, roundTrip := range []time.Duration{0, 10 * time.Millisecond, 50 * time.Millisecond} {
			for _, dispatchers := range []int{1, 4} {
				t.Run(fmt.Sprintf("%d_%s_%d", rate, roundTrip, dispatchers), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						w := newGroupWorld(t, rate, roundTrip+roundTrip/20, rate*int((setUp+length+time.Second)/time.Second))
						w.groupsFromAfar(t, rate, dispatchers, length)
					})
				})
			}
		}
	}
}

// setUp is how long dispatchers may take until they are connected and have loaded the scripts.
const setUp = time.Second

func (w *groupWorld) groupsFromAfar(t *testing.T, rate, dispatchers int, length time.Duration) {
	t.Helper()
	clients := make([]redis.UniversalClient, dispatchers)
	for i := range clients {
		clients[i] = w.far(t)
	}
	began := time.Now().Add(setUp)
	runDispatchers(t, clients, w.bucket, &w.history, func() { time.Sleep(setUp + length) }) // in a bubble: no time passes

	all := w.given()
	share := float64(len(all.Within(began, began.Add(length)))) / (float64(rate) * length.Seconds())
	t.Logf("%.2f %% of the rate; ahead of it by at most %s in any window; calls %v", 100*share, all.Early(rate), w.ledger.Asked)
	if share < .98 {
		t.Errorf("%.2f %% of the rate", 100*share)
	}
	if early := all.Early(rate); early >= time.Microsecond {
		t.Errorf("the slots of some window are %s ahead of the rate", early)
	}
	if r := w.history.Check(); r.Extra > 0 || len(r.Unexpected) > 0 || r.Delivered != len(all) {
		t.Errorf("%d slots, %d deliveries, %d of them a second time, unexpected %v", len(all), r.Delivered, r.Extra, r.Unexpected)
	}
	// Nobody would see a group that is left reserved, for a second.
	groups, err := w.connect(t, 0).ZRangeWithScores(t.Context(), groupCalendar, 0, -1).Result()
	if err != nil {
		t.Error(err)
	}
	for _, g := range groups {
		if wait := time.Until(time.UnixMicro(int64(g.Score))); wait > 300*time.Millisecond {
			t.Errorf("group %s is reserved by nobody for %s", g.Member, wait)
		}
	}
}

// TestGroupsFromAfarRunDry: what is reserved ahead loses nothing when the last jobs leave, and who has
// nothing to do asks for nothing.
func TestGroupsFromAfarRunDry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, jobs = 100, 250
		w := newGroupWorld(t, rate, 50*time.Millisecond, jobs)
		idle := 0
		runDispatchers(t, []redis.UniversalClient{w.far(t), w.far(t)}, w.bucket, &w.history, func() {
			time.Sleep(10 * time.Second) // in a bubble: no time passes
			before := w.asked(lua.Reserve, lua.ReserveFlows, lua.Claim)
			time.Sleep(15 * time.Second) // nor here
			idle = w.asked(lua.Reserve, lua.ReserveFlows, lua.Claim) - before
		})
		if r := w.history.Check(); r.Delivered != jobs || r.Extra > 0 {
			t.Errorf("%d jobs, %d deliveries, %d of them a second time", jobs, r.Delivered, r.Extra)
		}
		if idle > 0 {
			t.Errorf("%d calls for jobs while there were none", idle)
		}
	})
}

// TestReserverDies: a dispatcher that has reserved all groups, also those of its next claim, dies at any
// of its steps. That costs no more than the second that they are reserved for, and no more than the
// claims of another then take.
func TestReserverDies(t *testing.T) {
	t.Parallel()
	const rate, roundTrip = 100, 50 * time.Millisecond
	for _, later := range []time.Duration{0, 40 * time.Millisecond, 80 * time.Millisecond} {
		t.Run(later.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newGroupWorld(t, rate, roundTrip, 8*rate)
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				begin := func() *mortal {
					m, client := &mortal{}, w.far(t)
					client.AddHook(m) // within those that note what was answered
					running.Go(func() { _ = runDispatcher(ctx, client, w.bucket, func(*shaper.Attempt) {}) })
					return m
				}
				m := begin()
				time.Sleep(2*time.Second + later) // it serves alone
				begin()
				time.Sleep(2 * time.Second) // the other one stands by
				m.dead.Store(true)
				time.Sleep(3 * time.Second)
				stop()
				running.Wait()

				all, gap := w.given(), time.Duration(0)
				for i, at := range all[1:] {
					gap = max(gap, time.Duration(at-all[i])*time.Microsecond)
				}
				t.Logf("%d slots; %s without any", len(all), gap)
				if most := time.Second + 4*roundTrip; gap > most {
					t.Errorf("%s without slots, want at most %s", gap, most)
				}
			})
		})
	}
}

// What the worlds of this file have, and where its groups have their turns.
const (
	groupsAfar    = 20
	flowsOfEach   = 5
	groupCalendar = "tundish:{" + harness.BucketName + "}:b:" + harness.BucketName + ":due_groups"
)

// groupWorld is a [world] of a bucket with groups, which begins within its bubble.
type groupWorld struct {
	world
	slots groupSlots
	began time.Time // when all have started, see slowly
}

func newGroupWorld(t *testing.T, rate int, roundTrip time.Duration, jobs int) *groupWorld {
	t.Helper()
	return newPartedWorld(t, rate, roundTrip, jobs, parted{groupsAfar, flowsOfEach})
}

// parted is how the jobs of a world are in flows, and these in groups, unless there are none.
type parted struct{ groups, flowsOfEach int }

func newPartedWorld(t *testing.T, rate int, roundTrip time.Duration, jobs int, p parted) *groupWorld {
	t.Helper()
	w := &groupWorld{world: world{store: miniredis.NewMiniRedis(), bucket: pacedBucket(rate), roundTrip: roundTrip}}
	w.store.ClockTTL(true)
	t.Cleanup(w.store.Close)
	flow, group := shaper.DefaultFlowSettings(), shaper.DefaultGroupSettings()
	flow.Key, group.Key = shaper.FlowKeyJob, shaper.FlowKeyJob
	w.bucket.Flow, w.bucket.Group = &flow, &group
	if p.groups == 0 {
		w.bucket.Group = nil
	}
	list := make([]shaper.Job, jobs)
	for i := range list {
		list[i] = shaper.Job{ID: fmt.Sprintf("fill-%d", i), Flow: fmt.Sprintf("f%d", i/max(p.groups, 1)%p.flowsOfEach)}
		if p.groups > 0 {
			list[i].Group = fmt.Sprintf("g%d", i%p.groups)
		}
	}
	w.enqueue(t, list...)
	return w
}

// enqueue puts jobs into the bucket, which has groups or not.
func (w *groupWorld) enqueue(t *testing.T, jobs ...shaper.Job) {
	t.Helper()
	client, err := producer.New(producer.Config{Redis: w.connect(t, 0), Buckets: []shaper.Bucket{w.bucket}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		jobs[i].Bucket, jobs[i].Payload = w.bucket.Name, []byte(`{}`)
		if w.bucket.Group == nil {
			jobs[i].Group = ""
		}
		w.history.Unknown(jobs[i].ID)
	}
	for some := range slices.Chunk(jobs, 500) {
		receipts, err := client.Enqueue(t.Context(), some...)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range receipts {
			if r.Refusal != nil {
				t.Fatal(r.Refusal.Detail)
			}
		}
	}
}

// far is the connection of a process.
func (w *groupWorld) far(t *testing.T) *redis.Client {
	t.Helper()
	client := w.connect(t, w.roundTrip)
	client.AddHook(&w.ledger)
	client.AddHook(&w.slots)
	return client
}

// given are the slots that were handed out.
func (w *groupWorld) given() harness.Slots {
	w.slots.mu.Lock()
	defer w.slots.mu.Unlock()
	return slices.Sorted(slices.Values(w.slots.all))
}

// turns are how many slots the flow has that got the fewest of so many, and the one that got the most.
func (w *groupWorld) turns(flows int) (fewest, most int) {
	w.slots.mu.Lock()
	defer w.slots.mu.Unlock()
	each := slices.Sorted(maps.Values(w.slots.byFlow))
	if len(each) == 0 {
		return 0, 0
	}
	if len(each) == flows {
		fewest = each[0]
	}
	return fewest, each[len(each)-1]
}

// asked is how often the scripts were sent.
func (w *groupWorld) asked(scripts ...*lua.Script) (sum int) {
	w.ledger.Mu.Lock()
	defer w.ledger.Mu.Unlock()
	for _, script := range scripts {
		sum += w.ledger.Asked[script.Name()]
	}
	return sum
}

// groupSlots is a hook that notes the slots that claims hand out in a bucket with flows, and how many each flow gets.
type groupSlots struct {
	mu     sync.Mutex
	all    []int64
	byFlow map[string]int
}

func (g *groupSlots) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *groupSlots) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		g.note(cmd)
		return err
	}
}

func (g *groupSlots) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			g.note(cmd)
		}
		return err
	}
}

// note reads the answer of a claim.
func (g *groupSlots) note(cmd redis.Cmder) {
	reply, ok := cmd.(interface{ Val() any })
	if !ok || cmd.Err() != nil || lua.ScriptOf(cmd) != lua.Claim {
		return
	}
	r := lua.NewReader(reply.Val())
	for range 12 {
		_ = r.Int()
	}
	var slots []int64
	var flows []string
	for range r.Int() {
		_, slot, _ := r.Text(), r.Int(), r.Text()
		flow, _ := r.Text(), r.Text()
		slots, flows = append(slots, slot), append(flows, flow)
	}
	if r.Err() != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, slots...)
	if g.byFlow == nil {
		g.byFlow = make(map[string]int)
	}
	for _, flow := range flows {
		g.byFlow[flow]++
	}
}
