package dispatcher

import "sync"

// lone is the one job on its last chance that a process may hold, over all its
// buckets: one more crash makes that job poison, and a crash is charged to all
// that its process held. It is held from the claim until Redis has its outcome
// or has taken the lease back, for until then a crash is charged to it.
// claim.lua says why this is so.
type lone struct {
	mu  sync.Mutex
	job *leased
}

// free reports whether a claim may ask for such a job.
func (l *lone) free() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.job == nil
}

// take reports whether the job may go: it may not if two claims were under way.
func (l *lone) take(job *leased) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.job != nil {
		return false
	}
	l.job = job
	return true
}

// leave ends the hold of a job, if it is the one.
func (l *lone) leave(job *leased) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.job == job {
		l.job = nil
	}
}
