package scripts_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// endOf has jobs of a caller end: they are cancelled.
func (r *rig) endOf(caller string, n int, made bool) (ids []string) {
	r.t.Helper()
	for i := range n {
		id := fmt.Sprintf("%s-%d-%d", caller, r.now(), i)
		if a := r.enqueue(nil, entry{id: id, caller: caller, made: made})[0]; a.code != lua.Queued {
			r.t.Fatalf("%s: %+v", id, a)
		}
		must.Be(r.t, r.cancel(id, ""), isCancelled, "cancel")
		ids = append(ids, id)
	}
	r.pass(second)
	return ids
}

// wantSeenOf holds the counts of callers against the ids that are remembered, and the ids against the lists.
func (r *rig) wantSeenOf() map[string]int {
	r.t.Helper()
	want, got := map[string]int{}, map[string]int{}
	seen := r.hash("seen")
	for id := range seen {
		caller, _, _ := strings.Cut(id, "-")
		want[map[string]string{loud: "000000", calm: "000001", third: "000002"}[caller]]++
	}
	counts := r.hash("count")
	for name, text := range counts {
		if digits, found := strings.CutPrefix(name, "seen_of:"); found {
			got[digits], _ = strconv.Atoi(text)
		}
	}
	must.Equal(r.t, fmt.Sprint(got), fmt.Sprint(want), "counted are %v, remembered %v", got, want)
	for _, list := range []string{"seen_window", "seen_minute"} {
		ids := r.elements(list)
		for _, id := range ids {
			if seen[id] == "" {
				r.t.Errorf("%s has %q, which is not remembered", list, id)
			}
			delete(seen, id)
		}
	}
	if len(seen) > 0 {
		r.t.Errorf("no list has %v", seen)
	}
	return got
}

// A caller whose jobs end in masses has its own ids forgotten, and none of others: these would be delivered twice.
func TestIDsOfOthersAreNotForgotten(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		const most = 60
		r.configure(settings{dedupeMax: most})
		mine := append(r.endOf(calm, 10, false), r.endOf("", 5, false)...)
		mine = append(mine, r.endOf(third, 5, true)...)
		for range 6 {
			r.endOf(loud, 40, false)
			r.endOf(loud, 10, true)
		}
		if of := r.wantSeenOf(); of["000001"] != 10 || of["000002"] != 5 || of[""] != 5 || of["000000"] != most-20 {
			t.Errorf("remembered are %v", of)
		}
		for _, id := range mine {
			caller, _, _ := strings.Cut(id, "-")
			must.Equal(t, r.enqueue(nil, entry{id: id, caller: caller, made: caller == third})[0].code, lua.Duplicate, "%s is answered", id)
		}
		// What moved to the end of its list does not hide when the last id ends.
		tail := r.c.LIndex(r.ctx, r.key("seen_window"), -1).Val()
		if !strings.HasPrefix(tail, loud) {
			t.Errorf("the last id of the list is %q", tail)
		}
		// Two callers that have the most give up alike.
		r.endOf(calm, 100, false)
		if of := r.wantSeenOf(); of["000001"] != 25 || of["000000"] != 25 {
			t.Errorf("remembered are %v", of)
		}
		r.pass(2 * 3600 * second)
		r.sweep(sweep{none: true})
		if of := r.wantSeenOf(); len(of) > 0 {
			t.Errorf("after the window %v are counted", of)
		}
	})
}

// With many ids of others before those that have to go, there may be an eighth more than the most for a while, and no more.
func TestIDsAreBoundedBehindThoseOfOthers(t *testing.T) {
	t.Parallel()
	r := realRig(t)
	const most = 4000
	r.configure(settings{dedupeMax: most})
	var fields, order []any
	for i := range most / 2 {
		id := fmt.Sprintf("%s-%d", calm, i)
		fields, order = append(fields, id, fmt.Sprintf("abcdefghijk70%d000001", (r.now()+3600*second)/second)), append(order, id)
	}
	r.hset("seen", fields...)
	r.rpush("seen_window", order...)
	r.hset("count", "seen_of:000001", most/2)
	largest := int64(0)
	for range 60 {
		jobs := make([]entry, 100)
		for i := range jobs {
			jobs[i] = entry{id: fmt.Sprintf("%s-%d-%d", loud, r.now(), i), caller: loud}
		}
		r.enqueue(nil, jobs...)
		var outcomes []outcome
		r.pass(second)
		for _, job := range r.claim(ask{want: 100}).jobs {
			outcomes = append(outcomes, outcome{lease: job, result: done})
		}
		r.settle(outcomes...)
		largest = max(largest, r.hlen("seen"))
	}
	of := r.wantSeenOf()
	if of["000001"] != most/2 || largest <= most || largest > most+most/8 {
		t.Errorf("%d ids at most, now %v", largest, of)
	}
}
