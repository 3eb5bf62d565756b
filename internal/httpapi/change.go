package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/operator"
)

// as returns the operator in the caller's name, to change buckets and pools with.
func (o *ops) as(r *http.Request) operator.Author {
	return o.buckets.As(authorOf(r, o.author))
}

// authorOf is the author of what a request changes: its key, or the user to whom the visitor of a page has the rights of the key; programs is
// the author where there are no keys.
func authorOf(r *http.Request, programs string) string {
	name := keyName(r)
	if name == "" {
		return programs
	}
	if user := visitor(r).User; user != "" {
		return name + " (" + user + ")"
	}
	return "key " + name
}

// change makes the change of an operator, even if the client does not wait for it, and answers the object after it.
func change[Done, Out any](r *http.Request, do func(ctx context.Context) (Done, error), after func(Done) (Out, error)) (out Out, err error) {
	done, err := do(context.WithoutCancel(r.Context()))
	if err != nil {
		return out, err
	}
	return after(done)
}

// patience is how long a request waits for a change of many jobs or flows. The sweeper of a
// dispatcher finishes a longer purge.
const patience = 20 * time.Second

// patient is the context of a change that goes on if the client does not wait for it, within bounds. A command that is its own
// server has all the time, and stops when it is interrupted.
func (o *ops) patient(r *http.Request) (context.Context, context.CancelFunc) {
	if o.local {
		return context.WithCancel(r.Context())
	}
	return context.WithTimeout(context.WithoutCancel(r.Context()), patience)
}

// outcomeOf is the outcome of a change that reports whether there was something to change.
func outcomeOf(was bool, err error) (opsview.Outcome, error) { return opsview.OutcomeOf(was), err }

// partial is the problem of a change that failed half way: tell adds what was done.
func (o *ops) partial(r *http.Request, err error, tell func(p *problem)) error {
	p := o.fault(r, err).problem(r)
	tell(p)
	return p
}
