package llm

import (
	"bytes"
	"net/http"
	"time"
)

// refusedFor is how long a provider that refuses stream_options is asked without them. Then one request checks whether it still refuses.
const refusedFor = time.Hour

// refusals remembers which models refuse to report the usage of a stream: until when, by the name of the model. The zero value is ready.
type refusals map[string]time.Time

// refuses records that the model of a request refuses to report the usage of a stream.
func (l *LearnedEstimates) refuses(r *request, now time.Time) {
	name := l.nameOf(r.subject(), r.sentBy.caller) // of a bounded number
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusals == nil {
		l.refusals = refusals{}
	}
	l.refusals[name] = now.Add(refusedFor)
}

// refusesUsage reports whether a model does.
func (l *LearnedEstimates) refusesUsage(model string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.refusals) == 0 {
		return false
	}
	switch {
	case l.models[model] != nil:
	case l.estimateOf(model) != &l.others: // no estimate yet, and it may get its own
		return false
	default:
		model = otherModels
	}
	return now.Before(l.refusals[model])
}

// refusesUsage reports whether the API has refused the option that only Tundish has added.
func (c *Call) refusesUsage() bool {
	isRefusal := c.Status == http.StatusBadRequest || c.Status == http.StatusUnprocessableEntity
	return isRefusal && c.ask.hides && bytes.Contains(c.whole, []byte(usageOption))
}
