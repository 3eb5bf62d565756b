package workers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/tundish-io/tundish/internal/jsonscan"
)

// responseItem is one item of a response, as its API has it.
type responseItem struct {
	id     string // "": the item has none
	status int    // 0: the item has none
	text   []byte // a part of the response
}

// eachItem calls add with the items that a rule points at, in order. It returns an error if the list is missing or incomplete.
func (rule *Rule) eachItem(body []byte, add func(item responseItem)) error {
	list, err := parsePointer(rule.Items)
	if err != nil {
		return err
	}
	status, err := parsePointer(rule.ItemStatus)
	if err != nil {
		return err
	}
	var id pointer
	if rule.ItemID != "" {
		if id, err = parsePointer(rule.ItemID); err != nil {
			return err
		}
	}
	return eachItemAt(body, list, func(text []byte) {
		item := responseItem{text: text}
		said, _ := find(text, status, nil)
		item.status, _ = strconv.Atoi(said)
		if id != nil {
			item.id, _ = find(text, id, nil)
		}
		add(item)
	})
}

// eachItemAt calls add with the elements of the list at a pointer.
func eachItemAt(body []byte, list pointer, add func(text []byte)) error {
	at, isThere := jsonscan.New(body), false
	eachAt(at, append(slices.Clone(list), anyStep), func() bool {
		isThere = true
		text := at.Value()
		if text != nil {
			add(text)
		}
		return text != nil
	})
	switch {
	case at.Err() != nil:
		return fmt.Errorf("the answer to the batch cannot be read to its end: %w", at.Err())
	case !isThere:
		return errors.New("the answer to the batch has no list of items")
	}
	return nil
}
