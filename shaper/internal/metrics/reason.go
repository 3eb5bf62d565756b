package metrics

import (
	"strconv"
	"sync"

	"github.com/tundish-io/tundish/shaper"
)

// maxReasons is the number of distinct reasons of attempts in the label. The workers of this module have fewer than 75 % of it.
const maxReasons = 64

const maxReasonBytes = 40

// Labels of attempts whose reason is not a worker's word.
const (
	reasonNone  = "none"
	reasonOther = "other" // too long, or above maxReasons
)

// reasons is the set of reasons that were counted. It bounds the label, whatever a worker returns. The zero value is ready.
type reasons struct {
	mu   sync.Mutex
	seen map[string]bool
}

// label returns the reason of an outcome: the worker's word, else the class of the status.
func (r *reasons) label(outcome shaper.Outcome) string {
	reason := outcome.Reason
	switch {
	case reason == "":
		return statusClass(outcome.Status)
	case len(reason) > maxReasonBytes:
		return reasonOther
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.seen[reason] {
		if len(r.seen) >= maxReasons {
			return reasonOther
		}
		if r.seen == nil {
			r.seen = map[string]bool{}
		}
		r.seen[reason] = true
	}
	return reason
}

// statusClass returns the class of an HTTP status, such as "2xx".
func statusClass(status int) string {
	if class := status / 100; class >= 1 && class <= 5 {
		return strconv.Itoa(class) + "xx"
	}
	return reasonNone
}
