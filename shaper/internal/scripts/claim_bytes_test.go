package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// enlarge makes the body of each job larger by so many bytes.
func (r *rig) enlarge(bytes int, ids ...string) {
	r.t.Helper()
	more := strings.Repeat("x", bytes)
	for _, id := range ids {
		body := r.stored("body", id)
		r.hset("body", id, body+more)
	}
}

// The bodies in an answer are bounded by their bytes, and those of the same answer
// given again: jobs that wait in a list, that are due, and of many flows.
func TestClaimIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	const jobs, size = 20, 100_000
	for name, fill := range map[string]func(r *rig) func(a ask) claimed{
		"list": func(r *rig) func(a ask) claimed {
			r.configure(settings{rateCount: 100_000})
			r.put(numbered(jobs)...)
			r.pass(second)
			return r.claim
		},
		"later": func(r *rig) func(a ask) claimed {
			r.configure(settings{rateCount: 100_000})
			r.putAt("+1", numbered(jobs)...)
			r.pass(second)
			return r.claim
		},
		"flows": func(r *rig) func(a ask) claimed {
			r.configureFlows(settings{rateCount: 100_000}, flowSettings{maxFlows: 100})
			for i, id := range numbered(jobs) {
				r.putIn(fmt.Sprint("f", i), 0, 0, id)
			}
			r.pass(second)
			return r.drain
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
				claim := fill(r)
				r.enlarge(size, numbered(jobs)...)
				var got []string
				for len(got) < jobs {
					c := claim(ask{bytes: 6 * size})
					if n := len(c.jobs); n == 0 || n > 5 {
						t.Fatalf("%d jobs of %d bytes in an answer of %d", n, size, 6*size)
					}
					if len(got)+len(c.jobs) < jobs && c.next-c.now > 200_000 {
						t.Errorf("the next claim comes in %d µs only", c.next-c.now)
					}
					for _, job := range c.jobs {
						got = append(got, job.id)
					}
				}
				if n := len(unique(got)); n != jobs {
					t.Errorf("%d of %d jobs were handed out: %v", n, jobs, got)
				}
			})
		})
	}
}

func unique(ids []string) map[string]bool {
	set := map[string]bool{}
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// The same claim is answered by the same jobs, and so by no more bytes. A job that is larger than
// the bound goes alone.
func TestLargeJobGoesAlone(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 100_000})
		r.put(numbered(3)...)
		r.enlarge(2<<20, "j0", "j1")
		r.pass(second)
		for round, want := range []string{"j0", "j1", "j2"} {
			id := fmt.Sprint("claim", round)
			first := r.claim(ask{claim: id})
			again := r.claim(ask{claim: id, bytes: 1000})
			if first.ids() != want || again.ids() != want {
				t.Errorf("round %d: %q, and again %q, want %q", round, first.ids(), again.ids(), want)
			}
		}
	})
}

// Expired jobs are no part of the answer, but they are read: not many large ones in one run.
func TestLargeExpiredJobsAreReadInParts(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 100_000})
		for _, id := range numbered(30) {
			r.enqueue(nil, entry{id: id, expires: 1000})
		}
		r.enlarge(500_000, numbered(30)...)
		r.pass(second)
		expired, runs := int64(0), 0
		for ; expired < 30 && runs < 30; runs++ {
			c := r.claim(ask{})
			if c.expired > 10 || c.next > c.now+200_000 {
				t.Fatalf("a run read %d jobs of 500 kB, and the next comes in %d µs", c.expired, c.next-c.now)
			}
			expired += c.expired
		}
		must.Equal(t, expired, 30, "of 30 jobs expired in %d runs", runs)
	})
}

// A heartbeat that names the claim under way keeps the leases that the dispatcher does not know.
func TestHeartbeatKeepsAnUnansweredClaim(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put(numbered(8)...)
		known := r.claim(ask{claim: "c1", want: 2, lease: 10 * second})
		r.claim(ask{claim: "c2", want: 3, lease: 10 * second})
		r.claim(ask{claim: "c2", dispatcher: "e", want: 1, lease: 10 * second})
		extend := func(claim string) []int64 {
			args := []any{10 * second, "d", claim}
			for _, l := range known.jobs {
				args = append(args, l.id, l.epoch, l.claim)
			}
			reply := must.Get(lua.Integers(r.run(lua.Extend, r.keysOf(lua.Extend), args...)))(r.t)
			return reply
		}
		r.pass(8 * second)
		for _, claim := range []string{"c", "c22", "c1", ""} { // none of these is its last one
			if got := extend(claim); fmt.Sprint(got) != "[1 1]" {
				t.Errorf("claim %q: %v", claim, got)
			}
		}
		if got := extend("c2"); fmt.Sprint(got) != "[1 1]" {
			t.Errorf("%v", got)
		}
		r.pass(5 * second)
		out := r.sweep(sweep{})
		if out.takenBack != 1 { // that of the other dispatcher
			t.Errorf("taken back: %d", out.takenBack)
		}
		again := r.claim(ask{claim: "c2"})
		must.Equal(t, len(again.jobs), 3, "the claim is answered by %q", again.ids())
	})
}
