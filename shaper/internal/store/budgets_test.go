package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
)

// The units of budgets are those of the configuration until the budgets in force were seen, which operators may change.
func TestBudgetUnits(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		b := rig.Flowing("b", shaper.FlowKeyJob)
		b.Budgets, b.Flow.Budgets = shaper.Budgets{rig.Rate("9 tokens/m")}, shaper.Budgets{rig.Rate("9 images/m")}
		b.Pool = &shaper.Pool{Name: "p", Rate: rig.PerSecond(10), Budgets: shaper.Budgets{rig.Rate("9 calls/m")}}
		s := ownerOf(t, conn, "this one", nil, b, rig.Bucket("none", 10), rig.Flowing("parts", shaper.FlowKeyJob))
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
		must.OK(t, s.JoinPools(t.Context()))
		s.Watch(t.Context())
		is("as configured", "b", "calls", "images", "tokens")
		is("as configured", "none")
		anna := clientWith(t, conn, b, rig.Bucket("none", 10), rig.Flowing("parts", shaper.FlowKeyJob)).Op.As("anna")
		for _, err := range []error{
			second(anna.Bucket("b").Set(t.Context(), rig.MustPatch(t, "budgets", "none"))),
			second(anna.Bucket("none").Set(t.Context(), rig.MustPatch(t, "budgets", "5 tokens/m, 7 images/m"))),
		} {
			must.OK(t, err)
		}
		s.Watch(t.Context())
		is("after an operator took them away", "b", "calls", "images")
		is("after an operator gave some", "none", "images", "tokens")
		must.OK(t, second(anna.Bucket("none").Reset(t.Context())))
		s.Watch(t.Context())
		is("after a reset", "none")

		for _, text := range []string{"9 words/m, 9 tokens/m", "9 words/m, 8 images/m", "none"} { // what one had, jobs in flight may have charged
			var own operator.FlowPatch
			must.OK(t, errors.Join(own.Put(shaper.FlowBudgets, text), second(anna.Bucket("parts").Flow("f").Set(t.Context(), own))))
		}
		s.Watch(t.Context())
		is("after an operator gave a flow some", "parts", "images", "tokens", "words")
		client := clientWith(t, conn, rig.Flowing("parts", shaper.FlowKeyJob))
		must.Get(client.Enqueue(t.Context(), shaper.Job{Bucket: "parts", Flow: "f", Payload: []byte("x")}))(t)
		if settings, err := client.Bucket("parts"); err != nil || !settings.HasBudgets() {
			t.Errorf("a client does not know of budgets of one flow: %v", err)
		}
	})
}

func second[T any](_ T, err error) error { return err }
