package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
)

// hourly is a limit of so many an hour for each caller, twice as many for the
// tier pro.
func hourly(name string, n int64) Limit {
	return Limit{Name: name, Algorithm: FixedWindow, Per: []string{PerCaller}, Limit: Rate{Count: n, Per: time.Hour, Unit: UnitRequests},
		Tiers: map[string]Rate{"pro": {Count: 2 * n, Per: time.Hour, Unit: UnitRequests}}}
}

func hours(n int64) *Rate { return &Rate{Count: n, Per: time.Hour, Unit: UnitRequests} }

// allowed asks until it is refused and returns how many were allowed.
func allowed(t *testing.T, ask func() (Decision, error)) int64 {
	t.Helper()
	for n := int64(0); ; n++ {
		d, err := ask()
		if err != nil {
			t.Fatal(err)
		}
		if !d.Allowed {
			return n
		}
		if n > 10_000 {
			t.Fatalf("never refused: %+v", d)
		}
	}
}

func TestAsk(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		exempt := hourly("exempt", 3)
		exempt.OnMissing = Exempt
		shadow := hourly("shadow", 1)
		shadow.Mode = Shadow
		l := newLimiter(t, client, hourly("l", 3), exempt, shadow)
		ask := func(name string, id Identity) func() (Decision, error) {
			return func() (Decision, error) { return l.Ask(t.Context(), name, id, 1) }
		}
		for _, c := range []struct {
			id   Identity
			want int64
		}{
			{Identity{Caller: "ada"}, 3}, {Identity{Caller: "ada", Tier: "pro"}, 6}, {Identity{Caller: "ada", Tier: "none"}, 0},
			{Identity{Caller: "bob"}, 3}, {Identity{Caller: strings.Repeat("x", 10_000)}, 3}, {Identity{Caller: strings.Repeat("x", 10_001)}, 3},
		} {
			if got := allowed(t, ask("l", c.id)); got != c.want {
				t.Errorf("%.20s, tier %q: %d allowed, want %d", c.id.Caller, c.id.Tier, got, c.want)
			}
		}
		if _, err := l.Ask(t.Context(), "none", Identity{}, 1); !errors.Is(err, ErrUnknownLimit) {
			t.Error(err)
		}
		var missing *MissingIdentityError
		if _, err := l.Ask(t.Context(), "l", Identity{}, 1); !errors.As(err, &missing) {
			t.Error(err)
		}
		if _, err := l.AskKey(t.Context(), "l", "", "", 1); !errors.As(err, &missing) {
			t.Error(err)
		}
		for _, n := range []int64{0, -1, MaxCost + 1} {
			if _, err := l.Ask(t.Context(), "l", Identity{Caller: "ada"}, n); err == nil || redisconn.Unavailable(err) {
				t.Errorf("cost %d: %v", n, err)
			}
		}
		for range 5 {
			if d, err := l.Ask(t.Context(), "exempt", Identity{}, 1); err != nil || !d.Allowed || d.Source != FromExemption {
				t.Errorf("%+v, %v", d, err)
			}
			if d, err := l.Ask(t.Context(), "shadow", Identity{Caller: "ada"}, 1); err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		}
		if d, err := l.Ask(t.Context(), "shadow", Identity{Caller: "ada"}, 1); err != nil || !d.WouldRefuse || d.RetryAfter == 0 {
			t.Errorf("%+v, %v", d, err)
		}
		if d, err := l.Ask(t.Context(), "l", Identity{Caller: "eve"}, 4); err != nil || !d.Impossible || d.RetryAfter != 0 {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// A key that a gateway names meets no identity, no other tier, and no other key.
func TestAskKey(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLimiter(t, client, hourly("l", 3))
		ada, err := hourly("l", 3).Key(Identity{Caller: "ada"})
		if err != nil {
			t.Fatal(err)
		}
		if got := allowed(t, func() (Decision, error) { return l.Ask(t.Context(), "l", Identity{Caller: "ada"}, 1) }); got != 3 {
			t.Errorf("%d", got)
		}
		for _, key := range []string{"ada", ada, "conf", "all", "6:caller3:ada", "}:conf", strings.Repeat("x", 10_000), strings.Repeat("x", 10_001), "\x00", "\n"} {
			if got := allowed(t, func() (Decision, error) { return l.AskKey(t.Context(), "l", "", key, 1) }); got != 3 {
				t.Errorf("key %.20q: %d allowed", key, got)
			}
			if got := allowed(t, func() (Decision, error) { return l.AskKey(t.Context(), "l", "pro", key, 1) }); got != 6 {
				t.Errorf("key %.20q, pro: %d allowed", key, got)
			}
		}
		// A key of the caller's choice is not the conf, whatever it is.
		for _, key := range []string{"conf", "a:b", strings.Repeat("y", 100), strings.Repeat("y", 101)} {
			if got := allowed(t, func() (Decision, error) { return l.Allow(t.Context(), hourly("l", 3), key, 1) }); got != 3 {
				t.Errorf("key %.20q: %d allowed", key, got)
			}
		}
	})
}

// Of changes at the same moment none is lost.
func TestPinsAtOnce(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		limit := hourly("l", 1000)
		limit.Tiers = map[string]Rate{}
		var want []Patch
		for i := range 8 {
			tier := fmt.Sprint("tier", i)
			limit.Tiers[tier] = *hours(1)
			want = append(want, Patch{Tiers: map[string]Rate{tier: *hours(int64(10 + i))}})
		}
		var all sync.WaitGroup
		for _, patch := range want {
			l := newLimiter(t, client, limit)
			all.Go(func() {
				if _, err := l.Override(t.Context(), "l", patch); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		infos, err := newLimiter(t, client, limit).Limits(t.Context())
		if err != nil || len(infos) != 1 {
			t.Fatal(infos, err)
		}
		for i := range want {
			if got := infos[0].InForce.Tiers[fmt.Sprint("tier", i)]; got != *hours(int64(10 + i)) {
				t.Errorf("tier %d: %v", i, got)
			}
		}
	})
}

// What one process changes holds for the others with their next question that
// Redis is asked.
func TestPin(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := t.Context()
		a, b := newLimiter(t, client, hourly("l", 3)), newLimiter(t, client, hourly("l", 3))
		left := func(l *Limiter, id Identity) int64 { // without spending, and past the memory of refusals
			t.Helper()
			d, err := l.Ask(ctx, "l", id, MaxCost)
			if err != nil {
				t.Fatal(err)
			}
			return d.Remaining
		}
		ada, pro := Identity{Caller: "ada"}, Identity{Caller: "ada", Tier: "pro"}
		for _, l := range []*Limiter{a, b} {
			if d, err := l.Ask(ctx, "l", ada, 1); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		limit, err := a.Override(ctx, "l", Patch{Limit: hours(10)})
		if err != nil || limit.Limit.Count != 10 {
			t.Fatal(limit, err)
		}
		limit, err = b.Override(ctx, "l", Patch{Tiers: map[string]Rate{"pro": *hours(50)}})
		if err != nil || limit.Limit.Count != 10 || limit.Tiers["pro"].Count != 50 {
			t.Fatal(limit, err)
		}
		for _, l := range []*Limiter{a, b} {
			if got := left(l, ada); got != 8 {
				t.Errorf("%d left, want 8: the state stays", got)
			}
			if got := left(l, pro); got != 50 {
				t.Errorf("%d left", got)
			}
			infos, err := l.Limits(ctx)
			if err != nil || len(infos) != 1 {
				t.Fatal(infos, err)
			}
			want := Patch{Limit: hours(10), Tiers: map[string]Rate{"pro": *hours(50)}}
			if diff := cmp.Diff(want, infos[0].Override); diff != "" || infos[0].Configured.Limit.Count != 3 || infos[0].InForce.Limit.Count != 10 {
				t.Errorf("%+v\n%s", infos[0], diff)
			}
		}
		var invalid *InvalidPatchError
		for _, p := range []Patch{{Limit: &Rate{}}, {Burst: new(int64)}, {Tiers: map[string]Rate{"gold": *hours(1)}}, {Limit: hours(-1)}} {
			if p.Burst != nil {
				*p.Burst = 5
			}
			if _, err := a.Override(ctx, "l", p); !errors.As(err, &invalid) {
				t.Errorf("%+v: %v", p, err)
			}
		}
		if _, err := a.Override(ctx, "none", Patch{}); !errors.Is(err, ErrUnknownLimit) {
			t.Error(err)
		}
		// Another configuration leaves the override in force, a lower revision changes nothing.
		if err := b.Reconfigure(ctx, []Limit{hourly("l", 5)}, 2); err != nil {
			t.Fatal(err)
		}
		if err := a.Reconfigure(ctx, []Limit{hourly("l", 7)}, 1); err != nil {
			t.Fatal(err)
		}
		if got := left(a, ada); got != 8 {
			t.Errorf("%d left", got)
		}
		if limit, err = a.ResetOverride(ctx, "l"); err != nil || limit.Limit.Count != 5 {
			t.Fatal(limit, err)
		}
		for _, l := range []*Limiter{a, b} {
			if got := left(l, ada); got != 3 {
				t.Errorf("%d left, want 3 of 5", got)
			}
		}
		// A lower limit takes effect at once.
		if _, err := a.Override(ctx, "l", Patch{Limit: hours(1)}); err != nil {
			t.Fatal(err)
		}
		if d, err := b.Ask(ctx, "l", ada, 1); err != nil || d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
		// What is not configured any more is unknown.
		if err := b.Reconfigure(ctx, []Limit{hourly("m", 5)}, 3); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Ask(ctx, "l", ada, 1); !errors.Is(err, ErrUnknownLimit) {
			t.Error(err)
		}
		if err := b.Reconfigure(ctx, []Limit{{Name: "m"}}, 3); err == nil {
			t.Error("a limit that is not valid is taken")
		}
		if _, err := b.Ask(ctx, "m", ada, 1); err != nil {
			t.Error(err)
		}
	})
}

// A conf that was lost is written again, and questions are answered meanwhile.
func TestLostConf(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLimiter(t, client, hourly("l", 3))
		for i, id := range []string{"a", "b", "c", "d"} {
			if got := allowed(t, func() (Decision, error) { return l.Ask(t.Context(), "l", Identity{Caller: id}, 1) }); got != 3 {
				t.Errorf("%d allowed", got)
			}
			if n, err := client.Exists(t.Context(), confKey("l")).Result(); n != 1 || err != nil {
				t.Errorf("round %d: no conf, %v", i, err)
			}
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			if infos, err := l.Limits(t.Context()); err != nil || infos[0].InForce.Limit.Count != 3 {
				t.Errorf("%+v, %v", infos, err)
			}
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Data of a newer program is left alone.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		if err := client.HSet(t.Context(), confKey("l"), "schema", schemaVersion+1).Err(); err != nil {
			t.Fatal(err)
		}
		l := newLimiter(t, client, hourly("l", 3))
		if _, err := l.Ask(context.WithoutCancel(t.Context()), "l", Identity{Caller: "a"}, 1); err == nil || redisconn.Unavailable(err) || !strings.Contains(err.Error(), "newer program") {
			t.Error(err)
		}
	})
}
