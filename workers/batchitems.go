package workers

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/tundish-io/tundish/shaper"
)

// positioned reads the items of a response that says of itself that it is partial, and that no rule reads: the elements of its list
// "items" (of Elasticsearch's _bulk), "responses", "value" or "data", or of the list that it is. Each has one status, wherever.
func positioned(body []byte) (items []responseItem, err error) {
	lists := []pointer{{"items"}, {"responses"}, {"value"}, {"data"}}
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		lists = []pointer{{}}
	}
	for _, list := range lists {
		if items, err = itemsAt(body, list); err != nil || len(items) == 0 {
			continue
		}
		for i := range items {
			if statuses := statusesIn(items[i].text); len(statuses) == 1 {
				items[i].status = statuses[0]
			}
		}
		return items, nil
	}
	return nil, errors.New("the answer to the batch says that parts of it were refused, and not which")
}

// byJob gives each job of a batch its item: by its id, or else in order, where there are as many items as jobs.
func byJob(batch *shaper.Batch, items []responseItem, byID bool, err error) (map[string]*itemResult, error) {
	results := make(map[string]*itemResult, len(items))
	if !byID && len(items) != len(batch.Attempts) {
		return results, firstOf(err, fmt.Errorf("the answer to the batch has %d items for %d jobs, so all of them are tried again", len(items), len(batch.Attempts)))
	}
	for i, item := range items {
		result := &itemResult{nth: i + 1, status: item.status, text: item.text}
		id := item.id
		if !byID {
			id = batch.Attempts[i].ID
		}
		switch before := results[id]; {
		case before != nil:
			result.fault = fmt.Errorf("the answer to the batch names job %q twice, as items %d and %d: it is tried again", Snippet([]byte(id)), before.nth, result.nth)
		case item.status < 200 || item.status > 599:
			result.fault = fmt.Errorf("item %d in the answer to the batch has no status of 200 to 599: its job is tried again", i+1)
		}
		err = firstOf(err, result.fault)
		results[id] = result
	}
	return results, err
}

// itemResult is what an answer says of a job.
type itemResult struct {
	nth    int // in the answer, from 1 on
	status int
	text   []byte
	fault  error
}

// firstOf keeps the message short where many items have a fault.
func firstOf(before, next error) error {
	if before != nil {
		return before
	}
	return next
}
