package shaper

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
	"github.com/tundish-io/tundish/lua"
)

// bench is a bucket on a server whose clock stands still until the test sets it.
type bench struct {
	t      *testing.T
	mini   *miniredis.Miniredis
	redis  *redis.Client
	now    time.Time
	bucket Bucket
	client *actors
}

func newBench(t *testing.T, b Bucket) *bench {
	t.Helper()
	s := &bench{t: t, mini: miniredis.NewMiniRedis(), now: time.Now(), bucket: b}
	s.mini.ClockTTL(true)
	s.mini.SetTime(s.now)
	t.Cleanup(s.mini.Close)
	s.redis = redis.NewClient(&redis.Options{ // it works in a bubble, too
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return s.mini.Dial() },
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = s.redis.Close() })
	var err error
	if s.client, err = newActors(ClientConfig{Redis: s.redis, Buckets: []Bucket{b}}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *bench) step(by time.Duration) {
	s.now = s.now.Add(by)
	s.mini.SetTime(s.now)
}

func (s *bench) enqueue(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		if _, err := s.client.Enqueue(s.t.Context(), Job{Bucket: "b", ID: id, Payload: []byte("{}")}); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *bench) wantState(want State, ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		job, err := s.client.Job(s.t.Context(), "b", id)
		if err != nil || job.State != want {
			s.t.Errorf("job %s is %v, want %v (%v)", id, job.State, want, err)
		}
	}
}

// newFlowing is a bucket with flows; its jobs are placed by hand.
func newFlowing(t *testing.T) *bench {
	t.Helper()
	b := testBucket("b", 100)
	flow := DefaultFlowSettings()
	flow.Key, flow.MaxInFlight, flow.Capacity, flow.MaxFlows = FlowKeyJob, 3, 4, 5
	flow.Rate = admission.Rate{Count: 1, Per: 10 * time.Second, Unit: admission.UnitRequests}
	b.Flow = &flow
	s := newBench(t, b)
	if err := s.client.JoinPools(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// put places a job of a flow in a state, and returns the mark of its body.
func (s *bench) put(id, flow string, state State) (mark string) {
	s.t.Helper()
	ctx, k, now := s.t.Context(), bucketKeys("b"), s.now.UnixMicro()
	job := Job{Bucket: "b", ID: id, Flow: flow, Payload: []byte("x")}
	sealed, err := seal(nil, &job, false)
	if err != nil {
		s.t.Fatal(err)
	}
	setIndex(sealed, 1)
	counted := parseFlowState(s.redis.HGet(ctx, k.flows(), flow).Val())
	pipe := s.redis.Pipeline()
	pipe.HSet(ctx, k.count(), "seq", 1)
	pipe.HSet(ctx, k.body(), id, fmt.Sprintf("0 %d %s", now, sealed))
	if state == StateInFlight || state == StateDead {
		pipe.HSet(ctx, k.meta(), id, fmt.Sprintf("%d 1 0 0 0 c ", slices.Index(stateCodes[:], state)))
	}
	at := redis.Z{Member: id, Score: float64(now)}
	switch state {
	case StateInFlight:
		pipe.ZAdd(ctx, k.leases(), at)
		counted.inFlight++
	case StateDead:
		pipe.ZAdd(ctx, k.dead(), at)
		counted.unfinished--
	default:
		pipe.RPush(ctx, k.queue(flow), id)
	}
	if counted.unfinished++; counted.unfinished > 0 {
		pipe.HSet(ctx, k.flows(), flow, fmt.Sprintf("0 0 - 0 %d %d %d .khnld", counted.unfinished, counted.scheduled, counted.inFlight))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		s.t.Fatal(err)
	}
	return string(sealed[:markLength])
}

func (s *bench) turnOf(flow string) time.Duration {
	s.t.Helper()
	score, err := s.redis.ZScore(s.t.Context(), bucketKeys("b").due(), flow).Result()
	if err != nil {
		return -1
	}
	return time.UnixMicro(int64(score)).Sub(s.now.Truncate(time.Microsecond))
}

// newGrouped is a bucket with groups on a server whose clock stands still.
func newGrouped(t *testing.T) *bench {
	t.Helper()
	s := newBench(t, grouped("b", 100))
	if err := s.client.JoinPools(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *bench) submitTo(group, flow string, ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		job := Job{Bucket: "b", ID: id, Flow: flow, Group: group, Payload: []byte("x")}
		if group == "" { // a job has to name one: this is by hand
			s.byHand(job)
			continue
		}
		receipts, err := s.client.Enqueue(s.t.Context(), job)
		if err != nil || receipts[0].Refusal != nil {
			s.t.Fatalf("enqueue %s: %+v, %v", id, receipts, err)
		}
	}
}

// byHand enqueues a job whose group is "".
func (s *bench) byHand(job Job) {
	s.t.Helper()
	sealed, err := seal(nil, &job, false)
	if err != nil {
		s.t.Fatal(err)
	}
	setIndex(sealed, 1)
	k, path := bucketKeys("b").as(levelsGroups), flowPath(job.Group, job.Flow)
	keys := k.inGroups(k.with(k.forEnqueue(), path), path)
	const unlike, normal, first, cost = 0, 3, 1, 1
	reply, err := lua.Enqueue.Run(s.t.Context(), s.redis, nil, keys, wakeChannel, "b", s.redis.HGet(s.t.Context(), k.conf(), "limits_rev").Val(),
		0, 1, unlike, levelsGroups, 1, path, job.ID, &sealed, normal, first, "", cost)
	if r := lua.NewReader(reply); err != nil || r.Int() != 0 {
		s.t.Fatal(reply, err)
	}
}
