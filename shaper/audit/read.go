package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
)

// ErrCursor says that a cursor is none of [Log.Records].
var ErrCursor = errors.New("the cursor is none: use the next of the answer before")

// entry is a record in a list.
type entry struct {
	at     int64 // when its operation began, microseconds
	id     string
	legacy bool // it is in the keys of the previous version
}

// name is the cursor of the entries before an entry.
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

// Records returns records, the newest first, and the cursor of those before them, "" if there are none. bucket "" is of all and of none. At most limit
// of them, up to 1000. Three round trips.
func (l *Log) Records(ctx context.Context, bucket, cursor string, limit int) (records []Record, next string, err error) {
	after, err := cursorOf(cursor)
	if err != nil {
		return nil, "", err
	}
	if bucket != "" && !admission.ValidName(bucket) {
		return nil, "", nil // there is none
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

// entries returns the entries of a list behind a cursor, and those of the previous version.
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
	if l.book.keys[0] != changes.keys[0] {
		return entries, nil
	}
	legacy, err := l.legacyEntries(ctx, bucket, after, most)
	if err != nil || len(legacy) == 0 {
		return entries, err
	}
	entries = append(entries, legacy...)
	slices.SortFunc(entries, older)
	return entries[:min(len(entries), most)], nil
}

// texts returns what is stored of entries, nil of records that were removed meanwhile.
func (l *Log) texts(ctx context.Context, entries []entry) ([]any, error) {
	all := make([]any, len(entries))
	for _, from := range []struct {
		key    string
		legacy bool
	}{{l.book.keys[1], false}, {legacyRecords, true}} {
		var ids []string
		var places []int
		for i, e := range entries {
			if e.legacy == from.legacy {
				ids, places = append(ids, e.id), append(places, i)
			}
		}
		if len(ids) == 0 {
			continue
		}
		texts, err := l.redis.HMGet(ctx, from.key, ids...).Result()
		if err != nil {
			return nil, err
		}
		for i, text := range texts {
			all[places[i]] = text
		}
	}
	return all, nil
}

// Fields of the head of a record, which ends with its count. The previous version had fewer.
const (
	headFields  = 10
	fieldTimes  = 7
	fieldNewest = 8
)

// read reads a record; there is none where it was removed for the sake of newer ones.
func read(stored any) (r Record, isThere bool) {
	text, _ := stored.(string)
	head, said, isThere := strings.Cut(text, "\n")
	if !isThere || json.Unmarshal([]byte(said), &r) != nil {
		return r, false
	}
	fields := strings.Fields(head)
	r.Count, _ = strconv.ParseInt(fields[len(fields)-1], 10, 64)
	if r.Count > 0 && (r.Outcome == Nothing || r.Outcome == Refused) { // its last part changed nothing, and those before have
		r.Outcome = Done
	}
	if len(fields) != headFields {
		return r, true
	}
	if r.Times, _ = strconv.ParseInt(fields[fieldTimes], 10, 64); r.Times > 1 {
		newest, _ := strconv.ParseInt(fields[fieldNewest], 10, 64)
		r.Last = time.UnixMicro(newest).UTC()
	} else {
		r.Times = 0
	}
	return r, true
}
