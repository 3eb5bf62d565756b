package dispatcher

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// reasonHeld is the reason of a job that is returned unsent because its scope is held since its claim.
const reasonHeld = "held"

// gate stops jobs that this process claimed before Redis recorded a hold of their scope. Claims look ahead, so these jobs would still be sent. They
// are returned unsent, and claimed again after the hold. Redis alone decides about later claims, so a release takes effect at once. The zero value is
// ready.
type gate struct {
	shut atomic.Int32 // number of closed scopes; 0: no lookup needed

	mu     sync.Mutex
	scopes map[string]closing
}

type closing struct {
	until time.Time
	asOf  int64 // Redis decides about jobs claimed later; in microseconds by its clock
}

// maxClosings bounds the scopes that a gate remembers. Above it, a new one replaces all: jobs of those may be sent into a hold.
const maxClosings = 4096

// close closes the gate for a scope. Redis has not recorded the hold yet.
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

// taken records that Redis has recorded the hold of a scope, or will not. at is the current time by its clock.
func (g *gate) taken(scope string, at int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c, ok := g.scopes[scope]; ok {
		g.scopes[scope] = closing{c.until, at}
	}
}

// keeps reports whether the gate stops a job of a scope that was claimed at that time.
func (g *gate) keeps(scope func() string, claimedAt int64) bool {
	if g.shut.Load() == 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.scopes[scope()]
	return ok && claimedAt <= c.asOf && time.Now().Before(c.until)
}

// scopeOf returns the name of a job's scope in the gate of its bucket.
func (c *bucketConn) scopeOf(job *leased) string {
	if c.HasFlows() && c.Settings.Load().Adapt.Scope == shaper.ScopeFlow {
		return c.pathOf(job)
	}
	return ""
}
