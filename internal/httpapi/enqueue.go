package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/webhook"
)

// enqueue enqueues one job: POST /v1/buckets/{bucket}/jobs.
func (p *producer) enqueue(w http.ResponseWriter, r *http.Request) {
	bucket, f := p.bucket(r)
	if f == nil {
		_, f = mediaType(r, typeJSON)
	}
	var body []byte
	if f == nil {
		body, f = readJobBody(w, r, &bucket)
	}
	if f != nil {
		f.write(w, r)
		return
	}
	wait, f := preferredWait(r.Header)
	if f != nil {
		f.write(w, r)
		return
	}
	key, keyErr := idempotencyKey(r.Header)
	job, err := decodeJob(body)
	f = p.complete(&job, err, p.sender(r, bucket.Name), &bucket, key, keyErr)
	if f == nil {
		f = bound(r, &bucket, &job)
	}
	if f != nil {
		f.write(w, r)
		return
	}
	traceContextOf(r.Header).addTo(&job)
	if wait > 0 && usageOf(r).mayWait() { // if too many requests wait, the preference is ignored
		p.enqueueAndWait(w, r, job, wait)
		return
	}
	receipts, err := p.send(r, job)
	if err != nil {
		p.unknownOutcome(r, receipts, err).write(w)
		return
	}
	if p.tellReceipt(w, r, &receipts[0]) {
		answer := admitted(&receipts[0])
		writeJSON(w, http.StatusAccepted, &answer)
	}
}

func (p *producer) bucket(r *http.Request) (shaper.Bucket, *fault) {
	bucket, err := p.jobs.Bucket(r.PathValue("bucket"))
	if err != nil {
		return bucket, newFault(codeUnknownBucket, "bucket %q is not configured", r.PathValue("bucket"))
	}
	return bucket, nil
}

// send enqueues jobs. A client that disconnects does not undo its request. The client of
// package producer bounds the time of Redis.
func (p *producer) send(r *http.Request, jobs ...shaper.Job) ([]shaper.Receipt, error) {
	return p.jobs.Enqueue(context.WithoutCancel(r.Context()), jobs...)
}

// complete sets the bucket, the sender and the id of a decoded job, and reports every fault of it. err is the error of decoding it, key the
// Idempotency-Key, keyErr the fault of that header.
func (p *producer) complete(job *shaper.Job, err error, sender sender, bucket *shaper.Bucket, key string, keyErr error) *fault {
	if faults := fieldErrors(err); len(faults) > 0 && faults[0].Field == bodyField {
		return invalid(faults)
	}
	if key != "" && job.ID != "" && key != job.ID {
		keyErr = errors.Join(keyErr, &shaper.FieldError{Field: "id", Reason: "differs from the header Idempotency-Key: give one of them"})
	}
	for _, id := range []string{job.ID, key} {
		keyErr = errors.Join(keyErr, unreserved(id))
	}
	if job.ID == "" && key != "" {
		job.ID = key
		if sender.caller != "" || !shaper.ValidID(key) { // such as a key with a space
			job.ID = shaper.KeyedID(bucket.Name, sender.caller, key)
		}
	}
	job.Bucket, job.Caller = bucket.Name, sender.caller
	job.Identity = sender.Identity
	if size := int64(len(job.Payload)); size > bucket.MaxPayload {
		return newFault(codeTooLarge, "the payload has %d bytes: bucket %q takes at most %d", size, bucket.Name, bucket.MaxPayload)
	}
	// The client of package producer checks again: settings may change meanwhile, and a program may have no such handler.
	_, _, found := bucket.Check(job)
	if p.checkJob != nil {
		found = errors.Join(found, p.checkJob(bucket.Name, job))
	}
	faults := onePerField(fieldErrors(errors.Join(keyErr, err, found)))
	switch {
	case len(faults) == 0:
		if p.estimate != nil && bucket.HasBudgets() {
			job.Units = p.estimate(bucket.Name, job)
		}
		return nil
	case len(faults) == 1 && errors.Is(faults[0], webhook.ErrURLNotAllowed):
		return newFault(codeURLNotAllowed, "%s", faults[0].Reason)
	}
	return invalid(faults)
}

// onePerField keeps the first fault of each field: an unreadable value is
// not reported as out of bounds too.
func onePerField(all []*shaper.FieldError) []*shaper.FieldError {
	seen := map[string]bool{}
	kept := all[:0]
	for _, f := range all {
		if !seen[f.Field] {
			kept = append(kept, f)
		}
		seen[f.Field] = true
	}
	return kept
}

// unreserved refuses an id that is reserved for this program's own jobs.
func unreserved(id string) error {
	for _, beginning := range shaper.ReservedIDs() {
		if strings.HasPrefix(id, beginning) {
			return &shaper.FieldError{Field: "id", Reason: fmt.Sprintf("%q begins with %q, as ids that Tundish makes do: use another id", id, beginning)}
		}
	}
	return nil
}

// sender is the caller that enqueues: for the limits, and as the owner of the job.
type sender struct {
	admission.Identity

	caller string // "" without a key
}

// sender returns the caller that enqueues into a bucket, with the headers that hold its limits' keys, its flow and its group. The client of package
// producer sets its flow to the job's.
func (p *producer) sender(r *http.Request, bucket string) sender {
	names := p.jobs.LimitHeaders(bucket)
	if names == nil {
		names = []string{} // nil would mean all
	}
	return sender{p.access.identity(r, names), keyOf(r).Owner()}
}
