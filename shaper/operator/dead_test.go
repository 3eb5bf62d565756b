package operator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Jobs of buckets that left the configuration can be read, those of buckets that never
// were cannot.
func TestOrphansAreReadable(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 100))
	conn := w.Server.Client()
	for name, b := range map[string]shaper.Bucket{"plain": rig.Bucket("old", 1), "with flows": rig.Flowing("oldflows", shaper.FlowKeyJob)} {
		former, err := rig.NewActors(producer.Config{Redis: conn, Buckets: []shaper.Bucket{b}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := former.Enqueue(t.Context(), shaper.Job{Bucket: b.Name, ID: "j", Flow: "acme", Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		want, err := former.Job(t.Context(), b.Name, "j")
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.Client.Job(t.Context(), b.Name, "j")
		if err != nil || got.State != shaper.StateQueued || got.Position != 0 || string(got.Payload) != "x" || got.Flow != want.Flow || (got.OfFlow == nil) != (want.OfFlow == nil) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
		if _, err := w.Client.Job(t.Context(), b.Name, "other"); !errors.Is(err, shaper.ErrNotFound) {
			t.Errorf("%s: a job that is not there: %v", name, err)
		}
		if dead, err := w.Client.Op.Bucket(b.Name).Dead().List(t.Context(), 0, 10); err != nil || len(dead) != 0 {
			t.Errorf("%s: dead letters %v, %v", name, dead, err)
		}
	}
	for _, name := range []string{"never", "No name", ""} {
		_, err := w.Client.Job(t.Context(), name, "j")
		_, deadErr := w.Client.Op.Bucket(name).Dead().List(t.Context(), 0, 10)
		if !errors.Is(err, shaper.ErrUnknownBucket) || !errors.Is(deadErr, shaper.ErrUnknownBucket) {
			t.Errorf("%q: %v, %v", name, err, deadErr)
		}
	}
	w.Server.Kill()
	if _, err := w.Client.Job(t.Context(), "old", "j"); err == nil || errors.Is(err, shaper.ErrUnknownBucket) {
		t.Errorf("while Redis is away: %v", err)
	}
}

// A page of large dead letters comes in parts.
func TestDeadLettersAreReadInParts(t *testing.T) {
	t.Parallel()
	s := rig.NewBench(t, rig.Bucket("b", 100))
	var largest parts
	s.Redis.AddHook(&largest)
	const jobs = 30
	for i := range jobs {
		id := fmt.Sprint("j", i)
		if _, err := s.Client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: id, Payload: make([]byte, 200<<10)}); err != nil {
			t.Fatal(err)
		}
		if err := s.Redis.ZAdd(t.Context(), store.BucketKeys("b").Dead(), redis.Z{Member: id, Score: float64(i)}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	dead, err := s.Client.Op.Bucket("b").Dead().List(t.Context(), 0, jobs)
	if err != nil || len(dead) != jobs || dead[0].ID != "j29" || dead[29].ID != "j0" || len(dead[7].Payload) != 200<<10 {
		t.Fatalf("%d dead letters, %v", len(dead), err)
	}
	if largest.ids != 5 {
		t.Errorf("%d bodies of 200 KiB in an answer, want 5", largest.ids)
	}
}

// parts notes the most ids that an HMGET names.
type parts struct{ ids int }

func (p *parts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *parts) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (p *parts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() == "hmget" {
				p.ids = max(p.ids, len(cmd.Args())-2)
			}
		}
		return next(ctx, cmds)
	}
}
