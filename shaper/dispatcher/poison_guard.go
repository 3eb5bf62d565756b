package dispatcher

import "sync"

// poisonGuard lets a process have one job on its last chance at a time, over all its buckets. One more crash makes
// that job poison, and a crash is charged to every job that the process has. The guard has the job from the claim
// until Redis has its outcome or has taken the lease back: until then a crash is charged to it. See claim.lua.
type poisonGuard struct {
	mu  sync.Mutex
	job *leased
}

// free reports whether a claim may ask for such a job.
func (g *poisonGuard) free() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.job == nil
}

// take reports whether the job may go: it may not if two claims were under way.
func (g *poisonGuard) take(job *leased) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.job != nil {
		return false
	}
	g.job = job
	return true
}

// leave lets another job have the last chance, if this is the one.
func (g *poisonGuard) leave(job *leased) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.job == job {
		g.job = nil
	}
}
