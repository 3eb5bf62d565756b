package httpapi

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// Whatever callers take and give back: what all have and what is free is the total, no caller has more than it leaves free, and a caller that has
// nothing gets something as long as anything is free.
func TestSharesLeaveRoom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(1, 300).Draw(t, "total")
		s, held := newShares(total), map[string]int64{}
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			caller := fmt.Sprint("key ", rapid.IntRange(0, 9).Draw(t, "caller"))
			if held[caller] > 0 && rapid.IntRange(0, 3).Draw(t, "gives back") == 0 {
				s.give(caller, 1)
				held[caller]--
				continue
			}
			free := s.free
			took := s.take(caller, 0, 1)
			if want := held[caller]+1 <= free || held[caller] == 0 && free > 0; took != want {
				t.Fatalf("%s has %d, %d are free: took %t", caller, held[caller], free, took)
			}
			if took {
				held[caller]++
			}
		}
		sum := int64(0)
		for _, n := range held {
			sum += n
		}
		if sum+s.free != total {
			t.Fatalf("%d are held and %d are free of %d", sum, s.free, total)
		}
	})
}

// One caller alone gets half, two that want all get a third each.
func TestSharesOfCallers(t *testing.T) {
	t.Parallel()
	for callers := range 9 {
		const total = 200
		s, held := newShares(total), make([]int, callers)
		for range total {
			for i := range held {
				if s.take(fmt.Sprint(i), 0, 1) {
					held[i]++
				}
			}
		}
		for i, n := range held {
			if want := total / (callers + 1); n < want || n > want+1 {
				t.Errorf("caller %d of %d has %d, want %d", i, callers, n, want)
			}
		}
	}
}
