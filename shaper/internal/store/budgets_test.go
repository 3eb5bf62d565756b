package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// The units of budgets are those of the configuration until the budgets in force were seen, which operators may change.
func TestBudgetUnits(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		b := rig.Flowing("b", shaper.FlowKeyJob)
		b.Budgets, b.Flow.Budgets = shaper.Budgets{rig.Rate("9 tokens/m")}, shaper.Budgets{rig.Rate("9 images/m")}
		b.Pool = &shaper.Pool{Name: "p", Rate: rig.PerSecond(10), Budgets: shaper.Budgets{rig.Rate("9 calls/m")}}
		s := ownerOf(t, conn, "this one", nil, b, rig.Bucket("none", 10))
		is := func(what, bucket string, want ...string) {
			t.Helper()
			known := s.Known(bucket)
			units := slices.Sorted(known.BudgetUnits())
			if fmt.Sprint(units) != fmt.Sprint(want) || known.HasBudgets() != (len(want) > 0) {
				t.Errorf("%s: bucket %q has budgets of %v, want %v", what, bucket, units, want)
			}
		}
		is("before Redis was asked", "b", "calls", "images", "tokens")
		is("before Redis was asked", "none")
		s.Watch(t.Context())
		is("before it is used", "b", "calls", "images", "tokens")
		if err := s.JoinPools(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Watch(t.Context())
		is("as configured", "b", "calls", "images", "tokens")
		is("as configured", "none")
		anna := clientWith(t, conn, b, rig.Bucket("none", 10)).Op.As("anna")
		for _, err := range []error{
			second(anna.Bucket("b").Set(t.Context(), rig.MustPatch(t, "budgets", "none"))),
			second(anna.Bucket("none").Set(t.Context(), rig.MustPatch(t, "budgets", "5 tokens/m, 7 images/m"))),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		s.Watch(t.Context())
		is("after an operator took them away", "b", "calls", "images")
		is("after an operator gave some", "none", "images", "tokens")
		if err := second(anna.Bucket("none").Reset(t.Context())); err != nil {
			t.Fatal(err)
		}
		s.Watch(t.Context())
		is("after a reset", "none")
	})
}

func second[T any](_ T, err error) error { return err }
