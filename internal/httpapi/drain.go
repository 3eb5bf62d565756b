package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/operator"
)

// drainBucket lets a bucket dispatch now, whatever its delivery windows.
func (o *ops) drainBucket(r *http.Request, in *BucketDrain) (*opsview.Bucket, error) {
	return o.changeBucket(r, in.Bucket, func(ctx context.Context, b operator.Bucket) (opsview.Outcome, error) {
		run, err := b.Drain(ctx, operator.DrainOptions{Rate: in.Rate, Max: in.Max, UntilEmpty: in.UntilEmpty})
		if errors.Is(err, operator.ErrDrainRuns) && run != nil {
			err = newFault(codeConflict, "bucket %q: %s has started a drain at %s, which still runs: stop that one first (DELETE /v1/buckets/%s/drain)",
				in.Bucket, run.By, run.Since.UTC().Format(time.RFC3339), in.Bucket)
		}
		return opsview.Outcome{}, err
	})
}

func (o *ops) stopDrain(r *http.Request, in *BucketName) (*opsview.Bucket, error) {
	return o.changeBucket(r, in.Bucket, func(ctx context.Context, b operator.Bucket) (opsview.Outcome, error) {
		return outcomeOf(b.StopDrain(ctx))
	})
}
