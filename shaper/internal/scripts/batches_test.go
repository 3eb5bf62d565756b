package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// batches has the bucket hand out batches: of so many jobs, with so many bytes of payload, that wait so long for others.
func (r *rig) batches(size, bytes, wait int64) {
	r.t.Helper()
	r.hset("settings", "batch", fmt.Sprint(size, " ", bytes, " ", wait))
}

// together are the requests of a claim: "a+b c" are two.
func (c claimed) together() string {
	var text strings.Builder
	for i, job := range c.jobs {
		switch {
		case i == 0:
		case job.batch != 0 && job.batch == c.jobs[i-1].batch:
			text.WriteByte('+')
		default:
			text.WriteByte(' ')
		}
		text.WriteString(job.id)
	}
	return text.String()
}

// putEach enqueues jobs of these ids one by one; each has its id as its payload.
func (r *rig) putEach(jobs ...entry) {
	r.t.Helper()
	for _, e := range jobs {
		e.content = e.id
		if a := r.enqueue(nil, e)[0]; a.code > 2 {
			r.t.Fatalf("enqueue %s: code %d", e.id, a.code)
		}
	}
}

func entries(ids string) []entry {
	var jobs []entry
	for _, id := range strings.Fields(ids) {
		jobs = append(jobs, entry{id: id})
	}
	return jobs
}

func TestWhichJobsAreABatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		jobs        []entry
		size, bytes int64 // 3 and 100 if they are 0
		before      func(r *rig)
		want        string
	}{
		{name: "up to size", jobs: entries("a b c d e f g"), want: "a+b+c d+e+f g"},
		{name: "one", jobs: entries("a b"), size: 1, want: "a b"},
		{name: "up to bytes of payloads", jobs: entries("a bb ccc d e"), bytes: 5, want: "a+bb ccc+d+e"},
		{name: "one that is larger than a batch leaves alone", jobs: entries("a bbbbbbb c d"), bytes: 5, want: "a bbbbbbb c+d"},
		{
			name: "that agree",
			jobs: []entry{{id: "a", agrees: "x"}, {id: "b", agrees: "x", callback: true}, {id: "c"}, {id: "d", agrees: "y"}, {id: "e", agrees: "y", expires: 900 * second}},
			want: "a+b c d+e",
		},
		{name: "that leave alone", jobs: []entry{{id: "a", agrees: "!"}, {id: "b", agrees: "!"}, {id: "c"}, {id: "d"}}, want: "a b c+d"},
		{
			name: "by priority", jobs: []entry{{id: "a"}, {id: "b", priority: 1}, {id: "c", priority: 2}, {id: "d", priority: 1}, {id: "e"}},
			before: func(r *rig) { r.hset("settings", "aging", 60*second) }, want: "b+d+c a+e",
		},
		{
			name: "with those that are due", jobs: []entry{{id: "a", due: "+1000"}, {id: "b", due: "+900000000"}, {id: "c"}, {id: "d"}, {id: "e"}},
			want: "a+c+d e",
		},
		{
			name: "but for those that expire before", jobs: []entry{{id: "a", expires: second}, {id: "b", expires: 1000}, {id: "c", expires: second}},
			before: func(r *rig) { r.pass(2000) }, want: "a c",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
				r.configure(settings{rateCount: 100})
				size, bytes := c.size, c.bytes
				if size == 0 {
					size = 3
				}
				if bytes == 0 {
					bytes = 100
				}
				r.batches(size, bytes, 0)
				r.putEach(c.jobs...)
				r.pass(10_000)
				if c.before != nil {
					c.before(r)
				}
				got := r.claim(ask{})
				must.Equal(t, got.together(), c.want, "the requests are")
				requests := int64(strings.Count(c.want, " ") + 1)
				if b := r.inspect(); b.requests != requests || b.inFlight != int64(len(got.jobs)) {
					t.Errorf("%d requests and %d jobs are in flight, want %d and %d", b.requests, b.inFlight, requests, len(got.jobs))
				}
				for i, job := range got.jobs[1:] {
					before := got.jobs[i]
					if rides := job.batch != 0 && job.batch == before.batch; rides != (job.slot == before.slot) {
						t.Errorf("%s leaves at %d, %s at %d", before.id, before.slot, job.id, job.slot)
					}
				}
			})
		})
	}
}

// The rate, the burst, quotas and bounds in flight count requests: of the bucket, a flow, a group and a pool.
func TestBoundsCountRequests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		configure func(r *rig)
	}{
		{"bucket", func(r *rig) { r.configure(settings{inFlight: 2, rateCount: 1000}) }},
		{"quota", func(r *rig) {
			r.configure(settings{rateCount: 1000})
			r.hset("settings", "quotas", "2 60000000;")
		}},
		{"burst", func(r *rig) { r.configure(settings{rateCount: 1, burst: 2}) }},
		{"flow", func(r *rig) { r.configureFlows(settings{rateCount: 1000}, flowSettings{inFlight: 2}) }},
		{"quota of a flow", func(r *rig) { r.configureFlows(settings{rateCount: 1000}, flowSettings{quotas: "2 60000000;"}) }},
		{"group", func(r *rig) {
			r.configureGroups(settings{rateCount: 1000}, flowSettings{}, flowSettings{inFlight: 2})
		}},
		{"pool", func(r *rig) {
			r.pool = r.name + "-pool"
			r.configure(settings{rateCount: 1000})
			r.configurePool(poolSettings{rateCount: 1000, inFlight: 2})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
				c.configure(r)
				r.batches(4, 1000, 0)
				r.claim0() // the pace begins
				r.pass(5 * second)
				jobs := make([]entry, 20)
				for i, id := range numbered(20) {
					jobs[i] = entry{id: id}
					if r.withFlows() > 0 {
						jobs[i].flow, jobs[i].group = "f", "g"
					}
				}
				r.putEach(jobs...)
				first := r.claimAll(ask{})
				if want := "j0+j1+j2+j3 j4+j5+j6+j7"; first.together() != want {
					t.Fatalf("the requests are %q, want %q", first.together(), want)
				}
				if more := r.claimAll(ask{}); len(more.jobs) != 0 {
					t.Errorf("beyond its bound it sends %q", more.together())
				}
				if strings.Contains(c.name, "quota") || c.name == "burst" {
					return
				}
				// The last job of a request makes the place free, whether it was the first of the batch or not.
				r.settleAll(done, first.jobs[0], first.jobs[2], first.jobs[3])
				if more := r.claimAll(ask{}); len(more.jobs) != 0 {
					t.Errorf("while j1 is in flight it sends %q", more.together())
				}
				r.settleAll(done, first.jobs[1])
				if more, want := r.claimAll(ask{}), "j8+j9+j10+j11"; more.together() != want {
					t.Errorf("the requests are %q, want %q", more.together(), want)
				}
			})
		})
	}
}

// claim0 claims nothing, so that a bucket has a pace.
func (r *rig) claim0() {
	if r.withFlows() == 0 {
		r.claim(ask{})
	} else {
		r.drain(ask{})
	}
}

// claimAll claims, with a turn where the bucket has flows. The clock goes on meanwhile, so that turns come.
func (r *rig) claimAll(a ask) claimed {
	r.t.Helper()
	if r.withFlows() == 0 {
		return r.claim(a)
	}
	return r.drain(a)
}

func (r *rig) settleAll(result int, leases ...lease) {
	r.t.Helper()
	outcomes := make([]outcome, len(leases))
	for i, l := range leases {
		outcomes[i] = outcome{lease: l, result: result, delay: second}
	}
	for i, code := range r.settle(outcomes...) {
		must.Equal(r.t, code, 1, "%s: settled", leases[i].id)
	}
}

func TestClaimOfBatchesIsAnsweredAgain(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{})
		r.batches(3, 1000, 0)
		r.setFlow("f", flowSettings{weight: 1})
		r.claim0()
		r.pass(second)
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			r.putEach(entry{id: id, flow: "f"})
		}
		of := r.reserve(100, 200_000)
		first := r.claimFlows(ask{claim: "lost"}, of)
		must.Be(t, first.together(), "a+b+c d+e", "the requests are")
		again := r.claimFlows(ask{claim: "lost"}, of)
		if again.together() != "a+b+c d+e" || again.jobs[0].slot != first.jobs[0].slot || again.jobs[4].batch != first.jobs[4].batch {
			t.Errorf("asked again: %+v, first %+v", again.jobs, first.jobs)
		}
		for i, want := range []string{"{}", "", "", "{}", ""} {
			if first.jobs[i].own != want || again.jobs[i].own != want {
				t.Errorf("job %d comes with settings %q, and again with %q, want %q", i, first.jobs[i].own, again.jobs[i].own, want)
			}
		}
		// The heartbeat of a claim under way knows its id only.
		r.pass(second)
		if held := r.extend(60*second, first.jobs...); fmt.Sprint(held) != "[1 1 1 1 1]" {
			t.Errorf("extended %v", held)
		}
		// What was settled meanwhile is not there again, and the others are a batch still.
		r.settleAll(done, first.jobs[0], first.jobs[3])
		if again = r.claimFlows(ask{claim: "lost"}, of); again.together() != "b+c e" {
			t.Errorf("the requests are %q", again.together())
		}
	})
}

func TestCrashedBatchLeavesOneByOne(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.batches(3, 1000, 0)
		r.putEach(entries("a b c d")...)
		r.pass(second)
		first := r.claim(ask{want: 1})
		r.end("a", "b", "c")
		if out := r.sweep(sweep{}); out.takenBack != 3 {
			t.Fatalf("taken back: %+v", out)
		}
		if b := r.inspect(); b.requests != 0 || b.inFlight != 0 || r.exists("followers") != 0 {
			t.Errorf("%d requests, %d jobs in flight, followers %v", b.requests, b.inFlight, r.members("followers"))
		}
		r.pass(second)
		second := r.claim(ask{})
		must.Equal(t, second.together(), "a b c d", "after a crash, first %q", first.together())
		// A late outcome of the crashed process changes nothing.
		must.Equal(t, r.settle(outcome{lease: first.jobs[1], result: done})[0], 0, "a stale outcome is")
	})
}

// Those that failed alone are sent again; they may leave with others.
func TestFailedJobsOfABatchAreTriedAgain(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.batches(4, 1000, 0)
		r.putEach(entries("a b c d")...)
		r.pass(second)
		first := r.claim(ask{})
		r.settleAll(retry, first.jobs[0], first.jobs[2])
		r.settleAll(done, first.jobs[1], first.jobs[3])
		r.putEach(entries("e f g")...)
		r.pass(2 * second)
		if again := r.claim(ask{}); again.together() != "a+c+e+f g" || again.jobs[0].attempts != 1 || again.jobs[2].attempts != 0 {
			t.Errorf("again: %q, %+v", again.together(), again.jobs)
		}
	})
}

// Entries of batches that were deleted by hand are repaired.
func TestFollowersAreRepaired(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{inFlight: 2}, flowSettings{})
		r.batches(3, 1000, 0)
		r.claim0()
		r.pass(second)
		for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
			r.putEach(entry{id: id, flow: "f"})
		}
		first := r.claimAll(ask{})
		must.Be(t, first.together(), "a+b+c d+e+f", "the requests are")
		r.zrem("leases", "b", "c")
		must.Be(t, r.inspect().requests, 0, "requests")
		must.Equal(t, r.sweep(sweep{none: true}).repaired, 2, "repaired")
		must.Equal(t, r.inspect().requests, 2, "requests in flight")
		r.zadd("followers", "ghost", 1)
		must.Equal(t, r.sweep(sweep{none: true}).repaired, 1, "repaired")
		r.settleAll(done, first.jobs[3:]...)
		r.compare() // gives the lost leases back
		r.settleAll(done, first.jobs[:3]...)
		if keys := r.exists("followers", "flows"); keys != 0 || r.inspect().requests != 0 {
			t.Errorf("%d keys are left: %v, %d requests", keys, r.hash("flows"), r.inspect().requests)
		}
	})
}
