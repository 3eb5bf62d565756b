package shaper

import (
	"context"
	"maps"
	"net/textproto"
	"slices"
	"strings"
	"time"
)

// Bounds of a batch.
const (
	MaxBatchSize  = 500 // a claim returns it as a whole
	MaxBatchBytes = 1 << 20
	MaxBatchWait  = time.Hour
)

// BatchSettings make several jobs of a flow one request: a batch. It takes one slot. The rate, quotas, the breaker and MaxInFlight count requests;
// Capacity counts jobs. With the zero value each job is sent alone.
//
// Jobs of a batch agree in URL, method and headers, including the content type and excluding Trace Context. A batch takes consecutive jobs of the
// flow, up to the first one that does not agree. A job is sent alone if its method is GET or HEAD, or if a process crashed while it had the job in
// flight.
type BatchSettings struct {
	MaxSize  int64 `setting:"max_size"`        // jobs, 1 to MaxBatchSize; 0: no batches
	MaxBytes int64 `setting:"max_bytes,bytes"` // of payloads, up to MaxBatchBytes; a single job may have more, and is sent alone

	// MaxWait is how long a job waits for other jobs of its batch: until MaxSize jobs wait, or their payloads fill MaxBytes. A job that expires waits
	// at most half of the time until then. Delayed jobs and retries have a time of their own, and do not wait. 0: no job waits.
	MaxWait time.Duration `setting:"max_wait"`
}

// Has reports whether there are batches.
func (s BatchSettings) Has() bool { return s.MaxSize > 0 }

func (s BatchSettings) validate() []error {
	if s == (BatchSettings{}) {
		return nil
	}
	f := faults{prefix: "batch."}
	f.inRange("max_size", s.MaxSize, 1, MaxBatchSize)
	f.inRange("max_bytes", s.MaxBytes, 1, MaxBatchBytes)
	if s.MaxWait < 0 || s.MaxWait > MaxBatchWait {
		f.add("max_wait", "%s: want 0s (no job waits) to %s", s.MaxWait, MaxBatchWait)
	}
	return f.errs
}

// Batch is one delivery of jobs that agree: see [BatchSettings]. It has one permit.
type Batch struct {
	ID       string     // of this delivery: never reused, not even for the same jobs
	Attempts []*Attempt // one per job, at least one

	// Fault is set by the worker if the response as a whole is invalid, whatever the outcomes. The dispatcher logs it.
	Fault error
}

// Depart marks the departure of the batch: see [Attempt.Depart].
func (b *Batch) Depart() error { return b.Attempts[0].Depart() }

// BatchWorker is a [Worker] that delivers batches too. In a bucket with batches it gets every job by DeliverBatch, including a job that is sent
// alone. Only a job whose method is GET or HEAD goes to Deliver.
type BatchWorker interface {
	Worker

	// DeliverBatch makes one attempt at a batch, and returns one outcome per job, in their order: see [Worker] for the rest. A job without an outcome
	// is tried again. To the adaptive rate and the breaker the batch is one request: accepted if any outcome's signal is, else throttled, else
	// failed. [ResultHandedOver] is no valid outcome here.
	DeliverBatch(ctx context.Context, batch *Batch) []Outcome
}

// GoesAlone reports whether a job of that method is never in a batch: a request without a body carries no items.
func GoesAlone(method string) bool { return method == "GET" || method == "HEAD" }

// Agreement returns the properties that jobs of a batch share, as text; "" for a job that names none of its own.
func Agreement(url, method string, headers map[string][]string) string {
	if method == "POST" {
		method = ""
	}
	lines := make([]string, 0, len(headers))
	for name, values := range headers {
		if canonical := textproto.CanonicalMIMEHeaderKey(name); !IsTraceHeader(name) {
			lines = append(lines, canonical+"\x00"+strings.Join(values, "\x00"))
		}
	}
	if url == "" && method == "" && len(lines) == 0 {
		return ""
	}
	slices.Sort(lines)
	return url + "\n" + method + "\n" + strings.Join(lines, "\n")
}

// Agrees reports whether two attempts may be in one batch.
func (a *Attempt) Agrees(b *Attempt) bool {
	return !GoesAlone(a.Method) && Agreement(a.URL, a.Method, a.Headers) == Agreement(b.URL, b.Method, b.Headers)
}

// Trace is the Trace Context of the job, by the names of its headers: traceparent and tracestate.
func (a *Attempt) Trace() map[string]string {
	var trace map[string]string
	for name, values := range a.Headers {
		if IsTraceHeader(name) && len(values) > 0 {
			if trace == nil {
				trace = make(map[string]string, 2)
			}
			trace[strings.ToLower(name)] = values[0]
		}
	}
	return trace
}

// Common returns an attempt that represents the batch: its id, the shared properties of its jobs, and the permit. It has no payload.
func (b *Batch) Common() *Attempt {
	common := *b.Attempts[0]
	common.ID, common.Payload, common.Number = b.ID, nil, 1
	common.Headers = maps.Clone(common.Headers)
	maps.DeleteFunc(common.Headers, func(name string, _ []string) bool { return IsTraceHeader(name) })
	for _, a := range b.Attempts[1:] {
		common.AnswerBytes = max(common.AnswerBytes, a.AnswerBytes)
	}
	return &common
}
