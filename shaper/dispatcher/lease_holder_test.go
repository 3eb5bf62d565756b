package dispatcher

import (
	"context"
	"errors"
	"testing"

	"github.com/tundish-io/tundish/shaper"
)

// A job that was taken back and is claimed again here has its older delivery cancelled, and the outcome of that one does not let go of the newer lease.
func TestALaterClaimOfAJobStays(t *testing.T) {
	t.Parallel()
	life, end := context.WithCancel(t.Context())
	end() // no heartbeat
	guard := &poisonGuard{}
	h := newLeaseHolder(&bucketConn{life: life}, guard)
	older, newer := &leased{Attempt: shaper.Attempt{ID: "j"}, ended: make(chan struct{})}, &leased{Attempt: shaper.Attempt{ID: "j"}}
	if !guard.take(older) {
		t.Fatal("another job is on its last chance")
	}
	var canceled error
	h.hold(older)
	h.delivering(request{older}, func(cause error) { canceled = cause })
	h.hold(newer)
	if !errors.Is(canceled, errLeaseLost) || h.holds(older) || !h.holds(newer) {
		t.Errorf("the older delivery ended with %v; the newer one is held: %t", canceled, h.holds(newer))
	}
	h.forget(older)
	if <-older.ended; !h.holds(newer) || !guard.free() {
		t.Errorf("after the older outcome the newer one is held: %t, and another job may have its last chance: %t", h.holds(newer), guard.free())
	}
	h.forget(newer)
	if !h.holdsNothing() {
		t.Error("something is held")
	}
}
