package dispatcher

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// reasonHeld is why a job is returned unsent that was claimed before the hold of its scope.
const reasonHeld = "held"

// gate keeps back jobs that this process claimed before Redis took a hold of their scope: a claim looks ahead, and these would still be
// sent. They are returned unsent, and are claimed again when the hold is over. Redis alone decides about every later claim, so a release
// takes effect at once. The zero value is ready.
type gate struct {
	shut atomic.Int32 // scopes that are shut; 0: nothing to look up

	mu     sync.Mutex
	scopes map[string]closing
}

type closing struct {
	until time.Time
	asOf  int64 // jobs that were claimed later are Redis' to judge; by its clock, microseconds
}

// maxClosings bounds the scopes that a gate knows. Above it, a new one replaces all: jobs of these may be sent into a hold.
const maxClosings = 4096

// close shuts a scope. Redis is still to take the hold.
func (g *gate) close(scope string, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(g.scopes, func(_ string, c closing) bool { return !c.until.After(now) })
	if g.scopes == nil || len(g.scopes) >= maxClosings {
		g.scopes = map[string]closing{}
	}
	if before := g.scopes[scope].until; before.After(until) {
		until = before
	}
	g.scopes[scope] = closing{until, math.MaxInt64}
	g.shut.Store(int32(len(g.scopes)))
}

// taken notes that Redis has taken the hold of a scope, or will not: at is now by its clock.
func (g *gate) taken(scope string, at int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c, ok := g.scopes[scope]; ok {
		g.scopes[scope] = closing{c.until, at}
	}
}

// keeps reports whether a job of a scope, which was claimed at that time, is not to be sent now.
func (g *gate) keeps(scope func() string, claimedAt int64) bool {
	if g.shut.Load() == 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.scopes[scope()]
	return ok && claimedAt <= c.asOf && time.Now().Before(c.until)
}

// scopeOf is the scope of a job in a gate, among those of its bucket.
func (c *bucketConn) scopeOf(job *leased) string {
	if c.HasFlows() && c.Settings.Load().Adapt.Scope == shaper.ScopeFlow {
		return c.pathOf(job)
	}
	return ""
}
