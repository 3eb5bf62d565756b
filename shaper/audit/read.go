package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
)

// ErrCursor is returned for a cursor that [Log.Records] did not return.
var ErrCursor = errors.New("the cursor is none: use the next of the answer before")

// entry is a record in a list.
type entry struct {
	at int64 // when its operation began, microseconds
	id string
}

// name returns the cursor of the entries older than this one.
func (e entry) name() string { return strconv.FormatInt(e.at, 10) + "-" + e.id }

func cursorOf(text string) (after *entry, err error) {
	if text == "" {
		return nil, nil
	}
	at, id, isOne := strings.Cut(text, "-")
	n, err := strconv.ParseUint(at, 10, 53) // as many digits as the lists have
	if !isOne || err != nil {
		return nil, ErrCursor
	}
	return &entry{at: int64(n), id: id}, nil
}

// Filter says which records are wanted.
type Filter struct {
	Bucket string // operations on this one; "" all, also those on none
	Author string // authors whose text contains it; "" all
}

// maxLooked bounds the records that one call looks at for an author.
const maxLooked = 10_000

// Records returns records, the newest first, and the cursor of those before them, "" if there are none. bucket "" is of all and of none. At most limit
// of them, up to 1000. Two round trips.
func (l *Log) Records(ctx context.Context, bucket, cursor string, limit int) (records []Record, next string, err error) {
	return l.Find(ctx, Filter{Bucket: bucket}, cursor, limit)
}

// Find returns records as [Log.Records] does, those that a filter wants. For an author it looks at 10,000 records at most: there may be fewer than
// limit, or none, with a cursor to go on. Two round trips for each 1,000 records that it looks at.
func (l *Log) Find(ctx context.Context, wanted Filter, cursor string, limit int) (records []Record, next string, err error) {
	after, err := cursorOf(cursor)
	if err != nil {
		return nil, "", err
	}
	if wanted.Bucket != "" && !admission.ValidName(wanted.Bucket) {
		return nil, "", nil // there is none
	}
	limit = min(max(limit, 1), maxRecords)
	atOnce := limit
	if wanted.Author != "" {
		atOnce = maxRecords
	}
	for looked := 0; ; {
		entries, found, more, err := l.page(ctx, wanted.Bucket, after, atOnce)
		if err != nil {
			return nil, "", fmt.Errorf("read the audit: %w", err)
		}
		for i, r := range found {
			after = &entries[i]
			if r == nil || !strings.Contains(r.Author, wanted.Author) {
				continue
			}
			records = append(records, *r)
			if len(records) == limit && (more || i < len(found)-1) {
				return records, after.name(), nil
			}
		}
		if !more {
			return records, "", nil
		}
		if looked += len(entries); wanted.Author == "" || looked >= maxLooked {
			return records, after.name(), nil
		}
	}
}

// page returns at most n entries behind one, and the record of each: nil of one that was removed meanwhile. more reports whether others follow.
func (l *Log) page(ctx context.Context, bucket string, after *entry, n int) (entries []entry, found []*Record, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	if entries, err = l.entries(ctx, bucket, after, n+1); err != nil {
		return nil, nil, false, err
	}
	if more = len(entries) > n; more {
		entries = entries[:n]
	}
	texts, err := l.texts(ctx, entries)
	if err != nil {
		return nil, nil, false, err
	}
	found = make([]*Record, len(texts))
	for i, text := range texts {
		if r, isThere := read(text, entries[i].at); isThere {
			r.ID = entries[i].id
			found[i] = &r
		}
	}
	return entries, found, more, nil
}

// entries returns the entries of a list that follow a cursor.
func (l *Log) entries(ctx context.Context, bucket string, after *entry, most int) ([]entry, error) {
	list := "all"
	if bucket != "" {
		list = "b:" + bucket
	}
	from := "(" + list + "!"
	if after != nil {
		from = fmt.Sprintf("(%s %016d %s", list, after.at, after.id)
	}
	found, err := l.redis.ZRangeArgs(ctx, redis.ZRangeArgs{Key: l.book.keys[0], Start: from, Stop: "[" + list + " ", ByLex: true, Rev: true, Count: int64(most)}).Result()
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, text := range found {
		parts := strings.SplitN(text[len(list)+1:], " ", 2) //nolint:mnd // began, record
		at, _ := strconv.ParseInt(parts[0], 10, 64)
		entries = append(entries, entry{at: at, id: parts[1]})
	}
	return entries, nil
}

// texts returns the stored texts of entries, nil for records that were removed meanwhile.
func (l *Log) texts(ctx context.Context, entries []entry) ([]any, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.id
	}
	return l.redis.HMGet(ctx, l.book.keys[1], ids...).Result()
}

// Fields of the head of a record's text: see lua/record_operation.lua.
const (
	headFields  = 10
	fieldSeal   = 5
	fieldTimes  = 7
	fieldNewest = 8
	fieldCount  = 9
)

// read reads a record, which began at a time; there is none where it was removed for the sake of newer ones.
func read(stored any, began int64) (r Record, isThere bool) {
	text, _ := stored.(string)
	head, said, isThere := strings.Cut(text, "\n")
	if !isThere || json.Unmarshal([]byte(said), &r) != nil {
		return r, false
	}
	fields := strings.Fields(head)
	if len(fields) < headFields { // a newer program may have added to it
		return r, false
	}
	r.Count, _ = strconv.ParseInt(fields[fieldCount], 10, 64)
	if r.Count > 0 && (r.Outcome == Nothing || r.Outcome == Refused) { // the last part changed nothing, and earlier parts did
		r.Outcome = Done
	}
	newest, _ := strconv.ParseInt(fields[fieldNewest], 10, 64)
	last := time.UnixMicro(newest).UTC()
	r.At = time.UnixMicro(began).UTC()
	if r.Times, _ = strconv.ParseInt(fields[fieldTimes], 10, 64); r.Times <= 1 {
		r.Times = 0
	}
	if r.Times > 1 || fields[fieldSeal] != "-" && last.Sub(r.At) >= time.Minute {
		r.Last = last
	}
	return r, true
}
