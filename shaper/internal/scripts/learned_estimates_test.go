package scripts_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// Of two estimates on a subject the one from more answers stays, whichever comes first and however often.
func TestLearn(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		store := func(args ...any) string {
			return fmt.Sprint(r.run(lua.StoreLearnedEstimates, r.keysOf(lua.StoreLearnedEstimates), append([]any{3}, args...)...))
		}
		stored := func(what string, want map[string]string) {
			t.Helper()
			if got := r.hash("learned_estimates"); !maps.Equal(got, want) {
				t.Errorf("%s: stored is %v, want %v", what, got, want)
			}
		}
		r.wants("a bucket that is not configured", store("m", 12, "x", ""), "[1]")
		stored("a bucket that is not configured", nil)
		r.configure(settings{})
		r.wants("no estimate", store(), "[0]")
		stored("no estimate", nil)
		for range 2 {
			r.wants("the first", store("m", 12, "1 2.5", "", "n", 1, "", ""), "[0]")
			stored("the first", map[string]string{"m": "12 1 2.5", "n": "1 "})
		}
		store("m", 12, "of as many", "", "n", 2, "of more", "")
		stored("of more answers", map[string]string{"m": "12 1 2.5", "n": "2 of more"})
		store("m", 9, "of fewer, and not as text", "")
		stored("of fewer answers", map[string]string{"m": "12 1 2.5", "n": "2 of more"})
		store("m", 100, "of more, and not as text", "", "o", 1, "", "", "p", 1, "no room", "", "n", 3, "", "")
		want := map[string]string{"m": "100 of more, and not as text", "n": "3 ", "o": "1 "}
		stored("four subjects", want)
		r.wants("a estimate that is not ours", fmt.Sprint(r.c.HSet(r.ctx, r.key("learned_estimates"), "o", "x").Val()), "0")
		store("o", 2, "ours", "")
		want["o"] = "2 ours"
		stored("a estimate that is not ours", want)
		if ttl := r.ttl(r.key("learned_estimates")); ttl <= 30*24*time.Hour || ttl > 31*24*time.Hour {
			t.Errorf("the key lives for %s", ttl)
		}
	})
}

// A caller has estimates on no more subjects than it leaves free, and whoever was the first on a subject counts for it.
func TestLearnedEstimatesAreShared(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		store := func(caller string, n int) (kept int) {
			args := []any{50}
			for i := range n {
				args = append(args, fmt.Sprint(caller, i), 1, "1 2.5", caller)
			}
			for range 2 {
				r.run(lua.StoreLearnedEstimates, r.keysOf(lua.StoreLearnedEstimates), args...)
			}
			for subject := range r.hash("learned_estimates") {
				if caller != "" && strings.HasPrefix(subject, caller) {
					kept++
				}
			}
			return kept
		}
		if a, b := store(anna, 60), store(bert, 60); a != 25 || b != 13 {
			t.Errorf("the first caller has %d estimates of 50, and the second %d of what it left", a, b)
		}
		r.run(lua.StoreLearnedEstimates, r.keysOf(lua.StoreLearnedEstimates), 50, anna+"0", 7, "3 4.5", bert)
		must.Equal(t, r.field("learned_estimates", anna+"0"), "7 3 4.5 @"+anna, "a estimate of another caller is")
		store("", 60)
		must.Equal(t, r.hlen("learned_estimates"), 50, "estimates are kept")
	})
}
