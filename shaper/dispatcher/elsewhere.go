package dispatcher

import (
	"context"
	"errors"
	"log/slog"

	"github.com/tundish-io/tundish/shaper"
)

// elsewhere logs that a bucket is not where this process looks for it, and that it is there again, once each. It is
// no outage of Redis, and not of other buckets.
type elsewhere struct{ why string }

// tell reports whether that is what an error says.
func (e *elsewhere) tell(ctx context.Context, log *slog.Logger, err error) bool {
	if !errors.Is(err, shaper.ErrTagChanged) {
		return false
	}
	if why := err.Error(); e.why != why {
		e.why = why
		log.ErrorContext(ctx, "the dispatcher claims nothing of this bucket until it is in the pool that this configuration says", "error", err)
	}
	return true
}

func (e *elsewhere) back(ctx context.Context, log *slog.Logger) {
	if e.why != "" {
		e.why = ""
		log.InfoContext(ctx, "the bucket is in the pool that this configuration says")
	}
}
