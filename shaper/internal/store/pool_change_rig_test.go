package store_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// changeable is a bucket of each kind, in no pool, that remembers no ids.
func changeable() map[string]shaper.Bucket {
	all := map[string]shaper.Bucket{"plain": rig.Bucket("b", 1000), "flows": rig.Flowing("b", shaper.FlowKeyJob), "groups": rig.Grouped("b", 1000)}
	for kind, b := range all {
		b.DedupeWindow = 0
		b.Quotas = []admission.Rate{{Count: 5000, Per: time.Hour, Unit: admission.UnitRequests}}
		b.Limits = []admission.Limit{{Name: "per-caller", Per: []string{admission.PerCaller}, Limit: admission.Rate{Count: 100_000, Per: time.Hour, Unit: admission.UnitRequests}}}
		all[kind] = b
	}
	return all
}

func clientWith(t *testing.T, conn redis.UniversalClient, buckets ...shaper.Bucket) *rig.Actors {
	t.Helper()
	client := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: buckets, Timeout: 10 * time.Second}))(t)
	return client
}

// jobOf is a job that a bucket of each kind takes.
func jobOf(id string) shaper.Job {
	return shaper.Job{Bucket: "b", ID: id, Flow: "flow", Group: "group", Payload: []byte("x"), Identity: admission.Identity{Caller: "anna"}}
}

// mustEnqueue lets a job in.
func mustEnqueue(t *testing.T, client *rig.Actors, id string) {
	t.Helper()
	if receipts, err := client.Enqueue(t.Context(), jobOf(id)); err != nil || receipts[0].Refusal != nil {
		t.Fatalf("enqueue %s: %+v, %v", id, receipts, err)
	}
}

// mustCancel ends a job that waits.
func mustCancel(t *testing.T, client *rig.Actors, id string) {
	t.Helper()
	must.Be(t, must.Get(client.Cancel(t.Context(), "b", id))(t), shaper.StateCancelled, "cancel %s", id)
}

func mustJoin(t *testing.T, conn redis.UniversalClient, b shaper.Bucket) *rig.Actors {
	t.Helper()
	client := clientWith(t, conn, b)
	must.OK(t, client.JoinPools(t.Context()))
	return client
}

// commanded uses a bucket, has an operator change whatever can be changed of it, and leaves it empty.
func commanded(t *testing.T, conn redis.UniversalClient, b shaper.Bucket) *rig.Actors {
	t.Helper()
	client := clientWith(t, conn, b)
	mustEnqueue(t, client, "first")
	mustCancel(t, client, "first")
	control := client.Op.As("anna").Bucket("b")
	must.OK(t, control.Pause(t.Context(), "tests"))
	var patch operator.BucketPatch
	must.OK(t, patch.Put(shaper.SettingCapacity, "4321"))
	_, err := control.Set(t.Context(), patch)
	must.OK(t, err)
	var own operator.FlowPatch
	must.OK(t, own.Put(shaper.FlowWeight, "3"))
	if b.Group != nil {
		must.Get(control.Group("group").Set(t.Context(), own))(t)
	}
	switch {
	case b.Group != nil:
		_, err = control.Group("group").Flow("flow").Set(t.Context(), own)
	case b.Flow != nil:
		_, err = control.Flow("flow").Set(t.Context(), own)
	}
	must.OK(t, err)
	must.OK(t, client.OverrideLimit(t.Context(), "per-caller", admission.Patch{Burst: new(int64(77))}))
	k := store.TaggedKeys(store.TagOf(&b), "b")
	must.OK(t, conn.RPush(t.Context(), k.Departed(), "3", "2", "1").Err())
	must.OK(t, conn.PExpire(t.Context(), k.Departed(), time.Hour).Err())
	must.OK(t, conn.HSet(t.Context(), k.LearnedEstimates(), "m", "12 a estimate").Err())
	must.OK(t, conn.PExpire(t.Context(), k.LearnedEstimates(), time.Hour).Err())
	must.OK(t, conn.HSet(t.Context(), k.Pace(), "slot", "1783228800123456").Err())
	days := k.Uses(time.Now())
	for i, use := range []string{days[0], days[len(days)/2], days[len(days)-1]} {
		must.OK(t, conn.HSet(t.Context(), use, "anna m f", strconv.Itoa(i)+" 2 3").Err())
		must.OK(t, conn.Expire(t.Context(), use, time.Hour).Err())
	}
	return client
}

// settingsAt is what goes with an empty bucket, as it is at the place of a tag.
func settingsAt(t *testing.T, conn redis.UniversalClient, tag string) map[string]any {
	t.Helper()
	k := store.TaggedKeys(tag, "b")
	found := map[string]any{}
	for name, key := range map[string]string{"conf": k.Conf(), "pace": k.Pace(), "flow settings": k.FlowSettings(), "group settings": k.GroupSettings(), "learned_estimates": k.LearnedEstimates()} {
		fields := must.Get(conn.HGetAll(t.Context(), key).Result())(t)
		for _, field := range []string{"generation", "by", "started", "owned", "changes"} {
			delete(fields, field)
		}
		found[name] = fields
	}
	found["departures"] = conn.LRange(t.Context(), k.Departed(), 0, -1).Val()
	var uses []string
	for _, use := range k.Uses(time.Now()) {
		if count := conn.HGet(t.Context(), use, "anna m f").Val(); count != "" {
			uses = append(uses, count+" "+strconv.FormatBool(conn.TTL(t.Context(), use).Val() > 0))
		}
	}
	found["uses"] = uses
	found["departures expire"] = conn.PTTL(t.Context(), k.Departed()).Val() > 0
	found["estimates expire"] = conn.PTTL(t.Context(), k.LearnedEstimates()).Val() > 0
	return found
}

// wantLives fails unless the bucket lives where b says, with these settings, and nothing but two fields is left at
// other places.
func wantLives(t *testing.T, what string, conn redis.UniversalClient, b shaper.Bucket, settings map[string]any) {
	t.Helper()
	must.Equal(t, conn.HGet(t.Context(), store.TagsKey, "b").Val(), store.TagOf(&b), "%s: the bucket has the tag", what)
	must.Equal(t, cmp.Diff(settings, settingsAt(t, conn, store.TagOf(&b))), "", "%s: settings (-before +after):", what)
	for _, tag := range []string{"b", "vendor", "other"} {
		if tag == store.TagOf(&b) {
			continue
		}
		k := store.TaggedKeys(tag, "b")
		for _, name := range conn.Keys(t.Context(), k.Prefix+"*").Val() {
			if name != k.Conf() {
				if !strings.Contains(name, "limit") { // those of callers expire
					t.Errorf("%s: %s is left", what, name)
				}
				continue
			}
			for field := range maps.Keys(conn.HGetAll(t.Context(), name).Val()) {
				if !slices.Contains([]string{"generation", "left_for"}, field) {
					t.Errorf("%s: the field %s of %s is left", what, field, name)
				}
			}
		}
		if tag != "b" && conn.HExists(t.Context(), store.PoolBuckets(tag), "b").Val() {
			t.Errorf("%s: pool %q still has the bucket", what, tag)
		}
	}
}

// dawdler stands still for a moment at some of its round trips, so that others overtake it.
type dawdler struct{}

func (d dawdler) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d dawdler) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if rand.N(6) == 0 {
			<-time.After(rand.N(3 * time.Millisecond))
		}
		return next(ctx, cmd)
	}
}

func (d dawdler) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
