package httpapi

import (
	"context"
	"net/http"
	"sync"

	"github.com/tundish-io/tundish/internal/httpbound"
)

// shares divides a resource among all concurrent callers, such as bytes. No caller gets more than it leaves free for the others: one caller alone gets
// half, and two that want all get one third each. It is safe for concurrent use.
type shares struct {
	total int64

	mu   sync.Mutex
	free int64
	held map[string]int64 // by caller
}

func newShares(total int64) *shares {
	return &shares{total: total, free: total, held: map[string]int64{}}
}

// take takes n more for a request of a caller, which has mine already. The caller's only request may take all that is free, so one large body always
// fits.
func (s *shares) take(caller string, mine, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held[caller]
	if n > s.free || held > mine && held+n > s.free {
		return false
	}
	s.free -= n
	s.held[caller] = held + n
	return true
}

// give returns what take took.
func (s *shares) give(caller string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += n
	if s.held[caller] -= n; s.held[caller] == 0 {
		delete(s.held, caller)
	}
}

// bounds limit what the concurrent requests of a server use, by caller.
type bounds struct {
	places   int    // of requests
	setting  string // the configuration key of the number; "" without one
	requests *shares
	waiters  *shares // requests that wait for a result
	bodies   *shares // bytes
	address  func(r *http.Request) string
}

// newBounds bounds requests, as a setting of the configuration says, and the bytes of their bodies; 0 means the defaults. Half of the requests
// may wait for results.
func newBounds(setting string, requests int, bodyMemory int64, address func(r *http.Request) string) *bounds {
	if requests <= 0 {
		requests = httpbound.DefaultConnections
	}
	if bodyMemory <= 0 {
		bodyMemory = httpbound.DefaultBodyMemory
	}
	n := int64(requests)
	return &bounds{requests, setting, newShares(n), newShares((n + 1) / 2), newShares(bodyMemory), address}
}

// place serves a request if its caller has a place, and releases what the request uses.
func (b *bounds) place(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		mine := &usage{of: b, caller: callerOf(r)}
		if mine.caller == "" {
			mine.caller = "address " + b.address(r)
		}
		if !b.requests.take(mine.caller, 0, 1) {
			b.tooMany("are under way").write(w, r)
			return
		}
		defer b.requests.give(mine.caller, 1)
		defer mine.release()
		defer occupyConnection(r)()
		w.Header().Del("Connection") // see lastUnlessPlaced
		serve(w, r.WithContext(context.WithValue(r.Context(), usageKey{}, mine)))
	}
}

// lastUnlessPlaced closes the connection after the response to a request that has no place, such as one without a key. So requests that a client sends
// ahead, without reading the responses, are not served one by one. Probes may share a connection.
func lastUnlessPlaced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != livePath && r.URL.Path != readyPath {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// callerOf returns the owner of the shares that a request uses: the user of the console that a trusted proxy names, otherwise the caller of its key;
// "" without a key. All such users have one key, but each has a share of its own.
func callerOf(r *http.Request) string {
	if user := visitor(r).User; user != "" {
		return "user " + user
	}
	if key := keyOf(r); key != nil {
		return "key " + key.Owner()
	}
	return ""
}

// tooMany refuses a request beyond the share of its caller.
func (b *bounds) tooMany(do string) *fault {
	f := newFault(codeOverloaded, "too many requests of this caller %s: retry", do)
	if b.setting != "" {
		f.Detail += ", or raise " + b.setting
	}
	f.RetryAfter = retryStore
	return f
}

type usageKey struct{}

// usage is one request's use of the bounds.
type usage struct {
	of     *bounds
	caller string
	body   int64 // bytes
	waits  bool
}

func usageOf(r *http.Request) *usage {
	u, _ := r.Context().Value(usageKey{}).(*usage)
	return u
}

// largestBody returns the largest size of a body in bytes, by the bound of memory.
func (u *usage) largestBody() int64 { return u.of.bodies.total / bodyCost }

// takeBody reserves n more bytes for the body of the request.
func (u *usage) takeBody(n int64) bool {
	if !u.of.bodies.take(u.caller, u.body, n) {
		return false
	}
	u.body += n
	return true
}

// takeRest is takeBody for memory in addition to a body that may have all memory: if together they need more, it takes all.
func (u *usage) takeRest(n int64) bool { return u.takeBody(min(n, u.of.bodies.total-u.body)) }

// noMemory returns the fault of a request for which takeBody found no memory. what begins the sentence.
func (u *usage) noMemory(what string) *fault {
	f := newFault(codeOverloaded, "%s%v: retry", what, errBodyMemory)
	if u.of.setting != "" { // of the producer
		f.Detail += ", or raise producer.body_memory"
	}
	f.RetryAfter = retryStore
	return f
}

// releaseBody releases the memory of the body, which may be before the response.
func (u *usage) releaseBody() {
	u.of.bodies.give(u.caller, u.body)
	u.body = 0
}

// keepOneBody releases the memory of all copies of the body but one.
func (u *usage) keepOneBody() {
	rest := u.body - u.body/bodyCost
	u.of.bodies.give(u.caller, rest)
	u.body -= rest
}

// mayWait takes a place among the requests that wait for a result, and reports whether there was one.
func (u *usage) mayWait() bool {
	u.waits = u.waits || u.of.waiters.take(u.caller, 0, 1)
	return u.waits
}

func (u *usage) release() {
	u.releaseBody()
	if u.waits {
		u.of.waiters.give(u.caller, 1)
	}
}
