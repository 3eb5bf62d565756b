package audit

import (
	"cmp"
	"context"
	"fmt"
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
	book    book
}

// NewLog returns a log of changes, without a round trip. timeout bounds one call; 0 means two seconds.
func NewLog(client redis.UniversalClient, timeout time.Duration) *Log {
	const usual = 2 * time.Second
	return &Log{client, cmp.Or(timeout, usual), changes}
}

// Logins returns the log of logins, which never remove the record of a change. Equal logins of one hour share a record that counts them.
func (l *Log) Logins() *Log { return &Log{l.redis, l.timeout, logins} }

// Begin writes the record of an operation before its first change, in one round trip. If it fails, do not carry out the operation: when Redis is down
// it returns an error after at most the timeout.
func (l *Log) Begin(ctx context.Context, r *Record) error {
	if r.ID == "" {
		r.ID = uuid.NewString()
	}
	r.Outcome, r.part = Begun, uuid.NewString()
	joined, err := l.write(ctx, r, false)
	if joined {
		r.ID, r.secret, r.joined = r.continues, r.shown, true
	}
	return err
}

// End writes the outcome of an operation: r.Outcome, and in r.Count the changes of this request. It takes one round trip, and continues after ctx
// ends. If it fails, the record stays [Begun]. An operation that changed nothing, and is not part of another one, is only counted: one record per
// hour, author, address, operation, bucket and outcome. r then gets the id of that record, which has the texts of the last such operation.
func (l *Log) End(ctx context.Context, r *Record) error {
	_, err := l.write(context.WithoutCancel(ctx), r, true)
	return err
}

func (l *Log) write(ctx context.Context, r *Record, ends bool) (joined bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	bucket := r.Object["bucket"]
	if r.NoBucket || !admission.ValidName(bucket) {
		bucket = "-"
	}
	isEnd, count, into, rest := 0, int64(0), "", ""
	if ends {
		isEnd, count = 1, r.Count
		into, rest = l.sameAs(r, bucket)
	}
	args := []any{
		r.ID, r.text(), r.part, isEnd, count, r.owner(), bucket, cmp.Or(r.seal, "-"), cmp.Or(r.secret, "-"), r.continues, r.shown, into, rest,
		l.book.changed.share, l.book.changed.most, l.book.nothing.share, l.book.nothing.most,
	}
	reply, err := lua.RecordOperation.Numbers(ctx, l.redis, l.book.keys, args...)
	if err != nil && ctx.Err() == nil { // the reply may be lost, and a repeated call has no further effect
		reply, err = lua.RecordOperation.Numbers(ctx, l.redis, l.book.keys, args...)
	}
	if err != nil {
		return false, fmt.Errorf("write the record of %s: %w", r.Operation, err)
	}
	r.At = time.UnixMicro(reply[0]).UTC()
	if r.ID = cmp.Or(into, r.ID); reply[2] == 1 {
		r.ID = rest
	}
	return reply[1] == 1, nil
}

// sameAs names the record that counts operations like an ended one within its hour, and the record that counts operations of its author and
// outcome for which there are too many such records; "" of an operation that has a record of its own. Other than the bucket, which exists, neither
// the object nor the
// detail distinguishes operations: a client can choose any number of them.
func (l *Log) sameAs(r *Record, bucket string) (same, rest string) {
	nothing := r.Outcome == Nothing || r.Outcome == Refused || r.Outcome == Done && l.book.keys[0] == logins.keys[0]
	if !nothing || r.Count > 0 || r.joined {
		return "", ""
	}
	hour := r.At.Truncate(time.Hour).Unix()
	return digest(r.owner(), r.Author, r.Address, r.Operation, bucket, r.Outcome, hour), digest(r.owner(), "rest", r.Outcome, hour)
}
