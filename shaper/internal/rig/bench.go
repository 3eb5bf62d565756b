package rig

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Bench is a bucket on a server whose clock stops until the test sets it.
type Bench struct {
	T      *testing.T
	mini   *miniredis.Miniredis
	Redis  *redis.Client
	Now    time.Time
	Bucket shaper.Bucket
	Client *Actors
}

func NewBench(t *testing.T, b shaper.Bucket) *Bench {
	t.Helper()
	s := &Bench{T: t, mini: miniredis.NewMiniRedis(), Now: time.Now(), Bucket: b}
	s.mini.ClockTTL(true)
	s.mini.SetTime(s.Now)
	t.Cleanup(s.mini.Close)
	s.Redis = redis.NewClient(&redis.Options{ // it works in a bubble, too
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return s.mini.Dial() },
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = s.Redis.Close() })
	var err error
	if s.Client, err = NewActors(producer.Config{Redis: s.Redis, Buckets: []shaper.Bucket{b}}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Bench) Step(by time.Duration) {
	s.Now = s.Now.Add(by)
	s.mini.SetTime(s.Now)
}

func (s *Bench) Enqueue(ids ...string) {
	s.T.Helper()
	for _, id := range ids {
		must.Get(s.Client.Enqueue(s.T.Context(), shaper.Job{Bucket: "b", ID: id, Payload: []byte("{}")}))(s.T)
	}
}

func (s *Bench) WantState(want shaper.State, ids ...string) {
	s.T.Helper()
	for _, id := range ids {
		job, err := s.Client.Job(s.T.Context(), "b", id)
		if err != nil || job.State != want {
			s.T.Errorf("job %s is %v, want %v (%v)", id, job.State, want, err)
		}
	}
}

// NewFlowing returns a bucket with flows; its jobs are placed by hand.
func NewFlowing(t *testing.T) *Bench {
	t.Helper()
	b := Bucket("b", 100)
	flow := shaper.DefaultFlowSettings()
	flow.Key, flow.MaxInFlight, flow.Capacity, flow.MaxFlows = shaper.FlowKeyJob, 3, 4, 5
	flow.Rate = admission.Rate{Count: 1, Per: 10 * time.Second, Unit: admission.UnitRequests}
	b.Flow = &flow
	s := NewBench(t, b)
	must.OK(t, s.Client.JoinPools(t.Context()))
	return s
}

// Put places a job of a flow in a state, and returns the mark of its body.
func (s *Bench) Put(id, flow string, state shaper.State) (mark string) {
	s.T.Helper()
	ctx, k, now := s.T.Context(), store.BucketKeys("b"), s.Now.UnixMicro()
	job := shaper.Job{Bucket: "b", ID: id, Flow: flow, Payload: []byte("x")}
	sealed := must.Get(codec.Seal(nil, &job, codec.Sealing{}))(s.T)
	codec.SetIndex(sealed, 1)
	counted := codec.ParseFlowState(s.Redis.HGet(ctx, k.Flows(), flow).Val())
	pipe := s.Redis.Pipeline()
	pipe.HSet(ctx, k.Count(), "seq", 1)
	pipe.HSet(ctx, k.Body(), id, fmt.Sprintf("0 %d %s", now, sealed))
	if state == shaper.StateInFlight || state == shaper.StateDead {
		pipe.HSet(ctx, k.Meta(), id, fmt.Sprintf("%d 1 0 0 0 c ", slices.Index(codec.StateCodes[:], state)))
	}
	at := redis.Z{Member: id, Score: float64(now)}
	switch state {
	case shaper.StateInFlight:
		pipe.ZAdd(ctx, k.Leases(), at)
		counted.InFlight++
	case shaper.StateDead:
		pipe.ZAdd(ctx, k.Dead(), at)
		counted.Unfinished--
	default:
		pipe.RPush(ctx, k.Queue(flow), id)
	}
	if counted.Unfinished++; counted.Unfinished > 0 {
		pipe.HSet(ctx, k.Flows(), flow, stored.Flow{Unfinished: counted.Unfinished, Scheduled: counted.Scheduled, InFlight: counted.InFlight}.String())
	}
	must.Get(pipe.Exec(ctx))(s.T)
	return string(sealed[:codec.MarkLength])
}

func (s *Bench) TurnOf(flow string) time.Duration {
	s.T.Helper()
	score, err := s.Redis.ZScore(s.T.Context(), store.BucketKeys("b").Due(), flow).Result()
	if err != nil {
		return -1
	}
	return time.UnixMicro(int64(score)).Sub(s.Now.Truncate(time.Microsecond))
}

// NewGrouped returns a bucket with groups on a server whose clock stops.
func NewGrouped(t *testing.T) *Bench {
	t.Helper()
	s := NewBench(t, Grouped("b", 100))
	must.OK(t, s.Client.JoinPools(t.Context()))
	return s
}

func (s *Bench) SubmitTo(group, flow string, ids ...string) {
	s.T.Helper()
	for _, id := range ids {
		job := shaper.Job{Bucket: "b", ID: id, Flow: flow, Group: group, Payload: []byte("x")}
		if group == "" { // a job has to name its group: this one is stored by hand
			s.byHand(job)
			continue
		}
		receipts, err := s.Client.Enqueue(s.T.Context(), job)
		if err != nil || receipts[0].Refusal != nil {
			s.T.Fatalf("enqueue %s: %+v, %v", id, receipts, err)
		}
	}
}

// byHand enqueues a job whose group is "".
func (s *Bench) byHand(job shaper.Job) {
	s.T.Helper()
	sealed := must.Get(codec.Seal(nil, &job, codec.Sealing{}))(s.T)
	codec.SetIndex(sealed, 1)
	k, path := store.BucketKeys("b").As(codec.LevelsGroups), codec.FlowPath(job.Group, job.Flow)
	keys := k.Of(lua.Enqueue, path)
	const unlike, normal, first, cost = 0, 3, 1, 1
	reply, err := lua.Enqueue.Run(s.T.Context(), s.Redis, nil, keys, store.WakeChannel, "b", s.Redis.HGet(s.T.Context(), k.Conf(), "limits_rev").Val(),
		0, 1, unlike, codec.LevelsGroups, 1, path, job.ID, &sealed, normal, first, "", cost, "")
	if r := lua.NewReader(reply); err != nil || r.Int() != 0 {
		s.T.Fatal(reply, err)
	}
}
