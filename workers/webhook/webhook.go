// Package webhook delivers jobs as HTTP requests that follow Standard Webhooks. The payload is the body. The header webhook-id is the job's id at every
// attempt, and webhook-timestamp is the time of the attempt, by the clock of Redis. A GET and a HEAD have no payload, and are signed over an empty body.
//
// One permit is one request: see package outgoing, which also says where connections may go.
//
// A flow may have a URL, headers and secrets of its own ([shaper.OwnDelivery]). Jobs of the flow that name no URL go to the flow's URL, otherwise to the
// bucket's. The flow's headers replace a job's headers, and its secrets sign. Both are used only towards one origin: the origin of the flow's URL or, without
// one, of the bucket's URL. Any other delivery goes without them. If a flow has no secrets, the bucket's secrets sign, towards the origin of the
// bucket's URL. The bucket's client certificate is shown to that origin only.
//
// Jobs may name any URL, so the receiver is not trusted.
//
// A delivery may also be an event of CloudEvents, see [Format].
package webhook

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// Worker is the [shaper.Worker] of the kind "webhook". It is safe for
// concurrent use.
type Worker struct {
	config Config
	sender *outgoing.Sender
}

var _ shaper.BatchWorker = (*Worker)(nil)

// New makes a worker, or returns the error of [Config.Validate] or [outgoing.TLS.Check].
func New(config Config) (*Worker, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := config.TLS.Check(table, os.ReadFile); err != nil {
		return nil, err
	}
	if err := config.read(); err != nil {
		return nil, err
	}
	sender, err := outgoing.NewSender(config.sending())
	if err != nil {
		return nil, err
	}
	return &Worker{config: config, sender: sender}, nil
}

// Close closes the connections that are kept; those in use close when their
// delivery ends.
func (w *Worker) Close() { w.sender.Close() }

// Deliver makes one attempt: see [outgoing.Sender.Send].
func (w *Worker) Deliver(ctx context.Context, attempt *shaper.Attempt) shaper.Outcome {
	req, err := w.config.request(attempt, attempt.Now(), w.config.body)
	if err != nil {
		return noRequest(err)
	}
	return w.sender.Send(ctx, attempt, req)
}

// DeliverBatch makes one attempt at several jobs by one request. Its webhook-id is the id of the batch, and its signature covers the whole body.
// [workers.BatchFormat] defines its items. With a format of CloudEvents the items are the events, in the JSON batch format. [workers.Policy.Outcomes]
// decides the outcome of each job.
func (w *Worker) DeliverBatch(ctx context.Context, batch *shaper.Batch) []shaper.Outcome {
	whole, body := w.config.Batch.Attempt(batch), w.config.body
	if w.config.Format.makesEvents() {
		events := *batch.Common()
		events.AnswerBytes = whole.AnswerBytes
		whole, body = &events, w.config.eventsOf(batch)
	}
	var outcome shaper.Outcome
	if req, err := w.config.request(whole, batch.Attempts[0].Now(), body); err != nil {
		outcome = noRequest(err)
	} else {
		req.Batch = true
		outcome = w.sender.Send(ctx, whole, req)
	}
	return w.config.Policy.Outcomes(batch, outcome, time.Now())
}

// noRequest returns the outcome of an attempt whose request is not valid.
func noRequest(err error) shaper.Outcome {
	if errors.Is(err, errFlow) {
		return shaper.Retry(shaper.ReasonFlowSettings, workers.Snippet([]byte(err.Error())))
	}
	return workers.ClassifyError(err)
}
