package httpapi

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Bounds of the concurrent lists of jobs of one caller: each costs Redis some milliseconds and this process some mebibytes.
const (
	listsAtOnce = 4
	listWait    = 10 * time.Second // for those before
)

// lists bounds the concurrent lists of each caller. Further lists wait. It is safe for concurrent use.
type lists struct {
	mu    sync.Mutex
	lanes map[string]*lane // of callers that list now
}

// lane is the lists of one caller.
type lane struct {
	under chan struct{} // those under way
	users int           // and those that wait
}

func newLists() *lists { return &lists{lanes: map[string]*lane{}} }

// few bounds the route of a list: listsAtOnce of a caller at a time.
func few(l *lists, list route) route {
	list.serve = l.few(list.serve)
	return list
}

func (l *lists) few(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), listWait)
		defer cancel()
		caller := callerOf(r)
		mine := l.enter(caller)
		defer l.leave(caller, mine)
		select {
		case mine.under <- struct{}{}:
			defer func() { <-mine.under }()
			serve(w, r)
		case <-ctx.Done():
			f := newFault(codeOverloaded, "%d lists of this caller are under way, and they take long: send one after the other", listsAtOnce)
			f.RetryAfter = retryStore
			f.write(w, r)
		}
	}
}

func (l *lists) enter(caller string) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	mine := l.lanes[caller]
	if mine == nil {
		mine = &lane{under: make(chan struct{}, listsAtOnce)}
		l.lanes[caller] = mine
	}
	mine.users++
	return mine
}

func (l *lists) leave(caller string, mine *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if mine.users--; mine.users == 0 {
		delete(l.lanes, caller)
	}
}
