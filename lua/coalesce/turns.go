package coalesce

import (
	"maps"
	"slices"
	"sort"
)

// turns divides a queue among callers, by start-time fair queueing: an item's turn comes once its caller was served as much as each other
// waiting caller. The cost of an item is 1, and 1 more for each part of MaxWeight/Max that it weighs.
type turns struct {
	now  int64            // the turn of the last item that was sent
	ends map[string]int64 // by caller: the turn of its next items, if that is later than now
	trim int              // how many callers there may be before past ones are removed
}

// insert puts items in their place. The caller holds mu.
func (q *Queue[T]) insert(items []T) {
	if q.Caller == nil || len(items) == 0 {
		q.pending = append(q.pending, items...)
		return
	}
	cost := int64(len(items))
	if q.Weigh != nil {
		weight := 0
		for _, item := range items {
			weight += q.Weigh(item)
		}
		cost += int64(weight) * int64(q.Max) / int64(max(q.MaxWeight, 1))
	}
	turn := q.turns.take(q.Caller(items[0]), cost)
	for _, item := range items {
		*q.Turn(item) = turn
	}
	at := len(q.pending)
	if at > 0 && *q.Turn(q.pending[at-1]) > turn {
		at = sort.Search(at, func(i int) bool { return *q.Turn(q.pending[i]) > turn })
	}
	q.pending = slices.Insert(q.pending, at, items...)
}

// take returns the turn of the next items of a caller.
func (t *turns) take(caller string, cost int64) int64 {
	turn := max(t.now, t.ends[caller])
	if t.ends == nil {
		t.ends = map[string]int64{}
	}
	t.ends[caller] = turn + cost
	return turn
}

// advance sets the turn of the items that were sent, and how many items remain.
func (t *turns) advance(to int64, left int) {
	t.now = to
	if left == 0 {
		clear(t.ends) // nobody waits
		return
	}
	if len(t.ends) > t.trim {
		maps.DeleteFunc(t.ends, func(_ string, end int64) bool { return end <= to })
		const some = 64
		t.trim = 2*len(t.ends) + some
	}
}
