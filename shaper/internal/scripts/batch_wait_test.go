package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

func TestABatchWaitsForOthers(t *testing.T) {
	t.Parallel()
	const wait = 5 * second
	for _, flows := range []bool{false, true} {
		t.Run(fmt.Sprint("flows ", flows), func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, base *rig) {
				var r *rig
				in := func(jobs ...entry) []entry {
					for i := range jobs {
						if flows {
							jobs[i].flow = "f"
						}
					}
					return jobs
				}
				begin := func() {
					r = base.fresh(t, fmt.Sprint("b", nextClaim()))
					if flows {
						r.configureFlows(settings{}, flowSettings{})
					} else {
						r.configure(settings{})
					}
					r.batches(3, 10, wait)
					r.claim0()
					r.pass(second)
				}
				want := func(what, requests string) claimed {
					t.Helper()
					c := r.claimAll(ask{lead: 1000})
					must.Equal(t, c.together(), requests, "%s: the requests are", what)
					return c
				}
				begin()
				came := r.now()
				r.putEach(in(entry{id: "a"})...)
				c := want("alone", "")
				if c.next < came+wait-second/10 || c.next > r.now()+wait {
					t.Errorf("it asks again %d µs after the job came, want %d", c.next-came, wait)
				}
				r.pass(second)
				r.putEach(in(entry{id: "b"})...)
				want("with another one", "")
				r.setTime(c.next - 150_000)
				want("when the first one has waited", "a+b")

				begin()
				r.putEach(in(entry{id: "a"}, entry{id: "b"})...)
				want("not full", "")
				woken := r.woken(func() { r.putEach(in(entry{id: "c"})...) })
				if !strings.Contains(woken, r.name) {
					t.Errorf("the job that makes a batch full wakes %q", woken)
				}
				want("full", "a+b+c")

				begin()
				r.putEach(in(entry{id: "aaaaaa"}, entry{id: "bbbbbb"})...)
				want("full by bytes", "aaaaaa")

				begin()
				r.putEach(in(entry{id: "a"}, entry{id: "b", agrees: "x"})...)
				want("the next one does not agree", "a")

				begin()
				r.putEach(in(entry{id: "a"}, entry{id: "b", expires: 2 * second})...)
				want("one expires", "")
				r.pass(second)
				want("at half of its time", "a+b")

				begin()
				r.putEach(in(entry{id: "a", due: "+1000000"})...)
				want("before it is due", "")
				r.pass(second)
				want("when it is due", "a")
			})
		})
	}
}

// The estimated departure of a job counts full batches, whether jobs are decided as one or one by one.
func TestEstimatesOfBatches(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10})
		r.batches(5, 1000, 0)
		keys, args := r.alike(nil, 5, 3, "")
		for i, id := range numbered(5) {
			args = append(args, id, fmt.Sprintf("%s%03d \n", entry{id: id, content: "x"}.mark(), i+1))
		}
		in := r.reader(lua.Enqueue, keys, args...)
		_, alike, _, first, count, per := in.Int(), in.Int(), in.Int(), in.Int(), in.Int(), in.Int()
		if r.ok(in.Err()); alike != 1 || count != 50 || per != second {
			t.Errorf("alike %d: they leave at %d in %d µs", alike, count, per)
		}
		for i := range 11 {
			id := fmt.Sprint("k", i)
			at := r.enqueue(nil, entry{id: id})[0].eta
			if want := first + int64(1+i/5)*second/10; at < want-1000 || at > want+second/20 {
				t.Errorf("%s leaves %d µs after the first job, want %d", id, at-first, want-first)
			}
			if i == 10 {
				if shown := r.job(id).instant; shown < at-second/20 || shown > at+second/20 {
					t.Errorf("%s is shown to leave at %d, its receipt said %d", id, shown, at)
				}
			}
		}
	})
}
