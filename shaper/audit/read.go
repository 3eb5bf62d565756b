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

// Records returns up to limit records (at most 1000), the newest first, and the cursor of older ones, "" if there are none. An empty bucket means all
// records, including those without a bucket. It takes two round trips.
func (l *Log) Records(ctx context.Context, bucket, cursor string, limit int) (records []Record, next string, err error) {
	after, err := cursorOf(cursor)
	if err != nil {
		return nil, "", err
	}
	if bucket != "" && !admission.ValidName(bucket) {
		return nil, "", nil // no bucket has such a name
	}
	limit = min(max(limit, 1), maxRecords)
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	entries, err := l.entries(ctx, bucket, after, limit+1)
	if err != nil {
		return nil, "", fmt.Errorf("read the audit: %w", err)
	}
	if len(entries) > limit {
		entries = entries[:limit]
		next = entries[limit-1].name()
	}
	texts, err := l.texts(ctx, entries)
	if err != nil {
		return nil, "", fmt.Errorf("read the audit: %w", err)
	}
	for i, text := range texts {
		if r, isThere := read(text); isThere {
			r.ID, r.At = entries[i].id, time.UnixMicro(entries[i].at).UTC()
			records = append(records, r)
		}
	}
	return records, next, nil
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
	fieldTimes  = 7
	fieldNewest = 8
	fieldCount  = 9
)

// read parses a record. isThere is false if the record was removed in favour of newer ones.
func read(stored any) (r Record, isThere bool) {
	text, _ := stored.(string)
	head, said, isThere := strings.Cut(text, "\n")
	if !isThere || json.Unmarshal([]byte(said), &r) != nil {
		return r, false
	}
	fields := strings.Fields(head)
	if len(fields) != headFields {
		return r, false
	}
	r.Count, _ = strconv.ParseInt(fields[fieldCount], 10, 64)
	if r.Count > 0 && (r.Outcome == Nothing || r.Outcome == Refused) { // the last part changed nothing, and earlier parts did
		r.Outcome = Done
	}
	if r.Times, _ = strconv.ParseInt(fields[fieldTimes], 10, 64); r.Times > 1 {
		newest, _ := strconv.ParseInt(fields[fieldNewest], 10, 64)
		r.Last = time.UnixMicro(newest).UTC()
	} else {
		r.Times = 0
	}
	return r, true
}
