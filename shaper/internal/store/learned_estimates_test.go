package store_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// What a dispatcher has learned a read-only process reads, also of a bucket that it has not used and that is in another pool than it says.
func TestLearnedEstimates(t *testing.T) {
	estimate := func(answers int64, text string) shaper.LearnedEstimate {
		return shaper.LearnedEstimate{Answers: answers, Text: text}
	}
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		names := []string{"a", "b", "none"}
		owned, readOnlyBuckets := []shaper.Bucket{rig.In(rig.PoolNamed("vendor"), rig.Bucket("a", 10))}, []shaper.Bucket{}
		for _, name := range names {
			readOnlyBuckets = append(readOnlyBuckets, rig.Bucket(name, 10))
		}
		owner := ownerOf(t, conn, "dispatcher", nil, append(owned, readOnlyBuckets[1:]...)...)
		readOnly := must.Get(store.New(store.ReadOnly, conn, readOnlyBuckets, 0, nil, nil))(t)
		is := func(what string, want map[string]shaper.LearnedEstimates) {
			t.Helper()
			for role, s := range map[string]*store.Store{"owner": owner, "read-only": readOnly} {
				if got, err := s.LearnedEstimates(t.Context(), names...); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s, %s: %v, want %v: %v", what, role, got, want, err)
				}
			}
		}
		nothing := map[string]shaper.LearnedEstimates{"a": {}, "b": {}, "none": {}}
		is("before the buckets are used", nothing)
		learned := map[string]shaper.LearnedEstimates{"a": {"m": estimate(12, "1 2.5"), "with a space": estimate(3, "")}, "b": {"m": estimate(1, "x")}}
		for range 2 {
			must.OK(t, owner.StoreLearnedEstimates(t.Context(), learned))
		}
		want := maps.Clone(nothing)
		maps.Copy(want, learned)
		is("learned", want)
		if keys := conn.Keys(t.Context(), "*:b:none:learned_estimates").Val(); len(keys) > 0 {
			t.Errorf("a bucket without estimates has %v", keys)
		}
		for what, estimates := range map[string]map[string]shaper.LearnedEstimates{
			`unknown bucket "unknown"`: {"unknown": {"m": estimate(1, "")}, "none": {"m": estimate(1, "beside a fault")}},
			"want a text of at most":   {"a": {"m": estimate(100, strings.Repeat("x", shaper.MaxLearnedEstimateBytes+1))}},
		} {
			if err := owner.StoreLearnedEstimates(t.Context(), estimates); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%v, want %s", err, what)
			}
		}
		want["none"] = shaper.LearnedEstimates{"m": estimate(1, "beside a fault")}
		is("beside faults", want)
		if got, err := readOnly.LearnedEstimates(t.Context(), "unknown", "b"); err == nil || len(got) != 1 || len(got["b"]) != 1 {
			t.Errorf("beside an unknown bucket: %v, %v", got, err)
		}
	})
}
