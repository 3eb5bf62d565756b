package scripts_test

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// start runs start.lua, and returns whether the job was started.
func (r *rig) start(id, epoch, claim any, started string, length int64) bool {
	r.t.Helper()
	isStarted, own := r.startBefore(0, id, epoch, claim, started, length)
	must.Equal(r.t, own, "", "start told settings of a flow")
	return isStarted
}

// startBefore is start of a job that is too late after some time. It returns what its flow has of its own, too.
func (r *rig) startBefore(latest int64, id, epoch, claim any, started string, length int64) (isStarted bool, own string) {
	r.t.Helper()
	in := lua.NewReader(r.run(lua.Start, r.keysOf(lua.Start), id, epoch, claim, started, length, latest, "f"))
	at, code, own := in.Int(), in.Int(), in.Text()
	if in.Err() != nil || in.Left() != 0 || at > r.now() {
		r.t.Fatalf("start answered %d, %d, %q, %v", at, code, own, in.Err())
	}
	return code == 1, own
}

// A lease starts once an epoch, and then belongs to the start: not to the dispatcher, and to no other start.
func TestStartOnceAnEpoch(t *testing.T) {
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
		must.Equal(t, r.extend(60*second, l)[0], 0, "the heartbeat of the dispatcher keeps a lease that was started")
		must.Equal(t, r.settle(outcome{lease: l, result: done})[0], 0, "the dispatcher settles a lease that was started")
		l.claim = "+s"
		must.Equal(t, r.extend(60*second, l)[0], 1, "the start does not keep its lease")
		must.Equal(t, r.settle(outcome{lease: l, result: done})[0], 1, "the start does not settle its lease")
		r.wantStates(map[string]int64{"a": isDone, "b": isQueued})
	})
}

// A dropped job leaves no dead letter, and its id is remembered as that of a job that ended undelivered.
func TestSettleDropped(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
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
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put("a", "b")
		for range lastChance + 2 {
			c := r.claim(ask{})
			must.Be(t, c.ids(), "a b", "claimed")
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

// A job that is too late does not start. A start that is sent twice, as its reply was lost, was in time. It tells what the flow has of its own.
func TestStartInTime(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put("a")
		l := r.claim(ask{want: 1}).jobs[0]
		late, early := r.now()-1, r.now()+60*second
		for _, c := range []struct {
			latest int64
			want   bool
			own    string // of the flow
		}{{late, false, ""}, {early, true, ""}, {late, true, "its own"}} {
			if c.own != "" {
				r.hset("flow_settings", "f", "- - - - - - -\n"+c.own)
			}
			if isStarted, own := r.startBefore(c.latest, "a", l.epoch, l.claim, "+s", 60*second); isStarted != c.want || own != c.own {
				t.Errorf("started %t with %q, want %+v", isStarted, own, c)
			}
		}
	})
}

// Of a job that another process sends, a lost lease is a crash only if that process had started it, whatever the worker of the bucket is.
func TestCrashOfWhatIsSentElsewhere(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		for _, job := range []entry{{id: "a", selfDispatched: true}, {id: "b", selfDispatched: true, callback: true, expires: 1000 * second}, {id: "c"}} {
			r.enqueue(nil, job)
		}
		c := r.claim(ask{})
		must.Be(t, c.ids(), "a b c", "claimed")
		b := c.jobs[1]
		if !r.start(b.id, b.epoch, b.claim, "+s", 60*second) {
			t.Fatal("b is not started")
		}
		r.end("a", "b", "c")
		if s := r.sweep(sweep{}); s.takenBack != 3 {
			t.Fatalf("swept %+v", s)
		}
		for id, crashes := range map[string]string{"a": "0", "b": "1", "c": "1"} {
			if meta := r.job(id).meta; !strings.HasPrefix(meta, "1 1 0 1 "+crashes+" ") {
				t.Errorf("%s has the meta %q, want crashes %s", id, meta, crashes)
			}
		}
	})
}
