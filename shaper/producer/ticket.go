package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
)

// EndedError says that a job has ended before this process could send it.
type EndedError struct {
	Bucket, ID string
	State      shaper.State // "" if the bucket remembers no such job
}

func (e *EndedError) Error() string {
	if e.State == "" {
		return fmt.Sprintf("job %q of bucket %q has ended before it was sent", e.ID, e.Bucket)
	}
	return fmt.Sprintf("job %q of bucket %q has ended before it was sent: it is %s", e.ID, e.Bucket, e.State)
}

// Ticket waits for the next ticket of a job of [Client.AwaitTicket]: a dispatcher has given the job a slot. Its errors are [*EndedError] and the
// error of ctx if that ends first. While Redis is unavailable it keeps waiting.
func (a *Awaited) Ticket(ctx context.Context) (string, error) {
	a.polled.Store(true)
	for {
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("job %q of bucket %q waits for its slot: %w", a.id, a.bucket, context.Cause(ctx))
		case ticket := <-a.tickets:
			return ticket, nil
		case <-a.there:
		}
		result, err := a.answers.store.AwaitedResult(ctx, a.bucket, a.id)
		switch {
		case ctx.Err() != nil, errors.Is(err, shaper.ErrNotEnded), err != nil && redisconn.Unavailable(err):
		case err == nil, errors.Is(err, shaper.ErrNoResult), errors.Is(err, shaper.ErrNotFound):
			return "", &EndedError{Bucket: a.bucket, ID: a.id, State: result.State}
		default:
			return "", err
		}
	}
}
