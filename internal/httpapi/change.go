package httpapi

import (
	"context"
	"net/http"
	"regexp"
	"time"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/operator"
)

// as returns the operator in the caller's name, to change buckets and pools with.
func (o *ops) as(r *http.Request) *operator.Operator {
	return o.buckets.As(authorOf(r, o.author))
}

// HeaderUser names the user of a command line. A server without keys trusts it, because all programs of its machine may do everything there.
const HeaderUser = "Tundish-User"

var userPattern = regexp.MustCompile(`^[A-Za-z0-9_.@\\-]{1,64}$`)

// authorOf returns the author of a request's change: its key and the key's caller, or the user whose page visit has the rights of the key. Without keys
// the author is programs, with the user of the command line if it is named.
func authorOf(r *http.Request, programs string) string {
	key := keyOf(r)
	if key == nil {
		if user := r.Header.Get(HeaderUser); userPattern.MatchString(user) {
			return "user " + user + ", " + programs
		}
		return programs
	}
	if user := visitor(r).User; user != "" {
		return key.Name + " (" + user + ")"
	}
	if key.Owner() != key.Name {
		return "key " + key.Name + " of " + key.Owner()
	}
	return "key " + key.Name
}

// shareOf returns the author whose share of the audit a request uses. A client cannot choose it.
func shareOf(r *http.Request, programs string) string {
	if keyOf(r) == nil {
		return programs
	}
	return authorOf(r, programs)
}

// change makes an operator's change, even if the client does not wait for it, and returns the changed object. The request of after does not end with the
// client: otherwise a change that was made would be recorded as failed.
func change[Done, Out any](r *http.Request, do func(ctx context.Context) (Done, error), after func(r *http.Request, done Done) (Out, error)) (out Out, err error) {
	ctx := context.WithoutCancel(r.Context())
	done, err := do(ctx)
	if err != nil {
		return out, err
	}
	return after(r.WithContext(ctx), done)
}

// patience is how long a request waits for a change of many jobs or flows. The sweeper of a
// dispatcher finishes a longer purge.
const patience = 20 * time.Second

// patient returns the context of a change that goes on, within bounds, if the client does not wait for it. In a command that is its own server, the
// change has no bound, and stops when the command is interrupted.
func (o *ops) patient(r *http.Request) (context.Context, context.CancelFunc) {
	if o.local {
		return context.WithCancel(r.Context())
	}
	return context.WithTimeout(context.WithoutCancel(r.Context()), patience)
}

// outcomeOf is the outcome of a change that reports whether there was something to change.
func outcomeOf(was bool, err error) (opsview.Outcome, error) { return opsview.OutcomeOf(was), err }

// partial returns the problem of a change that failed half way. addDone adds what was done.
func (o *ops) partial(r *http.Request, err error, addDone func(p *problem)) error {
	p := o.fault(r, err).problem(r)
	addDone(p)
	return p
}
