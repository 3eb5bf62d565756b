package scripts_test

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/lua"
)

// start runs start.lua, and returns whether the job was started.
func (r *rig) start(id, epoch, claim any, started string, length int64) bool {
	r.t.Helper()
	reply, err := lua.Integers(r.run(lua.Start, r.of(lua.Start), id, epoch, claim, started, length))
	r.ok(err)
	if len(reply) != 2 || reply[0] > r.now() {
		r.t.Fatalf("start answered %v", reply)
	}
	return reply[1] == 1
}

// A lease starts once an epoch, and then belongs to the start: not to the dispatcher, and to no other start.
func TestStartOnceAnEpoch(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put("a", "b")
		c := r.claim(ask{want: 1})
		l := c.jobs[0]
		for _, refused := range []struct {
			what      string
			id, epoch any
			claim     string
		}{
			{"an unknown job", "z", l.epoch, l.claim},
			{"a job that waits", "b", 1, l.claim},
			{"another epoch", "a", l.epoch + 1, l.claim},
			{"another claim", "a", l.epoch, "other"},
		} {
			if r.start(refused.id, refused.epoch, refused.claim, "+s", 60*second) {
				t.Errorf("started %s", refused.what)
			}
		}
		for range 2 { // sent twice
			if !r.start("a", l.epoch, l.claim, "+s", 60*second) {
				t.Fatal("not started")
			}
		}
		deadline := r.job("a").instant
		if deadline < r.now()+60*second-second || deadline > r.now()+60*second {
			t.Errorf("the lease ends in %d µs, want %d", deadline-r.now(), 60*second)
		}
		if r.start("a", l.epoch, l.claim, "+t", 60*second) {
			t.Error("started twice")
		}
		if got := r.extend(60*second, l); got[0] != 0 {
			t.Error("the heartbeat of the dispatcher keeps a lease that was started")
		}
		if got := r.settle(outcome{lease: l, result: done}); got[0] != 0 {
			t.Error("the dispatcher settles a lease that was started")
		}
		l.claim = "+s"
		if got := r.extend(60*second, l); got[0] != 1 {
			t.Error("the start does not keep its lease")
		}
		if got := r.settle(outcome{lease: l, result: done}); got[0] != 1 {
			t.Error("the start does not settle its lease")
		}
		r.wantStates(map[string]int64{"a": isDone, "b": isQueued})
	})
}

// A dropped job leaves no dead letter, and its id is remembered as that of a job that ended undelivered.
func TestSettleDropped(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put("a", "b")
		c := r.claim(ask{})
		r.settle(outcome{lease: c.jobs[1], result: returned})
		again := r.claim(ask{}) // b has an epoch of 2, and a meta of its own
		got := r.settle(outcome{lease: c.jobs[0], result: dropped}, outcome{lease: again.jobs[0], result: dropped})
		if got[0] != 1 || got[1] != 1 {
			t.Fatalf("settled %v", got)
		}
		r.wantStates(map[string]int64{"a": isDropped, "b": isDropped})
		if b := r.inspect(); b.unfinished != 0 || b.dead != 0 || b.remembered != 2 || b.inFlight != 0 {
			t.Errorf("bucket: %+v", b)
		}
	})
}

// Of jobs that run in other processes, a lost lease is a crash only if the job was started there.
func TestCrashOfWhatWasStarted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put("a", "b")
		for range lastChance + 2 {
			c := r.claim(ask{})
			if c.ids() != "a b" {
				t.Fatalf("claimed %q", c.ids())
			}
			if b := c.jobs[1]; b.epoch <= lastChance && !r.start(b.id, b.epoch, b.claim, "+s", 60*second) {
				t.Fatal("b is not started")
			}
			r.end("a", "b")
			if s := r.sweep(sweep{elsewhere: true}); s.takenBack != 2 || s.poison != 0 {
				t.Fatalf("swept %+v", s)
			}
		}
		for id, want := range map[string]string{"a": " 0 ", "b": " 2 "} {
			if meta := r.job(id).meta; !strings.HasPrefix(meta, "1 4 0 4"+want) {
				t.Errorf("%s has the meta %q, want crashes %q", id, meta, want)
			}
		}
		c := r.claim(ask{})
		b := c.jobs[1]
		r.start(b.id, b.epoch, b.claim, "+s", 60*second)
		r.end("a", "b")
		if s := r.sweep(sweep{elsewhere: true}); s.takenBack != 1 || s.poison != 1 {
			t.Errorf("swept %+v, want b to be poison", s)
		}
	})
}
