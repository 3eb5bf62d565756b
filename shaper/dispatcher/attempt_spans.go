package dispatcher

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/tracing"
)

// attemptTracer makes the spans of attempts.
type attemptTracer struct {
	tracer       trace.Tracer
	sendIsParent bool // see Config
}

// newAttemptTracer returns nil without a provider.
func newAttemptTracer(provider trace.TracerProvider, sendIsParent bool) *attemptTracer {
	if provider == nil {
		return nil
	}
	return &attemptTracer{tracing.Tracer(provider), sendIsParent}
}

// begin starts the span of an attempt. sent are the spans that enqueued the jobs.
func (t *attemptTracer) begin(ctx context.Context, jobs request, sent []trace.SpanContext) (context.Context, trace.Span) {
	first := jobs[0]
	attributes := tracing.Place(tracing.Attributes(tracing.Process, first.Bucket), first.Flow, first.Group)
	if len(jobs) == 1 {
		attributes = append(attributes, tracing.MessageID.String(first.ID), tracing.Attempt.Int(first.Number))
	} else {
		attributes = append(attributes, tracing.BatchCount.Int(len(jobs)))
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...)}
	if t.sendIsParent && len(jobs) == 1 {
		ctx = trace.ContextWithRemoteSpanContext(ctx, sent[0])
	} else {
		options = append(options, trace.WithNewRoot(), trace.WithLinks(linksOf(jobs, sent)...))
	}
	ctx, span := t.tracer.Start(ctx, tracing.Process+" "+first.Bucket, options...)
	if of := span.SpanContext(); of.IsSampled() {
		id := of.TraceID().String()
		for _, job := range jobs {
			job.traceID = id
		}
	}
	return ctx, span
}

// linksOf returns links from the jobs to the spans that enqueued them. A job that was enqueued without tracing has none.
func linksOf(jobs request, sent []trace.SpanContext) []trace.Link {
	links := make([]trace.Link, 0, len(jobs))
	for i, job := range jobs {
		if !sent[i].IsValid() {
			continue
		}
		link := trace.Link{SpanContext: sent[i]}
		if len(jobs) > 1 {
			link.Attributes = []attribute.KeyValue{tracing.MessageID.String(job.ID), tracing.Attempt.Int(job.Number)}
		}
		links = append(links, link)
	}
	return links
}

// endAttempt ends a span with the outcomes of its jobs. A batch that failed in part is an error.
func endAttempt(span trace.Span, outcomes []shaper.Outcome) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	result, failed := outcomes[0].Result.String(), 0
	var worst *shaper.Outcome
	for i := range outcomes {
		if outcomes[i].Result != outcomes[0].Result {
			result = "mixed"
		}
		if isFailure(outcomes[i].Result) {
			worst = &outcomes[i]
			failed++
		}
	}
	span.SetAttributes(tracing.Outcome.String(result))
	if len(outcomes) > 1 {
		span.SetAttributes(tracing.Failed.Int(failed))
	} else if outcomes[0].Reason != "" {
		span.SetAttributes(tracing.Reason.String(outcomes[0].Reason))
	}
	if worst != nil {
		span.SetAttributes(tracing.ErrorType.String(worst.Reason))
		span.SetStatus(codes.Error, worst.Detail)
	}
}

// isFailure reports whether an attempt with this result is an error. Returned jobs, and jobs held because their downstream asked to wait, are not.
func isFailure(result shaper.Result) bool {
	return result == shaper.ResultRetry || result == shaper.ResultDead || result == shaper.ResultDropped
}

// permitSpan is the span of the attempt of a [Permit]. It starts when the permit may be used.
type permitSpan struct{ trace.Span }

// begin starts the span, and adds it to the context of the lease.
func (s *permitSpan) begin(p *Permit) {
	spans := p.permits.leases.spans
	if spans == nil {
		return
	}
	p.lease.ctx, s.Span = spans.begin(p.lease.ctx, request{p.lease.job}, []trace.SpanContext{p.awaited.Sent()})
}

// headers returns a job's headers with the context of the span.
func (s *permitSpan) headers(of map[string][]string) map[string][]string {
	if s.Span == nil {
		return of
	}
	return tracing.With(of, s.SpanContext())
}

// end ends the span of a permit that was settled.
func (s *permitSpan) end(outcome shaper.Outcome) {
	if s.Span != nil {
		endAttempt(s.Span, []shaper.Outcome{outcome})
		s.Span = nil
	}
}
