package workers

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/tundish-io/tundish/shaper"
)

// batchResults holds the results that a response has for the jobs of a batch. Results for other jobs are only counted.
type batchResults struct {
	ofJobs map[string]*itemResult // of each job of the batch; nil: the response does not name it
	err    error                  // the first fault of an item

	foreign      int    // how many items name other jobs
	firstForeign string // the job that the first one names
	nthForeign   int    // which item that is
}

// itemResult is the result that a response has for a job.
type itemResult struct {
	nth    int // in the response, from 1 on
	status int
	text   []byte
	fault  error
}

func resultsFor(batch *shaper.Batch) *batchResults {
	r := &batchResults{ofJobs: make(map[string]*itemResult, len(batch.Attempts))}
	for _, a := range batch.Attempts {
		r.ofJobs[a.ID] = nil
	}
	return r
}

// add adds the nth item of a response, which names a job.
func (r *batchResults) add(id string, item itemResult) {
	before, isOurs := r.ofJobs[id]
	switch {
	case !isOurs:
		if r.foreign++; r.foreign == 1 {
			r.firstForeign, r.nthForeign = Snippet([]byte(id)), item.nth
		}
		return
	case before != nil:
		item.fault = fmt.Errorf("the answer to the batch names job %q twice, as items %d and %d: it is tried again", Snippet([]byte(id)), before.nth, item.nth)
	case item.status < 200 || item.status > 599:
		item.fault = fmt.Errorf("item %d of the results in the answer to the batch has status %d for job %q: want 200 to 599; the job is tried again", item.nth, item.status, Snippet([]byte(id)))
	}
	r.fail(item.fault)
	r.ofJobs[id] = &item
}

// fail keeps the first fault: the message is short if many items have one.
func (r *batchResults) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// fault returns the first fault of an item, otherwise an error if items have ids of no job of the batch.
func (r *batchResults) fault() error {
	if r.err != nil || r.foreign == 0 {
		return r.err
	}
	return fmt.Errorf("item %d of the results in the answer to the batch names job %q, which is not in the batch; %d items do so", r.nthForeign, r.firstForeign, r.foreign)
}

// readRule reads the items that a rule points at: by their ids, or in the order of the jobs.
func (r *batchResults) readRule(batch *shaper.Batch, rule *Rule, body []byte) {
	if rule.ItemID == "" {
		status, _ := parsePointer(rule.ItemStatus) // Validate has checked both pointers
		list, _ := parsePointer(rule.Items)
		r.readInOrder(batch, func(add func(text []byte)) error { return eachItemAt(body, list, add) }, func(text []byte) int {
			said, _ := find(text, status, nil)
			n, _ := strconv.Atoi(said)
			return n
		})
		return
	}
	nth := 0
	r.fail(rule.eachItem(body, func(item responseItem) {
		nth++
		r.add(item.id, itemResult{nth: nth, status: item.status, text: item.text})
	}))
}

// readInOrder reads items that are in the order of the jobs, if their number is the same.
func (r *batchResults) readInOrder(batch *shaper.Batch, each func(add func(text []byte)) error, status func(text []byte) int) {
	nth := 0
	err := each(func(text []byte) {
		if nth++; nth <= len(batch.Attempts) {
			r.add(batch.Attempts[nth-1].ID, itemResult{nth: nth, status: status(text), text: text})
		}
	})
	if nth != len(batch.Attempts) {
		*r = *resultsFor(batch)
		r.fail(err)
		r.fail(fmt.Errorf("the answer to the batch has %d items for %d jobs, so all of them are tried again", nth, len(batch.Attempts)))
		return
	}
	if err != nil {
		r.err = err
	}
}

// onlyStatusIn is the status in an item that has one, 0 of any other.
func onlyStatusIn(text []byte) int {
	if statuses := statusesIn(text); len(statuses) == 1 {
		return statuses[0]
	}
	return 0
}

// eachPositioned calls add with the items of a response that declares itself partial, and that no rule reads. They are the elements of its list "items"
// (of Elasticsearch's _bulk), "responses", "value" or "data", or of the list that is the body. Each has one status, at any place.
func eachPositioned(body []byte, add func(text []byte)) error {
	lists := []pointer{{"items"}, {"responses"}, {"value"}, {"data"}}
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		lists = []pointer{{}}
	}
	for _, list := range lists {
		if eachItemAt(body, list, func([]byte) {}) != nil { // it is not there, or not whole
			continue
		}
		return eachItemAt(body, list, add)
	}
	return errors.New("the answer to the batch says that parts of it were refused, and not which")
}
