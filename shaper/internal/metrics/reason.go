package metrics

import (
	"strconv"
	"sync"

	"github.com/tundish-io/tundish/shaper"
)

// maxReasons is how many reasons of attempts are told apart. The workers here have fewer than three quarters as many.
const maxReasons = 64

const maxReasonBytes = 40

// Labels of attempts whose reason is no word of a worker.
const (
	reasonNone  = "none"
	reasonOther = "other" // too long, or one too many
)

// reasons are those that were counted. They bound the label, whatever a worker says. The zero value is ready.
type reasons struct {
	mu   sync.Mutex
	seen map[string]bool
}

// label is the reason of an outcome: the worker's word, else the class of the status.
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

// statusClass is the class of an HTTP status, such as "2xx".
func statusClass(status int) string {
	if class := status / 100; class >= 1 && class <= 5 {
		return strconv.Itoa(class) + "xx"
	}
	return reasonNone
}
