package httpworker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// Worker is the [shaper.Worker] of the kind "http". It is safe for concurrent use.
type Worker struct {
	config Config
	sender *outgoing.Sender
	tokens *tokens // nil without OAuth

	credentials *credentials
	refused     refused
}

var _ shaper.BatchWorker = (*Worker)(nil)

// New makes a worker, or returns the error of [Config.Validate] or [outgoing.TLS.Check].
func New(config Config) (*Worker, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := config.TLS.Check(config.table(), os.ReadFile); err != nil {
		return nil, err
	}
	sender, err := outgoing.NewSender(config.sending())
	if err != nil {
		return nil, err
	}
	if config.home.base, err = outgoing.ParseURL(config.BaseURL); err != nil {
		return nil, err
	}
	config.reserved = config.notOfJobs()
	w := &Worker{config: config, sender: sender, credentials: newCredentials(&config)}
	w.tokens = newTokens(config.Auth.OAuth2, config.AllowNetworks, func() string { return w.credentials.now().auth.OAuth2.ClientSecret })
	return w, nil
}

// Close closes the connections that are kept; those in use close when their delivery ends.
func (w *Worker) Close() {
	w.sender.Close()
	if w.tokens != nil {
		w.tokens.stop()
	}
}

// Deliver makes one attempt: see [outgoing.Sender.Send]. If it needs a token, it gets the token before it uses the permit.
func (w *Worker) Deliver(ctx context.Context, attempt *shaper.Attempt) shaper.Outcome {
	return w.deliver(ctx, attempt, false)
}

func (w *Worker) deliver(ctx context.Context, attempt *shaper.Attempt, ofBatch bool) shaper.Outcome {
	req, credentials, outcome := w.prepare(ctx, attempt)
	if req == nil {
		return outcome
	}
	req.Batch = ofBatch
	outcome = w.sender.Send(ctx, attempt, req)
	if outcome.Answer != nil && attempt.Own != nil {
		outcome.Answer.Base = attempt.Own.URL
	}
	if credentials == nil {
		return outcome
	}
	return w.checkCredentials(outcome, credentials, attempt)
}

// Open makes one attempt as Deliver does, and returns its response as soon as that begins: see [outgoing.Sender.Open]. After a 401 to credentials that
// were replaced meanwhile, the outcome is [shaper.ResultHeld] with [workers.ReasonCredentials]: another attempt has the new ones.
func (w *Worker) Open(ctx context.Context, attempt *shaper.Attempt) (*outgoing.Answer, shaper.Outcome) {
	req, credentials, outcome := w.prepare(ctx, attempt)
	if req == nil {
		return nil, outcome
	}
	answer, outcome := w.sender.Open(ctx, attempt, req)
	switch {
	case answer == nil || credentials == nil:
	case answer.StatusCode == http.StatusUnauthorized && w.renewed(credentials):
		outcome = replaced()
	case answer.StatusCode == http.StatusUnauthorized:
	default:
		w.noteStatus(answer.StatusCode)
	}
	return answer, outcome
}

// prepare builds the request of an attempt, and gets the token that it needs. It returns the credentials of the request, nil for a request without any.
// Without a request, the outcome says why.
func (w *Worker) prepare(ctx context.Context, attempt *shaper.Attempt) (*outgoing.Request, *sent, shaper.Outcome) {
	own, err := w.config.ownOf(attempt.Own)
	if err != nil {
		return nil, nil, shaper.Retry(shaper.ReasonFlowSettings, workers.Snippet([]byte(err.Error())))
	}
	var credentials *sent
	if own.base.Is(w.config.home.base.Origin) {
		now := w.credentials.now()
		credentials = &now
	}
	if w.tokens != nil && credentials != nil {
		var waited bool
		within, cancel := context.WithTimeout(ctx, w.config.Timeout)
		credentials.token, waited, err = w.tokens.token(within)
		cancel()
		if ctx.Err() != nil {
			return nil, nil, shaper.Returned(workers.ReasonShutdown)
		}
		if err != nil {
			return nil, nil, w.noToken(err)
		}
		if waited && time.Since(attempt.Slot()) > lateForToken {
			return nil, nil, shaper.Returned(workers.ReasonLate)
		}
	}
	req, err := w.config.request(attempt, own, credentials)
	if err != nil {
		return nil, nil, workers.ClassifyError(fmt.Errorf("%w: %w", workers.ErrInvalid, err))
	}
	return req, credentials, shaper.Outcome{}
}

// DeliverBatch makes one attempt at several jobs: one request, whose Idempotency-Key is the batch's id. [workers.BatchFormat] defines its items, and
// [workers.Policy.Outcomes] the outcome of each job.
func (w *Worker) DeliverBatch(ctx context.Context, batch *shaper.Batch) []shaper.Outcome {
	return w.config.Policy.Outcomes(batch, w.deliver(ctx, w.config.Batch.Attempt(batch), true), time.Now())
}

// own are the checked settings of a flow for deliveries.
type own struct {
	base    outgoing.Target // that paths go below
	headers map[string]string
}

// errFlow marks the fault of a flow's own settings: an operator can mend it, so the job is not lost.
var errFlow = errors.New("the settings of the job's flow cannot be used, so it is not sent")

// ownOf checks the settings of a flow, which may be nil. The error is an errFlow.
func (c *Config) ownOf(flow *shaper.OwnDelivery) (*own, error) {
	if flow == nil {
		return &c.home, nil
	}
	if err := c.CheckFlow(flow); err != nil {
		return nil, fmt.Errorf("%w: %w", errFlow, err)
	}
	o := &own{base: c.home.base, headers: flow.Headers}
	if flow.URL != "" {
		o.base, _ = outgoing.ParseURL(flow.URL) // CheckFlow has checked it
	}
	return o, nil
}

// request builds the request of an attempt. credentials is nil for a request to another origin than the base URL's.
func (c *Config) request(attempt *shaper.Attempt, own *own, credentials *sent) (*outgoing.Request, error) {
	if err := checkRequest(attempt.Method, attempt.Headers, attempt.Payload, c.reserved); err != nil {
		return nil, err
	}
	address, err := below(own.base, attempt.URL, c.AllowInPath)
	if err != nil {
		return nil, &shaper.FieldError{Field: "path", Reason: err.Error()}
	}
	h := make(http.Header, len(attempt.Headers)+4)
	h.Set("User-Agent", outgoing.UserAgent)
	h.Set("Idempotency-Key", attempt.ID)
	if len(attempt.Payload) > 0 {
		h.Set("Content-Type", "application/json")
	}
	for name, values := range attempt.Headers {
		h[http.CanonicalHeaderKey(name)] = slices.Clone(values) // workers share the attempt's
	}
	if credentials != nil {
		for name, value := range credentials.headers {
			h.Set(name, value)
		}
	}
	for name, value := range own.headers {
		h.Set(name, value)
	}
	if credentials != nil {
		credentials.auth.set(h, credentials.token)
	}
	to := outgoing.Target{URL: address, Origin: own.base.Origin}
	return &outgoing.Request{Method: attempt.Method, To: to, Header: h, Body: attempt.Payload}, nil
}
