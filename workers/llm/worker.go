package llm

import (
	"context"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/httpworker"
)

// maxAnswer is how many bytes of a response are read for its usage, whether a client wants the response or not. The usage is at the end, so a longer
// response is charged what was reserved. It is the bound of a result.
const maxAnswer = shaper.MaxResultBody

// Worker is the [shaper.Worker] of the kind "llm": a worker http that reads the token usage of responses. It is safe for concurrent use.
type Worker struct {
	config  Config
	http    *httpworker.Worker
	learned *LearnedEstimates
	metrics *Metrics
}

var _ shaper.Worker = (*Worker)(nil)

// New makes a worker, or returns what is wrong with config. learned collects the usage that responses report; if it is nil, the worker has its own.
// metrics count the tokens of responses; nil counts nothing.
func New(config Config, learned *LearnedEstimates, metrics *Metrics) (*Worker, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	sender, err := httpworker.New(config.http())
	if err != nil {
		return nil, err
	}
	if learned == nil {
		learned = &LearnedEstimates{}
	}
	return &Worker{config: config, http: sender, learned: learned, metrics: metrics}, nil
}

// API is the form of the requests.
func (w *Worker) API() API { return w.config.API }

// BaseURL returns the URL below which the calls go, unless their flow has its own. Its query may hold a secret.
func (w *Worker) BaseURL() string { return w.config.HTTP.BaseURL }

// Credentials returns the headers that a call cannot set, in lower case: the headers of the worker's credentials, and the headers that name the
// account that pays.
func (w *Worker) Credentials() []string {
	return append(w.config.HTTP.Auth.Headers(), accountHeaders...)
}

// CheckCall returns the faults in the path, method and headers of a call as joined errors, each a [*shaper.FieldError]. The API validates the body.
func (w *Worker) CheckCall(job *shaper.Job) error { return w.config.http().CheckJob(job) }

// Takes reports whether the worker accepts requests to a model.
func (w *Worker) Takes(model string) bool { return w.config.Takes(model) }

// Close closes the connections that are kept; those in use close when their delivery ends.
func (w *Worker) Close() { w.http.Close() }

// Deliver makes one attempt, as [httpworker.Worker.Deliver] does, and reports its usage.
//
// A good response is charged its [Usage], or its estimate if it reports none. An error response of Anthropic has used nothing. An error response of
// OpenAI, and a request without a response, has used what was reserved, because OpenAI counts unsuccessful requests. Only good responses report use of a
// model.
func (w *Worker) Deliver(ctx context.Context, attempt *shaper.Attempt) shaper.Outcome {
	r, err := w.config.read(attempt.Method, attempt.URL, attempt.Payload)
	if err != nil {
		return workers.ClassifyError(fmt.Errorf("%w: %w", workers.ErrInvalid, err))
	}
	r.isOf(w.config, attempt)
	whole := *attempt
	whole.AnswerBytes = max(attempt.AnswerBytes, maxAnswer)
	outcome := w.http.Deliver(ctx, &whole)
	answer := outcome.Answer
	if answer == nil {
		return outcome
	}
	if answer.Status/100 == 2 {
		if outcome.Result == shaper.ResultDone {
			response := workers.Response{Status: answer.Status, Header: answer.Headers, Body: answer.Body, At: time.Now(), Number: attempt.Number}
			if fault, ok := judged(w.config.HTTP.Policy, &response); ok {
				outcome = fault
			}
		}
		if outcome.Result == shaper.ResultDone {
			w.account(attempt, &Ask{request: r}, w.config.charge(r, answer, w.learned), &outcome)
		} else {
			outcome.Used = shaper.Units{}
		}
	} else if outcome.Reason != workers.ReasonCredentials {
		outcome = refineOutcome(w.config.HTTP.Policy, outcome, answer.Body)
		if w.config.API == Anthropic {
			outcome.Used = shaper.Units{}
		}
	}
	outcome.Answer = wanted(answer, attempt.AnswerBytes)
	return outcome
}

// wanted returns the response with the first most bytes of its body, nil if none is wanted.
func wanted(answer *shaper.Answer, most int64) *shaper.Answer {
	if most <= 0 {
		return nil
	}
	short := *answer
	if int64(len(short.Body)) > most {
		short.Body, short.Cut = short.Body[:most:most], true
	}
	return &short
}
