package scripts_test

import (
	"github.com/tundish-io/tundish/lua"
)

// control runs control.lua and returns, after the time, whether the bucket was
// paused before, and the values before and after of each field.
func (r *rig) control(action, by string, args ...any) []any {
	r.t.Helper()
	reply, ok := r.run(lua.Control, r.keysOf(lua.Control), append([]any{"tundish:wake", r.name, action, by}, args...)...).([]any)
	if !ok || len(reply) < 3 || reply[0] != int64(0) {
		r.t.Fatalf("control answered %v", reply)
	}
	return reply[2:]
}

func (r *rig) pause()  { r.t.Helper(); r.control("pause", "anna", "tests") }
func (r *rig) resume() { r.t.Helper(); r.control("resume", "anna") }

// purge is a run of purge.lua.
type purge struct {
	id        string
	flow      string
	keepLater bool
	atMost    int // 0 means 500
	mostBytes int // 0 means a MiB
}

type purged struct {
	own                 bool
	removed, done, left int64
}

func (r *rig) purge(p purge) purged {
	r.t.Helper()
	if p.atMost == 0 {
		p.atMost = 500
	}
	if p.mostBytes == 0 {
		p.mostBytes = 1 << 20
	}
	in := r.reader(lua.Purge, r.keysOf(lua.Purge, p.flow), p.id, p.keepLater, p.atMost, p.mostBytes, r.withFlows(), p.flow)
	out := purged{own: in.Int() == 1, removed: in.Int(), done: in.Int(), left: in.Int()}
	r.ok(in.Err())
	return out
}

// purgeAll purges in chunks until nothing is left.
func (r *rig) purgeAll(p purge) purged {
	r.t.Helper()
	for {
		if out := r.purge(p); out.left == 0 {
			return out
		}
	}
}
