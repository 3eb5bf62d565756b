package dispatcher

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Two buckets and two dispatchers: all slots together obey the rate of the pool, and no more are in flight than may be. Their
// shares depend on how fast the machine is: shaper/internal/scripts/fair_queue_test.go and test/soak/pool_test.go judge them.
func TestPoolOverTwoDispatchers(t *testing.T) {
	t.Parallel()
	const rate, burst, most, jobs = 200, 3, 30, 150
	pool := shaper.Pool{Name: "vendor", Rate: rig.PerSecond(rate), Burst: burst, MaxInFlight: most, Quotas: []admission.Rate{{Count: 5000, Per: time.Hour, Unit: admission.UnitRequests}}}
	w := rig.NewPoolWorld(t, rig.Pooled("a", 1000, 3, pool), rig.Pooled("b", 1000, 1, pool))
	w.Enqueue("a", 3*jobs, nil)
	w.Enqueue("b", jobs, nil)
	arrived := make(chan struct{}, 4*jobs)
	var flying, highest atomic.Int64
	claims := &slotLog{}
	run(w, 2, shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome {
		n := flying.Add(1)
		defer flying.Add(-1)
		for old := highest.Load(); n > old && !highest.CompareAndSwap(old, n); old = highest.Load() {
		}
		arrived <- struct{}{}
		return shaper.Done(200)
	}), claims)
	for range 4 * jobs {
		<-arrived
	}
	if n := highest.Load(); n > most {
		t.Errorf("%d were in flight, at most %d may be", n, most)
	}
	slots := claims.all()
	if len(slots) < 4*jobs {
		t.Fatalf("%d slots were claimed", len(slots))
	}
	slices.Sort(slots)
	for i := burst; i < len(slots); i++ {
		for from := 0; from+burst <= i; from++ {
			if need := int64(i-from+1-burst) * time.Second.Microseconds() / rate; slots[i]-slots[from]+1 < need {
				t.Fatalf("%d slots in %d µs", i-from+1, slots[i]-slots[from])
			}
		}
	}
}

// slotLog notes the slots that claims hand out in buckets without flows, by the clock of Redis: those that are given back, too.
type slotLog struct {
	mu    sync.Mutex
	slots []int64
}

func (l *slotLog) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *slotLog) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if reply, ok := cmd.(interface{ Val() any }); ok && err == nil && lua.ScriptOf(cmd) == lua.Claim {
			l.note(lua.NewReader(reply.Val()))
		}
		return err
	}
}

func (l *slotLog) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// note reads a claim's answer, as claim.lua has it.
func (l *slotLog) note(r *lua.Reader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const numbersBefore = 12
	for range numbersBefore {
		_ = r.Int()
	}
	for range r.Int() {
		_, slot, _ := r.Text(), r.Int(), r.Text()
		l.slots = append(l.slots, slot)
	}
}

func (l *slotLog) all() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.slots)
}

// A bucket whose pool has no place free is woken by one of another bucket that ends.
func TestPoolPlaceIsPassedOn(t *testing.T) {
	t.Parallel()
	pool := shaper.Pool{Name: "vendor", Rate: rig.PerSecond(1000), MaxInFlight: 1}
	w := rig.NewPoolWorld(t, rig.Pooled("a", 1000, 1, pool), rig.Pooled("b", 1000, 1, pool))
	worker := rig.NewWaiting()
	run(w, 2, worker)
	w.Enqueue("a", 1, nil)
	<-worker.Began
	w.Enqueue("b", 1, nil)
	for w.Server.Client().ZScore(t.Context(), store.PoolPrefix("vendor")+"held", "b").Err() != nil { // until b has been told so
		runtime.Gosched()
	}
	info, err := w.Client.Job(t.Context(), "b", "b0")
	if err != nil || !slices.Contains(info.BlockedBy(), shaper.Blocker{Scope: shaper.ScopePool, Reason: shaper.BlockMaxInFlight}) || !strings.Contains(info.Why(), `1 of at most 1 of pool "vendor" are in flight`) {
		t.Errorf("%v: %q, %v", info.BlockedBy(), info.Why(), err)
	}
	infos, err := w.Client.Op.BucketInfos(t.Context(), "b")
	if err != nil || infos[0].Pool == nil || infos[0].Pool.Name != "vendor" || infos[0].Pool.InFlight != 1 || infos[0].Pool.MaxInFlight != 1 ||
		infos[0].Pool.Rate != pool.Rate || infos[0].Pool.Burst != 1 || infos[0].Pool.Weight != 1 || infos[0].Pool.LastSlot.IsZero() {
		t.Errorf("b's pool: %+v, %v", infos, err)
	}
	select {
	case a := <-worker.Began:
		t.Fatalf("%s is on its way, too", a.ID)
	default:
		worker.End <- shaper.Done(200)
	}
	must.Equal(t, (<-worker.Began).ID, "b0", "began")
	worker.End <- shaper.Done(200)
}

// Flows and groups of a bucket in a pool.
func TestPoolOfFlows(t *testing.T) {
	t.Parallel()
	pool := shaper.Pool{Name: "vendor", Rate: rig.PerSecond(500), MaxInFlight: 10}
	flowing, grouped := rig.Pooled("flowing", 1000, 1, pool), rig.Pooled("grouped", 1000, 2, pool)
	flow, group := shaper.DefaultFlowSettings(), shaper.DefaultGroupSettings()
	flow.Key, group.Key = shaper.FlowKeyJob, shaper.FlowKeyJob
	flowing.Flow, grouped.Flow, grouped.Group = &flow, &flow, &group
	w := rig.NewPoolWorld(t, flowing, grouped)
	for _, bucket := range []string{"flowing", "grouped"} {
		n := 0
		w.Enqueue(bucket, 60, func(job *shaper.Job) {
			job.Flow = fmt.Sprint("f", n%7)
			if bucket == "grouped" {
				job.Group = fmt.Sprint("g", n%3)
			}
			n++
		})
	}
	arrived := make(chan struct{}, 200)
	run(w, 2, shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { arrived <- struct{}{}; return shaper.Done(200) }))
	for range 120 {
		<-arrived
	}
}

// A bucket joins or leaves a pool with its jobs, and takes with it what operators said.
func TestTagOfABucketThatJoinsAPool(t *testing.T) {
	t.Parallel()
	pool := shaper.Pool{Name: "vendor", Rate: rig.PerSecond(100)}
	own := rig.Bucket("b", 100)
	own.DedupeWindow = 0
	w := rig.NewPoolWorld(t, own)
	must.OK(t, w.Client.Op.As("anna").Bucket("b").Pause(t.Context(), "tests"))
	w.Enqueue("b", 1, nil)
	joined := w.ClientOf(rig.In(&pool, own))
	must.OK(t, joined.JoinPools(t.Context()))
	if receipts, err := joined.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: "x", Payload: []byte("x")}); err != nil || receipts[0].Refusal != nil {
		t.Fatalf("%+v, %v", receipts, err)
	}
	must.Equal(t, w.Server.Client().HGet(t.Context(), store.TagsKey, "b").Val(), "vendor", "its tag is")
	if infos, err := joined.Op.BucketInfos(t.Context()); err != nil || infos[0].Pause == nil || infos[0].Pause.By != "anna" || infos[0].Unfinished != 2 {
		t.Errorf("%+v, %v", infos, err)
	}
	// A producer with the old configuration puts no job where no dispatcher looks.
	if receipts, err := w.Client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: "y", Payload: []byte("x")}); err != nil || receipts[0].Refusal != nil {
		t.Errorf("a process with the old configuration: %+v, %v", receipts, err)
	}
	must.Equal(t, w.Server.Client().Exists(t.Context(), store.BucketKeys("b").Body()).Val(), 0, "a job lies where nobody looks")
	// Those that do not have it configured find it by its tag.
	stranger := w.ClientOf()
	if was, err := stranger.Op.As("bert").Bucket("b").Resume(t.Context()); err != nil || !was {
		t.Errorf("resumed: %t, %v", was, err)
	}
	if infos, err := stranger.Op.BucketInfos(t.Context(), "b"); err != nil || infos[0].Unfinished != 3 || infos[0].Pool == nil {
		t.Errorf("%+v, %v", infos, err)
	}
	if sum, err := stranger.Op.As("bert").Bucket("b").Purge(t.Context(), operator.PurgeOptions{}); err != nil || sum.Jobs != 3 {
		t.Errorf("purged %+v, %v", sum, err)
	}
	// It leaves.
	if err := w.ClientOf(own).JoinPools(t.Context()); err != nil {
		t.Errorf("it does not leave: %v", err)
	}
}

// All keys of a pool and of its buckets are in one slot of a cluster; each bucket is found there by its tag.
func TestPoolInACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	conn := must.Get(redisconn.Connect(c.URL(), redisconn.Options{Timeout: rig.Patience}))(t)
	t.Cleanup(func() { _ = conn.Close() })
	pool := shaper.Pool{Name: "vendor", Rate: rig.PerSecond(500), MaxInFlight: 5, Quotas: []admission.Rate{{Count: 5000, Per: time.Hour, Unit: admission.UnitRequests}}}
	flowing := rig.Pooled("b", 1000, 1, pool)
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	flowing.Flow = &flow
	buckets := []shaper.Bucket{rig.Pooled("a", 1000, 1, pool), flowing}
	buckets[0].DedupeWindow, buckets[1].DedupeWindow = 0, 0
	client := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: buckets}))(t)
	arrived := make(chan string, 100)
	d := must.Get(New(Config{Redis: conn, Buckets: buckets, Workers: rig.Workers(buckets, shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		arrived <- a.Bucket
		return shaper.Done(200)
	}))}))(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = d.Run(ctx) })
	defer running.Wait()
	defer stop()
	for i := range 40 {
		b := buckets[i%2].Name
		if receipts, err := client.Enqueue(t.Context(), shaper.Job{Bucket: b, Flow: "f", Payload: []byte("x")}); err != nil || receipts[0].Refusal != nil {
			t.Fatal(receipts, err)
		}
	}
	got := map[string]int{}
	for range 40 {
		got[<-arrived]++
	}
	if got["a"] != 20 || got["b"] != 20 {
		t.Errorf("arrived %v", got)
	}
	stranger := must.Get(rig.NewActors(producer.Config{Redis: conn}))(t)
	if infos, err := stranger.Op.BucketInfos(t.Context(), "a", "b"); err != nil || infos[0].Pool == nil || infos[1].Pool == nil {
		t.Errorf("%+v, %v", infos, err)
	}
	// Empty, each of them leaves the pool, to a slot of its own.
	stop()
	running.Wait()
	for i := range buckets {
		buckets[i].Pool = nil
	}
	left := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: buckets}))(t)
	must.OK(t, left.JoinPools(t.Context()))
	for _, b := range []string{"a", "b"} {
		receipts, err := left.Enqueue(t.Context(), shaper.Job{Bucket: b, ID: "last", Flow: "f", Payload: []byte("x")})
		if err != nil || receipts[0].Refusal != nil {
			t.Fatal(receipts, err)
		}
		must.Equal(t, conn.HLen(t.Context(), store.BucketKeys(b).Body()).Val(), 1, "bucket %q has jobs under its own tag", b)
	}
	if pools, err := stranger.Op.KnownPools(t.Context()); err != nil || len(pools) != 0 {
		t.Errorf("pools are %v, %v", pools, err)
	}
}
