package workers

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/tundish-io/tundish/shaper"
)

// responseItem is one item of a response, as its API has it.
type responseItem struct {
	id     string // "": the API tells none
	status int    // 0: it tells none
	text   []byte
}

// itemsIn reads the items that a rule points at. The error says that the list is not there, or not whole.
func (rule *Rule) itemsIn(body []byte) (items []responseItem, err error) {
	list, err := parsePointer(rule.Items)
	if err != nil {
		return nil, err
	}
	status, err := parsePointer(rule.ItemStatus)
	if err != nil {
		return nil, err
	}
	var id pointer
	if rule.ItemID != "" {
		if id, err = parsePointer(rule.ItemID); err != nil {
			return nil, err
		}
	}
	items, err = itemsAt(body, list)
	for i := range items {
		text, _ := find(items[i].text, status, nil)
		items[i].status, _ = strconv.Atoi(text)
		if id != nil {
			items[i].id, _ = find(items[i].text, id, nil)
		}
	}
	return items, err
}

// itemsAt reads the elements of the list at a pointer, without what they say.
func itemsAt(body []byte, list pointer) (items []responseItem, err error) {
	r, isThere := readJSON(body), false
	err = r.each(append(slices.Clone(list), anyStep), func() error {
		isThere = true
		if err := r.read(); err != nil {
			return err
		}
		items = append(items, responseItem{text: slices.Clone(r.value)})
		return nil
	})
	switch {
	case err != nil:
		return items, fmt.Errorf("the answer to the batch cannot be read to its end: %w", err)
	case !isThere:
		return nil, errors.New("the answer to the batch has no list of items")
	}
	return items, nil
}

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
