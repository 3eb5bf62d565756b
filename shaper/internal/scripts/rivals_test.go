package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// rivals is a bucket at 10/s, of which 5 jobs may leave in 10 s, and from which 5 jobs of two flows have left.
func rivals(t *testing.T, base *rig, grouped bool) *rig {
	t.Helper()
	r := base.fresh(t, fmt.Sprint("b", nextClaim()))
	s := settings{rateCount: 10, capacity: 1000, inFlight: 1000}
	if grouped {
		r.configureGroups(s, flowSettings{}, flowSettings{})
	} else {
		r.configureFlows(s, flowSettings{})
	}
	r.obeys("quotas", fmt.Sprint(5, " ", 10*second, ";"))
	a, b := rivalFlows(grouped)
	r.enqueue(nil, entry{id: "begins", flow: a})
	r.drain(ask{}) // the pace begins
	r.pass(second)
	for i := range 20 {
		r.enqueue(nil, entry{id: fmt.Sprint("a", i), flow: a}, entry{id: fmt.Sprint("b", i), flow: b})
	}
	return r
}

func rivalFlows(grouped bool) (a, b string) {
	if grouped {
		return "1:aa", "1:bb"
	}
	return "a", "b"
}

// While nothing leaves, a job is told the same: also between the two scripts of a claim, and where a flow's last job was let go a moment
// ahead of its time.
func TestEstimatesStandStill(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		for _, grouped := range []bool{false, true} {
			r := rivals(t, base, grouped)
			for range 20 {
				if c := r.drain(ask{}); len(c.jobs) > 0 {
					r.settleAll(done, c.jobs...)
				}
				r.pass(50_000)
			}
			was := r.job("a12").instant
			same := func(when string) {
				if is := r.job("a12"); is.state != isQueued || is.instant != was {
					t.Errorf("groups %v, %s: job a12 was told %.3f s, and %.3f s then", grouped, when, float64(was-r.now())/second, float64(is.instant-r.now())/second)
				}
			}
			r.pass(300_000)
			same("a moment later")
			half := r.reserve(100, 200_000)
			must.Be(t, len(half.flows), 2, "groups %v: %+v", grouped, half)
			same("half a claim")
			r.claimFlows(ask{}, half)
			same("a claim")
		}
	})
}

// Jobs of two flows that take turns leave when they were told, in whatever state of a claim they came, one by one or many at once. Of jobs
// that come one by one it is not known which flow goes first in a turn: where the quota is used up in between, that is a window.
func TestReceiptsOfTwoFlowsComeTrue(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, base *rig) {
		for _, grouped := range []bool{false, true} {
			a, b := rivalFlows(grouped)
			for _, how := range []string{"one by one", "many at once"} {
				r, told, off := rivals(t, base, grouped), map[string]int64{}, int64(300_000)
				if how == "many at once" {
					r.leave(t, 100*second) // the bucket is empty
					r.pass(100 * second)
					told = r.manyOfTwo(t, 24, a, b)
				} else {
					off += 10*second + second/5
					for i := range 24 {
						id := fmt.Sprint("c", i)
						half := r.reserve(100, 200_000)
						told[id] = r.enqueue(nil, entry{id: id, flow: []string{a, b}[i%2]})[0].eta
						if i%2 == 0 && len(half.flows) > 0 {
							r.claimFlows(ask{}, half)
						}
						r.pass(10_000)
					}
				}
				slots := r.leave(t, 150*second)
				for i := range 24 {
					id := fmt.Sprint("c", i)
					if d := slots[id] - told[id]; d < -off || d > off {
						t.Errorf("groups %v, %s: job %s was told %.3f s, and left at %.3f s", grouped, how, id, float64(told[id]-epoch)/second, float64(slots[id]-epoch)/second)
					}
				}
			}
		}
	})
}

// manyOfTwo enqueues jobs of two flows in turns, as one batch of jobs that are alike, and returns what they were told.
func (r *rig) manyOfTwo(t *testing.T, n int, a, b string) map[string]int64 {
	t.Helper()
	keys, args := r.alike(nil, n, 3, a, b)
	for i := range n {
		args = append(args, fmt.Sprint("c", i), fmt.Sprintf("%011dcn%03d \n", 0, i+1), i%2+1)
	}
	in := lua.NewReader(r.run(lua.Enqueue, keys, args...))
	if code, _, how := in.Int(), in.Int(), in.Int(); code != 0 || how != 2 {
		t.Fatalf("many at once: %d, %d", code, how)
	}
	for range 8 {
		in.Int()
	}
	told := map[string]int64{}
	for i := range n {
		told[fmt.Sprint("c", i)] = in.Int()
	}
	r.ok(in.Err())
	return told
}
