package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
)

// Log writes and reads records. It is safe for concurrent use.
type Log struct {
	redis   redis.UniversalClient
	timeout time.Duration
}

// NewLog returns a log. It makes no round trip. timeout is that of one call; 0 means two seconds.
func NewLog(client redis.UniversalClient, timeout time.Duration) *Log {
	const usual = 2 * time.Second
	return &Log{client, cmp.Or(timeout, usual)}
}

// Begin writes the record of an operation before its first change. One round trip. Without it the operation must not be carried out: when Redis
// is down it returns an error after the timeout at most.
func (l *Log) Begin(ctx context.Context, r *Record) error {
	if r.ID == "" {
		r.ID = uuid.NewString()
	}
	r.Outcome, r.part = Begun, uuid.NewString()
	return l.write(ctx, r, false)
}

// End writes what became of an operation: r has its outcome, and in Count what this request has changed. One round trip. It goes on when ctx ends.
// Where it fails the record stays [Begun].
func (l *Log) End(ctx context.Context, r *Record) error {
	return l.write(context.WithoutCancel(ctx), r, true)
}

func (l *Log) write(ctx context.Context, r *Record, ends bool) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	isEnd, count := 0, int64(0)
	if ends {
		isEnd, count = 1, r.Count
	}
	bucket := r.Object["bucket"]
	if !admission.ValidName(bucket) { // it is none, and would be a key of any length
		bucket = ""
	}
	keys, args := []string{allKey, ownKey + bucket, recordsKey}, []any{r.ID, r.text(), r.part, isEnd, count}
	reply, err := lua.RecordOperation.Numbers(ctx, l.redis, keys, args...)
	if err != nil && ctx.Err() == nil { // the reply may be lost, and a repeated call changes nothing
		reply, err = lua.RecordOperation.Numbers(ctx, l.redis, keys, args...)
	}
	if err != nil {
		return fmt.Errorf("write the record of %s: %w", r.Operation, err)
	}
	r.At = time.UnixMicro(reply[0]).UTC()
	return nil
}

// ErrCursor says that a cursor is none of [Log.Records].
var ErrCursor = errors.New("the cursor is none: use the next of the answer before")

// Records returns records, the newest first, and the cursor of those before them, "" if there are none. bucket "" is of all and of none. At most limit
// of them, up to 1000. Two round trips.
func (l *Log) Records(ctx context.Context, bucket, cursor string, limit int) (records []Record, next string, err error) {
	key := allKey
	if bucket != "" {
		key = ownKey + bucket
	}
	most, last := "+inf", ""
	if cursor != "" {
		var isOne bool
		if most, last, isOne = strings.Cut(cursor, "-"); !isOne {
			return nil, "", ErrCursor
		}
		if _, err := strconv.ParseUint(most, 10, 63); err != nil {
			return nil, "", ErrCursor
		}
	}
	limit = min(max(limit, 1), maxRecords)
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	found, err := l.redis.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: key, Start: most, Stop: "-inf", ByScore: true, Rev: true, Count: int64(limit + together)}).Result()
	if err != nil {
		return nil, "", fmt.Errorf("read the audit: %w", err)
	}
	var ids []string
	var at []int64
	for _, z := range found {
		id, began := fmt.Sprint(z.Member), int64(z.Score)
		if last != "" && strconv.FormatInt(began, 10) == most && id >= last {
			continue // those of this microsecond are in descending order
		}
		if len(ids) == limit {
			next = strconv.FormatInt(at[limit-1], 10) + "-" + ids[limit-1]
			break
		}
		ids, at = append(ids, id), append(at, began)
	}
	if len(ids) == 0 {
		return nil, "", nil
	}
	texts, err := l.redis.HMGet(ctx, recordsKey, ids...).Result()
	if err != nil {
		return nil, "", fmt.Errorf("read the audit: %w", err)
	}
	for i, text := range texts {
		if r, isThere := read(text); isThere {
			r.ID, r.At = ids[i], time.UnixMicro(at[i]).UTC()
			records = append(records, r)
		}
	}
	return records, next, nil
}

// read reads a record; there is none where it was removed for the sake of newer ones.
func read(stored any) (r Record, isThere bool) {
	text, _ := stored.(string)
	head, said, isThere := strings.Cut(text, "\n")
	if !isThere || json.Unmarshal([]byte(said), &r) != nil {
		return r, false
	}
	fields := strings.Fields(head)
	r.Count, _ = strconv.ParseInt(fields[len(fields)-1], 10, 64)
	return r, true
}
