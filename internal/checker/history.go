// Package checker judges a run: it reports, from the enqueued and the delivered jobs, whether jobs were lost or doubled and how even the stream was. The
// demo, the tests and the benchmarks share it, so "lost" means the same in all of them.
//
// Producers and receivers log into a [History]. Afterwards [History.Check] sorts the jobs into the classes that Jepsen uses for queues.
package checker

import (
	"sync"
	"time"
)

// History is a log of the events of jobs. The zero value is empty and ready for use. Its methods may be called from any goroutine and in any order: an
// admission may be logged after the delivery of the same job.
type History struct {
	mu        sync.Mutex
	admitted  []event
	refused   []refusal
	delivered []delivery
	dead      []string
	unknown   []string
}

type event struct {
	id string
	at time.Time
}

type delivery struct {
	event
	attempt int
}

type refusal struct {
	n  int
	at time.Time
}

// Admitted logs that the job was accepted. The same id admitted again is the
// same job.
func (h *History) Admitted(id string, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.admitted = append(h.admitted, event{id, at})
}

// Refused logs that n jobs were refused.
func (h *History) Refused(n int, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = append(h.refused, refusal{n, at})
}

// Unknown logs that an enqueue got no response: the job may have been accepted or not. If it is logged as admitted too, that counts.
func (h *History) Unknown(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unknown = append(h.unknown, id)
}

// Delivered logs that the downstream received the job, whatever its response. An attempt of 0 means that its number is not known.
func (h *History) Delivered(id string, attempt int, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delivered = append(h.delivered, delivery{event{id, at}, attempt})
}

// Dead logs that the job is a dead letter.
func (h *History) Dead(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = append(h.dead, id)
}
