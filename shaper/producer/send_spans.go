package producer

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/tracing"
)

// sendSpans are the spans of one call of Enqueue: one for each job.
type sendSpans struct {
	jobs  []shaper.Job // the jobs of the call, each with the context of its span in its headers
	spans []trace.Span
}

// startSends starts a span for each job of a call. Its parent is the Trace Context of the job, else the span of ctx.
func (c *Client) startSends(ctx context.Context, jobs []shaper.Job) *sendSpans {
	s := &sendSpans{jobs: slices.Clone(jobs), spans: make([]trace.Span, len(jobs))}
	for i := range s.jobs {
		job, parent := &s.jobs[i], ctx
		if own := tracing.Of(job.Headers); own.IsValid() {
			parent = trace.ContextWithRemoteSpanContext(ctx, own)
		}
		_, s.spans[i] = c.tracer.Start(parent, tracing.Send+" "+job.Bucket,
			trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(tracing.Attributes(tracing.Send, job.Bucket)...))
		job.Headers = tracing.With(job.Headers, s.spans[i].SpanContext())
	}
	return s
}

// end ends the spans with the result of the call. A refusal is no error.
func (s *sendSpans) end(receipts []shaper.Receipt, err error) {
	for i, span := range s.spans {
		if span.IsRecording() {
			if i < len(receipts) {
				describe(span, &receipts[i])
			}
			if err != nil {
				span.SetStatus(codes.Error, err.Error())
			}
		}
		span.End()
	}
}

func describe(span trace.Span, r *shaper.Receipt) {
	if r.ID != "" {
		span.SetAttributes(tracing.MessageID.String(r.ID))
	}
	span.SetAttributes(tracing.Place(nil, r.Flow, r.Group)...)
	if r.Refusal != nil {
		span.SetAttributes(tracing.Refusal.String(string(r.Refusal.Reason)))
	}
	if r.Duplicate {
		span.SetAttributes(tracing.Duplicate.Bool(true))
	}
}

// Sent returns the span of the job's enqueue; it is not valid without a tracer.
func (a *Awaited) Sent() trace.SpanContext { return a.sent }
