package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/operator"
)

// drainBucket has a bucket leak now, whatever its windows say: POST /v1/buckets/{bucket}/drain.
func (o *ops) drainBucket(w http.ResponseWriter, r *http.Request) {
	var options operator.DrainOptions
	if r.ContentLength != 0 {
		f := readObject(w, r, func(d *jobDecoder, name string, value []byte) { d.drainOption(&options, name, value) })
		if f != nil {
			f.write(w, r)
			return
		}
	}
	bucket := r.PathValue("bucket")
	run, err := o.as(r).Bucket(bucket).Drain(context.WithoutCancel(r.Context()), options)
	switch {
	case errors.Is(err, operator.ErrDrainRuns) && run != nil:
		newFault(codeConflict, "bucket %q: %s has started a drain at %s, which still runs: stop that one first (DELETE /v1/buckets/%s/drain)",
			bucket, run.By, run.Since.UTC().Format(time.RFC3339), bucket).write(w, r)
	case err != nil:
		o.controlFault(r, bucket, err).write(w, r)
	default:
		o.answerBucket(w, r, opsview.Outcome{})
	}
}

func (d *jobDecoder) drainOption(options *operator.DrainOptions, name string, value []byte) {
	switch name {
	case "rate":
		if rate := d.rate(name, value); rate != nil {
			options.Rate = *rate
		}
	case "max":
		options.Max = d.count(name, value)
	case "until_empty":
		options.UntilEmpty = d.truth(name, value)
	default:
		d.fail(name, "is not taken here: want rate, max or until_empty")
	}
}

// stopDrain ends a drain: DELETE /v1/buckets/{bucket}/drain.
func (o *ops) stopDrain(w http.ResponseWriter, r *http.Request) {
	o.change(w, r, func(ctx context.Context, b operator.BucketControl) (opsview.Outcome, error) {
		return outcomeOf(b.StopDrain(ctx))
	})
}
