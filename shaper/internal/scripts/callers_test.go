package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// Two callers in seven letters.
const (
	anna = "annaXYZ"
	bert = "bertXYZ"
)

// Codes of enqueue.lua.
const (
	isIn      = 1
	isThere   = 3
	isReused  = 4
	isAnother = 18
)

// codes enqueues jobs one after the other.
func (r *rig) codes(jobs ...entry) string {
	r.t.Helper()
	var codes []string
	for _, job := range jobs {
		codes = append(codes, fmt.Sprint(r.enqueue(nil, job)[0].code))
	}
	return strings.Join(codes, " ")
}

// askers are the same job of two callers and of none, and one of the first with other content.
func askers(id string) []entry {
	return []entry{{id: id, caller: anna, content: "1"}, {id: id, caller: bert, content: "1"}, {id: id, content: "1"}, {id: id, caller: anna, content: "2"}}
}

// An id is that of one caller, from its enqueue until its dedupe window is over, however the job ends.
func TestCallerOfAJob(t *testing.T) {
	t.Parallel()
	known := fmt.Sprint(isThere, isAnother, isThere, isReused)
	for name, end := range map[string]func(r *rig){
		"waits": func(*rig) {},
		"done":  func(r *rig) { r.settle(r.takeOne(1)) },
		"retries": func(r *rig) {
			o := r.takeOne(2)
			o.delay = second
			r.settle(o)
		},
		"dead":      func(r *rig) { r.settle(r.takeOne(3)) },
		"dropped":   func(r *rig) { r.settle(r.takeOne(9)) },
		"cancelled": func(r *rig) { r.cancel("x", "") },
		"purged":    func(r *rig) { r.purge(purge{id: "p"}) },
		"redriven": func(r *rig) {
			r.settle(r.takeOne(3))
			r.redrive("x")
		},
		"trimmed": func(r *rig) {
			r.settle(r.takeOne(3))
			r.hset("settings", "dead_retention", 1)
			r.pass(second)
			r.trim(10, 1<<20)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
				r.configure(settings{})
				r.put("before") // has no caller
				plain := r.body("before")
				r.cancel("before", "")
				must.Be(t, r.codes(entry{id: "x", caller: anna, content: "1"}), fmt.Sprint(isIn), "enqueued")
				if more := len(r.body("x")) - len(plain); more > 8+len("1") {
					t.Errorf("%d bytes more beside the job", more)
				}
				end(r)
				must.Equal(t, r.codes(askers("x")...), known, "codes")
				seen := r.field("seen", "x")
				if plain := r.field("seen", "before"); seen != "" && (len(seen) > len(plain)+8 || r.job("x").caller != lastOf(seen, 6)) {
					t.Errorf("seen holds %q, without a caller %q; %+v", seen, plain, r.job("x"))
				}
				// The window is over, at most two seconds later than without a caller.
				if seen != "" {
					r.pass(3602 * second)
					must.Equal(t, r.codes(entry{id: "x", caller: bert, content: "1"}), fmt.Sprint(isIn), "after the window")
				}
			})
		})
	}
}

func (r *rig) body(id string) string { return r.field("body", id) }

func lastOf(text string, n int) string { return text[max(len(text)-n, 0):] }

// What stands with the caller in a job's head is read as without: when it expires, its batch, its callback.
func TestCallerBesideOtherFields(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put("first")
		r.codes(entry{id: "long", caller: anna, expires: 3600 * second, callback: true, agrees: "abcdefgh"}, entry{id: "short", caller: bert, expires: second, callback: true})
		r.pass(2 * second)
		c := r.claim(ask{want: 3})
		if len(c.jobs) != 2 || c.jobs[1].id != "long" || !strings.HasSuffix(c.jobs[1].mark, anna) || len(c.died) != 1 || c.died[0].id != "short" {
			t.Errorf("claimed %+v, died %+v", c.jobs, c.died)
		}
		must.Equal(t, r.hlen("callback_texts"), 1, "callbacks")
		// A bucket in which nothing expires does not learn from a caller that something does.
		r.name = "c"
		r.configure(settings{})
		r.codes(entry{id: "x", caller: anna})
		must.Equal(t, r.field("pace", "expiring"), "", "expiring is")
	})
}

// A job without a caller, such as one of a program of the library, is no caller's: not while it exists, and not once it has ended.
func TestJobWithoutCaller(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put("waits", "ended")
		r.cancel("ended", "")
		for _, id := range []string{"waits", "ended"} {
			must.Equal(t, r.codes(entry{id: id, caller: anna}), fmt.Sprint(isAnother), id)
		}
	})
}

// The time at which the settings of a bucket are first written stays. It differs once they were lost and are written again.
func TestTimeOfFirstSettings(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		configure := func(revision int) string {
			r.run(lua.Configure, r.keys("settings", "body", "dead", "parked"), 1, revision, "", r.name, 1, "test", 0, "generation", 0, "capacity", 50+revision)
			return r.field("settings", "created")
		}
		first := fmt.Sprint(r.now())
		for _, revision := range []int{2, 1, 2, 3} { // the second is refused
			must.Equal(t, configure(revision), first, "created")
			r.pass(second)
		}
		r.del("settings")
		must.Equal(t, configure(3), fmt.Sprint(r.now()), "created after a loss")
	})
}
