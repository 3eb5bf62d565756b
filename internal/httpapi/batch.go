package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/inputtext"
	"github.com/tundish-io/tundish/shaper"
)

// Bounds of a batch.
const (
	maxBatchJobs  = 1000
	maxBatchBytes = 8 << 20

	// jobCost is the memory in bytes that a job of a batch counts in addition to its own bytes: measured while it waits for Redis.
	jobCost = 1 << 10

	// maxBatchFaults bounds the field faults that a batch shows. Each job beyond the bound shows only its first one.
	maxBatchFaults = 1000
)

// tally is the response to a batch: a result for each job, in order.
type tally struct {
	Admitted int      `json:"admitted"`
	Refused  int      `json:"refused"` // includes jobs that are not valid
	Results  []result `json:"results"`
}

// result is the result of one job of a batch: the same as if it had been enqueued alone, with its status.
type result struct {
	Status int          `json:"status"`
	ID     string       `json:"id,omitempty"`
	State  shaper.State `json:"state,omitempty"`
	*jobAnswer
	*fault
}

// enqueueBatch decides the jobs of a batch one by one: POST /v1/buckets/{bucket}/jobs/batch. It responds with 200 if at least one job was admitted.
// Otherwise it responds with 429 or 503 if all were rejected for now, 400 if all were rejected for good, and 200 if some of both.
func (p *producer) enqueueBatch(w http.ResponseWriter, r *http.Request) {
	bucket, f := p.bucket(r)
	var kind string
	if f == nil {
		kind, f = mediaType(r, typeNDJSON, typeJSON)
	}
	if f == nil && r.Header.Get("Idempotency-Key") != "" {
		f = newFault(codeInvalid, "a batch takes no Idempotency-Key: give every job an id of its own")
	}
	var body []byte
	if f == nil {
		body, f = readText(w, r, maxBatchBytes, fmt.Sprintf("a batch has at most %d jobs and %d bytes", maxBatchJobs, maxBatchBytes))
	}
	var items []json.RawMessage
	if f == nil {
		items, f = splitBatch(kind, body)
	}
	if f == nil && !usageOf(r).takeRest(jobCost*int64(len(items))) {
		f = usageOf(r).noMemory("")
	}
	if f != nil {
		f.write(w, r)
		return
	}
	decode := decodeJob
	if kind == typeJSON {
		decode = decodeValidJob // splitBatch has checked that the whole array is JSON
	}
	p.decideBatch(w, r, &bucket, items, decode)
}

func (p *producer) decideBatch(w http.ResponseWriter, r *http.Request, bucket *shaper.Bucket, items []json.RawMessage, decode func([]byte) (shaper.Job, error)) {
	results := make([]result, len(items))
	sender, trace := p.sender(r, bucket.Name), traceContextOf(r.Header)
	jobs, places, faults := make([]shaper.Job, 0, len(items)), make([]int, 0, len(items)), maxBatchFaults
	isForbidden := false
	for i, item := range items {
		jobs = append(jobs, shaper.Job{})
		job := &jobs[len(jobs)-1]
		f := jobTooLarge(item, bucket)
		if f == nil {
			var err error
			*job, err = decode(item)
			f = p.complete(job, err, sender, bucket, "", nil)
		}
		if f == nil {
			if f = bound(r, bucket, job); f != nil && !isForbidden {
				noteForbidden(r, f)
				isForbidden = true
			}
		}
		if f == nil {
			trace.addTo(job)
			places = append(places, i)
			continue
		}
		f.Errors = slices.Clip(slices.Clone(f.Errors[:min(len(f.Errors), max(faults, 1))])) // the others need no memory any more
		faults -= len(f.Errors)
		results[i] = result{Status: f.Status, fault: f}
		if shaper.ValidID(job.ID) {
			results[i].ID = job.ID
		}
		jobs = jobs[:len(jobs)-1]
	}
	receipts, err := p.send(r, jobs...)
	if err != nil {
		p.unknownOutcome(r, receipts, err).write(w)
		return
	}
	var decisions []admission.Decision
	answers := make([]jobAnswer, len(receipts))
	for i := range receipts {
		receipt := &receipts[i]
		decisions = append(decisions, receipt.Decisions...)
		to := &results[places[i]]
		to.ID, to.State = receipt.ID, receipt.State
		if receipt.Refusal != nil {
			to.fault = refused(receipt.Refusal)
			to.Status = to.fault.Status
			continue
		}
		answers[i] = admitted(receipt)
		to.Status, to.jobAnswer = http.StatusAccepted, &answers[i]
	}
	p.headers.Set(w.Header(), decisions, time.Now())
	httplimit.SetShadowHeader(w.Header(), decisions)
	answerBatch(w, r, results)
}

// jobTooLarge returns a fault for a job of a batch that is larger than a single job may be.
func jobTooLarge(item []byte, bucket *shaper.Bucket) *fault {
	if int64(len(item)) <= bucket.MaxPayload+envelopeBytes {
		return nil
	}
	return newFault(codeTooLarge, "the job has %d bytes: bucket %q takes payloads of at most %d bytes, and %d around them",
		len(item), bucket.Name, bucket.MaxPayload, envelopeBytes)
}

// answerBatch chooses the status of the whole.
func answerBatch(w http.ResponseWriter, r *http.Request, results []result) {
	t := &tally{Results: results}
	var forNow int
	var first *fault // of the jobs refused for now, the fault of the one that may pass first
	for i := range results {
		switch f := results[i].fault; {
		case f == nil:
			t.Admitted++
		case f.Status == http.StatusTooManyRequests || f.Status == http.StatusServiceUnavailable:
			forNow++
			if first == nil || sooner(f, first) {
				first = f
			}
		}
	}
	t.Refused = len(results) - t.Admitted
	whole := (*fault)(nil)
	switch {
	case forNow == len(results):
		whole = newFault(first.Code, "none of the %d jobs was admitted; the first that may pass later: %s", len(results), first.Detail)
		whole.RetryAfter, whole.ViolatedPolicies = first.RetryAfter, first.ViolatedPolicies
	case t.Admitted == 0 && forNow == 0:
		whole = newFault(codeInvalid, "none of the %d jobs was admitted, and the same ones never will be: see results", len(results))
	default:
		writeJSON(w, http.StatusOK, t)
		return
	}
	problem := whole.problem(r)
	problem.tally = t
	problem.write(w)
}

// sooner reports whether a may pass before b. A refusal without a time, as of a
// paused flow, passes when an operator acts: any time is sooner.
func sooner(a, b *fault) bool {
	if a.RetryAfter == 0 || b.RetryAfter == 0 {
		return a.RetryAfter > 0 && b.RetryAfter == 0
	}
	return a.RetryAfter < b.RetryAfter
}

// splitBatch cuts a batch into the JSON of its jobs, and stops at the first job too many. A
// line that is no JSON is that job's fault; an array that is none is the fault of all.
func splitBatch(kind string, body []byte) ([]json.RawMessage, *fault) {
	var items []json.RawMessage
	add := func(item []byte) bool {
		items = append(items, item)
		return len(items) <= maxBatchJobs
	}
	if kind == typeNDJSON {
		for line := range bytes.Lines(inputtext.Newlines(body)) {
			if line = inputtext.TrimLine(line); len(line) > 0 && !add(line) {
				break
			}
		}
	} else {
		if err := checkJSON(body); err != nil {
			return nil, invalid(fieldErrors(err))
		}
		if bytes.TrimSpace(body)[0] != '[' {
			return nil, newFault(codeInvalid, "want a JSON array of jobs, or lines of them as %s", typeNDJSON)
		}
		pieces(body, add)
	}
	switch {
	case len(items) == 0:
		return nil, newFault(codeInvalid, "the batch has no jobs")
	case len(items) > maxBatchJobs:
		return nil, newFault(codeTooLarge, "the batch has more than %d jobs: send it in parts", maxBatchJobs)
	}
	return items, nil
}
