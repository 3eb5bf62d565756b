package workers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
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
