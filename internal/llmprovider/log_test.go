package llmprovider_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/llmprovider"
	"github.com/tundish-io/tundish/internal/must"
)

// after is the instant so many seconds after the first one.
func after(seconds int) time.Time {
	return time.Date(2026, 3, 1, 12, 0, seconds, 0, time.UTC)
}

// calls are calls of so many tokens at so many seconds, each {seconds, tokens}.
func calls(of ...[2]int) llmprovider.Log {
	var log llmprovider.Log
	for _, c := range of {
		log = append(log, &llmprovider.Call{At: after(c[0]), Status: 200, Charges: []llmprovider.Charge{{At: after(c[0]), Requests: 1, Input: int64(c[1])}}})
	}
	return log
}

func TestUse(t *testing.T) {
	t.Parallel()
	log := calls([2]int{0, 50}, [2]int{30, 100}, [2]int{60, 25}, [2]int{90, 1000})
	limit := llmprovider.Limit{Unit: llmprovider.Tokens, Amount: 100, Window: time.Minute}
	for _, c := range []struct {
		from, until int
		want        float64
	}{{0, 60, 1.5}, {0, 90, 175. / 150}, {30, 60, 2}, {60, 60, 0}, {60, 0, 0}, {100, 160, 0}} {
		must.Equal(t, log.Use(limit, after(c.from), after(c.until)), c.want, "from %d s until %d s", c.from, c.until)
	}
	must.Equal(t, log.Use(llmprovider.Limit{Unit: llmprovider.Requests, Amount: 4, Window: time.Minute}, after(0), after(120)), .5, "requests")
}

// The oracle tries every begin of a window, a second apart.
func TestMostAgreesWithBruteForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var of [][2]int
		for range rapid.IntRange(0, 20).Draw(t, "calls") {
			of = append(of, [2]int{rapid.IntRange(0, 60).Draw(t, "at"), rapid.IntRange(0, 50).Draw(t, "tokens")})
		}
		window := rapid.IntRange(1, 70).Draw(t, "window")
		log, want := calls(of...), int64(0)
		for begin := range 61 {
			want = max(want, log.Sum(llmprovider.Tokens, after(begin), after(begin+window)))
		}
		must.Be(t, log.Most(llmprovider.Tokens, time.Duration(window)*time.Second), want, "Most")
		slices.Reverse(log) // the order of a log is none of its business
		must.Be(t, log.Most(llmprovider.Tokens, time.Duration(window)*time.Second), want, "in another order")
	})
}
