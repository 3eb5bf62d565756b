package workers

import (
	"sync"
	"time"
)

// host collects what this process knows about its own host. The zero value is ready. It is safe for concurrent use.
type host struct {
	lookups evidence // of names
	routes  evidence // of hosts that were connected

	mu     sync.Mutex
	faults map[string]*span // by the reason
}

// span is the time over which a fault was repeated.
type span struct{ first, last time.Time }

// thisHost is the host of this process: all workers share its resolver and its descriptors.
var thisHost host

// lasts returns how long a fault that has just occurred has lasted. After a while without it, the time begins again.
func (h *host) lasts(reason string) time.Duration {
	const over = 2 * maxLocalWait
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	s := h.faults[reason]
	if s == nil || now.Sub(s.last) > over {
		s = &span{first: now}
		if h.faults == nil {
			h.faults = map[string]*span{}
		}
		h.faults[reason] = s
	}
	s.last = now
	return now.Sub(s.first)
}

// evidence decides whether a failure is the fault of this host or of the name. One failure proves nothing; the other names decide:
//   - The first failure of a name is taken for one of this host, as it costs nothing to try again.
//   - After that the name is to blame once more other names work than fail.
//   - While no other name is tried, or as many fail, this host is to blame. With fewer than [fewNames] other names that fail this
//     holds for [unprovenFor] only: they may be of one broken zone, and their jobs would be tried for ever.
//
// The zero value is ready. It is safe for concurrent use.
type evidence struct {
	mu    sync.Mutex
	names map[string]*record
}

// record is the history of a name.
type record struct {
	failing time.Time // since when each try fails; zero: it works
	seen    time.Time // last
}

const (
	fewNames    = 3
	unprovenFor = 5 * time.Minute
	recordFor   = 10 * time.Minute // a name that is not tried for longer is forgotten
	maxRecords  = 4096
)

// worked records that a name works.
func (e *evidence) worked(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.recordOf(name, time.Now())
	r.failing = time.Time{}
}

// failed records that a name does not work. It reports whether this host is to blame, and for how long the name has failed.
func (e *evidence) failed(name string) (isLocal bool, lasts time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	r := e.recordOf(name, now)
	if r.failing.IsZero() {
		r.failing = now
		return true, 0
	}
	lasts = now.Sub(r.failing)
	working, failing := 0, 0
	for _, other := range e.names {
		switch {
		case other == r, other.seen.Before(r.failing): // no evidence of the time since
		case other.failing.IsZero():
			working++
		default:
			failing++
		}
	}
	if working > failing || working > 0 && working == failing {
		return false, lasts
	}
	return failing >= fewNames || lasts < unprovenFor, lasts
}

// recordOf returns the record of a name that is tried now. e.mu is held.
func (e *evidence) recordOf(name string, now time.Time) *record {
	r := e.names[name]
	if r != nil && now.Sub(r.seen) > recordFor {
		r.failing = time.Time{}
	}
	if r == nil {
		e.makeRoom(now)
		r = &record{}
		e.names[name] = r
	}
	r.seen = now
	return r
}

// makeRoom forgets names that were not tried for a while, and any other one if that is not enough. e.mu is held.
func (e *evidence) makeRoom(now time.Time) {
	if e.names == nil {
		e.names = map[string]*record{}
	}
	if len(e.names) < maxRecords {
		return
	}
	for name, r := range e.names {
		if now.Sub(r.seen) > recordFor {
			delete(e.names, name)
		}
	}
	for name := range e.names {
		if len(e.names) < maxRecords {
			return
		}
		delete(e.names, name)
	}
}
