package httpapi

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// wrongKeys counts unknown API keys, and logs them: the first one at once, then one line for each minute that had any. It is safe for concurrent use.
type wrongKeys struct {
	log     *slog.Logger
	counter prometheus.Counter // nil: there is none

	mu      sync.Mutex
	waits   bool // a line of this minute is written already
	count   int  // since then
	address string
}

const wrongKeysEvery = time.Minute

// note counts a wrong key that came from an address.
func (k *wrongKeys) note(address string) {
	if k.counter != nil {
		k.counter.Inc()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count++
	k.address = address
	if !k.waits {
		k.write()
	}
}

// write logs the count. Its caller holds the mutex.
func (k *wrongKeys) write() {
	k.waits = k.count > 0
	if k.count == 0 {
		return
	}
	k.log.Warn("requests show API keys that this server does not know", "count", k.count, "last_address", k.address)
	k.count = 0
	time.AfterFunc(wrongKeysEvery, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.write()
	})
}
