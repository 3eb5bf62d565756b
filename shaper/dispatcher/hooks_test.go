package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// hooked is a bucket with two hooks on it, whose jobs go into the same bucket.
func hooked(t *testing.T, b shaper.Bucket) (*stepped, *bucketLoop) {
	t.Helper()
	b.Events = shaper.Events()
	s := newSteppedBucket(t, rig.NewWaiting(), b)
	d := s.bucketLoop()
	d.patrol.events.hooks.Store(&[]Hook{
		{Events: []shaper.Event{shaper.EventJobDead}, Bucket: "b", URL: "https://a.example", Flow: b.Name},
		{Events: []shaper.Event{shaper.EventJobDead, shaper.EventBucketFull}, Bucket: "b", URL: "https://b.example", Flow: b.Name},
	})
	d.patrol.events.enqueue = s.Client.Enqueue
	return s, d
}

// happen puts events into the outbox as scripts do.
func (s *stepped) happen(d *bucketLoop, name, text string) {
	s.T.Helper()
	pipe := s.Redis.Pipeline()
	pipe.HSet(s.T.Context(), d.Keys.OutboxTexts(), name, text)
	pipe.ZAdd(s.T.Context(), d.Keys.Outbox(), redis.Z{Member: name, Score: 1})
	must.Get(pipe.Exec(s.T.Context()))(s.T)
}

// bodies are the payloads of all jobs, by id.
func (s *stepped) bodies(d *bucketLoop) map[string]hookPayload {
	s.T.Helper()
	found := map[string]hookPayload{}
	for id, body := range s.Redis.HGetAll(s.T.Context(), d.Keys.Body()).Val() {
		_, payload, _ := strings.Cut(body, "\n")
		var one hookPayload
		must.OK(s.T, json.Unmarshal([]byte(payload), &one))
		found[id] = one
	}
	return found
}

// A dispatcher that does not learn that the job of a hook is in makes no second one, and neither does the next dispatcher, also where
// more has happened meanwhile.
func TestAHookIsToldOnce(t *testing.T) {
	t.Parallel()
	s, d := hooked(t, rig.Bucket("b", 100))
	s.happen(d, "job.dead", "0 0 2 1783228800000001\n{\"job\":\"j1\",\"reason\":\"permanent\"}")
	calls := 0
	d.patrol.events.enqueue = func(ctx context.Context, jobs ...shaper.Job) ([]shaper.Receipt, error) {
		receipts, err := s.Client.Enqueue(ctx, jobs...)
		if calls++; calls == 1 {
			return nil, errors.New("the reply was lost")
		}
		return receipts, err
	}
	d.patrol.events.move(t.Context())
	first := s.bodies(d)
	must.Be(t, len(first), 2, "there are jobs, want one of each hook")
	s.happen(d, "job.dead", "2 1783228800000001 3 1783228800000002\n{\"job\":\"j2\"}") // as another script would leave it
	d.patrol.events.move(t.Context())
	if again := s.bodies(d); len(again) != 2 || calls != 2 {
		t.Errorf("then there are %d jobs, after %d calls", len(again), calls)
	}
	for id, one := range first {
		data := one.Data
		if !strings.HasPrefix(id, shaper.HookID) || one.Type != "job.dead" || !one.Timestamp.Equal(time.UnixMicro(1783228800000001)) ||
			data.Bucket != "b" || data.Count != 2 || data.Job != "j1" || data.Reason != "permanent" || data.Flow != nil {
			t.Errorf("%s: %+v", id, one)
		}
	}
	if text := s.Redis.HGet(t.Context(), d.Keys.OutboxTexts(), "job.dead").Val(); !strings.HasPrefix(text, "0 0 3 1783228800000002\n") {
		t.Errorf("what came meanwhile is %q", text)
	}
}

// An event stays until there is room for its job, and one that no hook wants to hear of is dropped.
func TestAHookWaitsForRoom(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("b", 100)
	b.Capacity, b.Shed = 1, shaper.NoShedding
	s, d := hooked(t, b)
	s.Put("j", "", shaper.StateQueued)
	s.happen(d, "bucket.full", "0 0 1 1783228800000001\n{\"reason\":\"capacity\"}")
	s.happen(d, "bucket.paused", "0 0 1 1783228800000001\n{}")
	d.patrol.events.move(t.Context())
	texts := s.Redis.HGetAll(t.Context(), d.Keys.OutboxTexts()).Val()
	if len(s.Redis.HKeys(t.Context(), d.Keys.Body()).Val()) != 1 || !strings.HasPrefix(texts["bucket.full"], "1 ") || !strings.HasPrefix(texts["bucket.paused"], "0 0 0 ") {
		t.Errorf("with a full bucket are left %q", texts)
	}
	s.Redis.HSet(t.Context(), d.Keys.Conf(), "capacity", 2)
	d.patrol.events.move(t.Context())
	if ids := s.Redis.HKeys(t.Context(), d.Keys.Body()).Val(); len(ids) != 2 {
		t.Errorf("with room there are %q", ids)
	}
	if text := s.Redis.HGet(t.Context(), d.Keys.OutboxTexts(), "bucket.full").Val(); !strings.HasPrefix(text, "0 0 0 ") {
		t.Errorf("then is left %q", text)
	}
}

// Flows and groups are named as their users know them.
func TestHooksNameFlows(t *testing.T) {
	t.Parallel()
	s, d := hooked(t, rig.Grouped("b", 100))
	hooks := *d.patrol.events.hooks.Load()
	hooks[0].Group, hooks[1].Group = "hooks", "hooks"
	s.happen(d, "job.dead 1:gthe flow", "0 0 1 1783228800000001\n{}")
	d.patrol.events.move(t.Context())
	bodies := s.bodies(d)
	must.Be(t, len(bodies), 2, "there are jobs")
	for _, one := range bodies {
		if one.Data.Group == nil || *one.Data.Group != "g" || one.Data.Flow == nil || *one.Data.Flow != "the flow" {
			t.Errorf("%+v", one)
		}
	}
}

// A limit that counts by caller, as that of the shipped configuration, knows who enqueues the jobs of hooks.
func TestHooksHaveACaller(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("b", 100)
	limit := admission.Limit{Name: "per-caller", Per: []string{admission.PerCaller}, Limit: rig.Rate("100/m")}.WithDefaults()
	b.Limits = []admission.Limit{limit}
	s, d := hooked(t, b)
	s.happen(d, "job.dead", "0 0 1 1783228800000001\n{}")
	d.patrol.events.move(t.Context())
	must.Equal(t, len(s.bodies(d)), 2, "there are jobs, want one of each hook")
}
