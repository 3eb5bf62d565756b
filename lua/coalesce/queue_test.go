package coalesce

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// gatherer is a Queue that notes what it sends; a send takes a second.
type gatherer struct {
	Queue[int]
	mu    sync.Mutex
	sends []string
	at    []time.Duration
}

func newGatherer() *gatherer {
	began := time.Now()
	g := &gatherer{}
	g.Max, g.MaxWeight, g.Weigh = 3, 100, func(n int) int { return n }
	g.Send = func(items []int) func() {
		g.mu.Lock()
		g.sends, g.at = append(g.sends, fmt.Sprint(items)), append(g.at, time.Since(began))
		g.mu.Unlock()
		time.Sleep(time.Second) //nolint:forbidigo // in a bubble: no time passes
		return nil
	}
	return g
}

func (g *gatherer) want(t *testing.T, sends string) {
	t.Helper()
	g.Wait()
	if got := fmt.Sprint(g.sends); got != sends {
		t.Errorf("sent %s, want %s", got, sends)
	}
}

func TestQueueSendsAtOnceWhenIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer()
		for n := range 3 {
			g.Add(n)
			g.Wait()
		}
		g.want(t, "[[0] [1] [2]]")
		if !slices.Equal(g.at, []time.Duration{0, time.Second, 2 * time.Second}) {
			t.Errorf("sent at %v", g.at)
		}
	})
}

func TestQueueBatchesUnderLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer()
		g.Add(1)
		synctest.Wait()
		g.Add(2)
		g.Add(3, 4, 5)
		g.Add(60)
		g.Add(60) // together too heavy
		g.Add(500)
		g.want(t, "[[1] [2 3 4] [5 60] [60] [500]]")
	})
}

// A send touches a bounded number of kinds, however many items it may have.
func TestQueueBoundsKinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer()
		g.Max, g.MaxWeight, g.MaxKinds = 100, 1000, 2
		g.Kind = func(n int) [2]string { return [2]string{"", strconv.Itoa(n / 10)} }
		g.Add(1)
		synctest.Wait()
		g.Add(2, 3, 11, 4, 12, 21, 22, 31, 23, 41)
		g.want(t, "[[1] [2 3 11 4 12] [21 22 31 23] [41]]")
	})
}

// Items of the kinds that a trip has come along from behind items of other kinds, in their order, as long as they fit.
func TestQueueGathersKinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer()
		g.Max, g.MaxWeight, g.MaxKinds = 5, 120, 2
		g.Kind = func(n int) [2]string { return [2]string{"", strconv.Itoa(n / 10)} }
		g.Add(1)
		synctest.Wait()
		g.Add(2, 11, 21, 3, 31, 12, 22, 4, 5, 61, 62, 63)
		g.want(t, "[[1] [2 11 3 12 4] [21 31 22] [5 61] [62] [63]]")
	})
}

func TestQueueDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer()
		g.Add(1)
		synctest.Wait()
		g.Add(2, 3)
		if got := g.Drain(); !slices.Equal(got, []int{2, 3}) {
			t.Errorf("drained %v", got)
		}
		g.want(t, "[[1]]")
		g.Add(4)
		g.want(t, "[[1] [4]]")
	})
}

// Where items of an owner are left behind, as others of known kinds come along, no second send is under way.
func TestQueueGathersKindsOfOwners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer()
		g.Max, g.MaxWeight, g.MaxKinds = 10, 1000, 1
		g.Kind = func(n int) [2]string { return [2]string{"", strconv.Itoa(n / 10)} }
		g.Owner = func(n int) any { return n % 10 }
		g.Add(1)
		synctest.Wait()
		g.Add(12, 22, 13, 23)
		g.want(t, "[[1] [12 13] [22 23]]")
		if !slices.Equal(g.at, []time.Duration{0, 0, time.Second}) {
			t.Errorf("sent at %v", g.at)
		}
	})
}

// Two sends may be under way, but never with items of one owner, and each
// owner's items keep their order.
func TestQueueKeepsTheOrderOfAnOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type item struct{ owner, n int }
		var mu sync.Mutex
		seen, busy, most, active := map[int][]int{}, map[int]bool{}, 0, 0
		c := Queue[item]{Max: 8, MaxWeight: 100, Weigh: func(item) int { return 1 }, Owner: func(i item) any { return i.owner }}
		c.Send = func(items []item) func() {
			mu.Lock()
			owners := map[int]bool{}
			for _, i := range items {
				owners[i.owner] = true
				seen[i.owner] = append(seen[i.owner], i.n)
			}
			for owner := range owners {
				if busy[owner] {
					t.Errorf("owner %d is in two sends", owner)
				}
				busy[owner] = true
			}
			active++
			most = max(most, active)
			mu.Unlock()
			time.Sleep(time.Duration(1+items[0].n%3) * time.Millisecond) //nolint:forbidigo // in a bubble: no time passes
			mu.Lock()
			defer mu.Unlock()
			active--
			for owner := range owners {
				delete(busy, owner)
			}
			return nil
		}
		const owners, each = 12, 50
		var all sync.WaitGroup
		for owner := range owners {
			all.Go(func() { // one call, as of a trip
				var items []item
				for n := range each {
					items = append(items, item{owner, n})
				}
				c.Add(items...)
			})
		}
		all.Wait()
		c.Wait()
		for owner := range owners {
			if len(seen[owner]) != each || !slices.IsSorted(seen[owner]) {
				t.Errorf("owner %d: %v", owner, seen[owner])
			}
		}
		if most > 2 {
			t.Errorf("%d sends at a time", most)
		}
	})
}

// A second trip leaves as soon as as many wait as are under way, and no sooner; there is no third.
func TestQueueSendsASecondBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer()
		g.Max = 8
		g.Owner = func(n int) any { return n }
		add := func(items ...int) {
			g.Add(items...)
			synctest.Wait()
		}
		add(1, 2, 3)
		add(4)
		add(5)
		add(6)
		add(7, 8, 9, 10, 11, 12, 13)
		<-time.After(time.Millisecond)
		g.mu.Lock()
		got := fmt.Sprint(g.sends)
		g.mu.Unlock()
		if got != "[[1 2 3] [4 5 6]]" {
			t.Errorf("under way are %s", got)
		}
		g.want(t, "[[1 2 3] [4 5 6] [7 8 9 10 11 12 13]]")
		if !slices.Equal(g.at, []time.Duration{0, 0, time.Second}) {
			t.Errorf("sent at %v", g.at)
		}
	})
}

// More items than a trip may have leave as two trips at once.
func TestQueueSendsTwoFullBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer()
		g.Owner = func(n int) any { return n }
		g.Add(1, 2, 3, 4, 5, 6, 7)
		synctest.Wait()
		g.mu.Lock()
		if len(g.sends) != 2 {
			t.Errorf("under way are %v", g.sends)
		}
		g.mu.Unlock()
		g.Wait()
		if len(g.sends) != 3 || g.at[2] != time.Second {
			t.Errorf("sent %v at %v", g.sends, g.at)
		}
	})
}

// A caller that can wait sends the trip that leaves with its item; a caller that comes
// while two trips are under way returns at once.
func TestQueueSendsInTheCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer()
		g.Owner = func(n int) any { return n }
		began := time.Now()
		var all sync.WaitGroup
		for n, want := range []time.Duration{time.Second, time.Second, 0, 0} {
			all.Go(func() {
				g.AddAndSend(n)
				if took := time.Since(began); took != want {
					t.Errorf("caller %d returned after %s, want %s", n, took, want)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		g.want(t, "[[0] [1] [2 3]]")
	})
}

// An item that is not under way can be taken back.
func TestQueueRemove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer()
		g.Add(1)
		synctest.Wait()
		g.Add(2, 3, 4)
		for item, want := range map[int]bool{1: false, 3: true, 5: false} {
			if got := g.Remove(item); got != want {
				t.Errorf("item %d is taken back: %t", item, got)
			}
		}
		g.want(t, "[[1] [2 4]]")
	})
}

// Items that wait can be taken back together, and those under way cannot.
func TestQueueRemoveFunc(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer()
		g.Add(1)
		synctest.Wait()
		if !g.Add(2, 3, 4, 5) {
			t.Error("nothing waits")
		}
		if got := g.RemoveFunc(func(n int) bool { return n%2 == 1 }); !slices.Equal(got, []int{3, 5}) {
			t.Errorf("taken back are %v", got)
		}
		g.want(t, "[[1] [2 4]]")
		if g.Add(6) {
			t.Error("an item waits though nothing is under way")
		}
		g.want(t, "[[1] [2 4] [6]]")
	})
}

// Callers take turns: what a caller adds waits for one call of each other one, not for all that this one has added. A heavy call counts as many items.
func TestQueueServesCallersInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer() // trips of 3 items, and of a weight of 100
		owner, turn := func(n int) string { return strconv.Itoa(n / 100) }, map[int]*int64{}
		g.Weigh = func(n int) int { return n % 100 / 90 * 99 } // 90 and more
		g.Caller = owner
		g.Turn = func(n int) *int64 {
			if turn[n] == nil {
				turn[n] = new(int64)
			}
			return turn[n]
		}
		g.Add(1)
		synctest.Wait()
		g.Add(2, 3, 4)
		g.Add(5, 6, 7)
		g.Add(8, 9, 10)
		g.Add(190)
		g.Add(191)
		g.Add(201)
		g.Add(202)
		g.Add(203)
		g.want(t, "[[1] [2 3 4] [190 201 202] [203 5 6] [7 191 8] [9 10]]")
		if len(g.turns.ends) != 0 {
			t.Errorf("%d callers are remembered, and none waits", len(g.turns.ends))
		}
	})
}

// Callers that wait no more are forgotten, also while the queue never is empty.
func TestQueueForgetsCallers(t *testing.T) {
	t.Parallel()
	var of turns
	for n := range int64(10_000) {
		of.take(strconv.FormatInt(n, 10), 1)
		of.advance(n, 1)
	}
	if len(of.ends) > 200 {
		t.Errorf("%d callers are remembered", len(of.ends))
	}
}
