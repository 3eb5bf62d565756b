package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

// retryJobs makes jobs that wait for another attempt due now.
func (o *ops) retryJobs(r *http.Request, in *JobRetry) (*opsview.Retried, error) {
	switch {
	case in.All && (in.Flow != nil || in.Group != nil):
		return nil, invalid([]*shaper.FieldError{{Field: "all", Reason: "goes with no flow and no group: choose one"}})
	case !in.All && in.Flow == nil:
		return nil, invalid([]*shaper.FieldError{{Field: "flow", Reason: "is missing: name the flow, or say \"all\": true"}})
	}
	ctx, cancel := o.patient(r)
	defer cancel()
	bucket := o.as(r).Bucket(in.Bucket)
	retry := bucket.RetryNow
	if in.Flow != nil {
		retry = flowControl(bucket, FlowName{BucketName: in.BucketName, Flow: *in.Flow, Group: in.Group}).RetryNow
	}
	moved, err := retry(ctx)
	more := err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
	if err != nil && !more {
		return nil, o.partial(r, err, func(p *problem) { p.Moved = int(moved) })
	}
	return &opsview.Retried{Bucket: in.Bucket, Jobs: moved, More: more}, nil
}
