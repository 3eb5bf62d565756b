package httpapi

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// keyRefusals counts and logs API keys that a server does not know, and requests for which a known key lacks a right.
type keyRefusals struct {
	wrongCounter     prometheus.Counter     // nil: there is none
	forbiddenCounter *prometheus.CounterVec // by key; nil: there is none

	wrong, forbidden minuteLog
}

func newKeyRefusals(log *slog.Logger, wrong prometheus.Counter, forbidden *prometheus.CounterVec) keyRefusals {
	return keyRefusals{wrong, forbidden,
		minuteLog{warn: func(args ...any) { log.Warn("requests show API keys that this server does not know", args...) }},
		minuteLog{warn: func(args ...any) { log.Warn("requests are refused because their API keys lack a right", args...) }},
	}
}

// noteWrong counts a wrong key that came from an address.
func (k *keyRefusals) noteWrong(address string) {
	if k.wrongCounter != nil {
		k.wrongCounter.Inc()
	}
	k.wrong.note("last_address", address)
}

// noteForbidden counts a request for which a key lacks a right.
func (k *keyRefusals) noteForbidden(key, address, request, detail string) {
	if k.forbiddenCounter != nil {
		k.forbiddenCounter.WithLabelValues(key).Inc()
	}
	k.forbidden.note("last_key", key, "last_address", address, "last_request", request, "last_detail", detail)
}

// minuteLog logs that something has happened: the first time at once, then one line for each minute in which it did. It is safe for concurrent use.
type minuteLog struct {
	warn func(args ...any)

	mu    sync.Mutex
	waits bool // a line of this minute is written already
	count int  // since then
	last  []any
}

const minuteLogEvery = time.Minute

// note counts, and notes what is said of the last time.
func (m *minuteLog) note(last ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	m.last = last
	if !m.waits {
		m.write()
	}
}

// write writes the line of what was counted. Its caller holds the mutex.
func (m *minuteLog) write() {
	m.waits = m.count > 0
	if m.count == 0 {
		return
	}
	m.warn(append([]any{"count", m.count}, m.last...)...)
	m.count = 0
	time.AfterFunc(minuteLogEvery, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.write()
	})
}
