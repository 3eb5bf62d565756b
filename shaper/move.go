package shaper

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// ErrNotPaused says that a bucket has to be paused for what it is asked.
var ErrNotPaused = errors.New("shaper: the bucket is not paused")

const (
	actionMove      = "move"
	actionAbortMove = "abort_move"

	// DefaultMovePatience is how long a move waits for jobs in flight.
	DefaultMovePatience = 2 * time.Minute
)

// MoveOptions say how a bucket is moved. The zero value is ready to use.
type MoveOptions struct {
	Patience time.Duration      // how long to wait for jobs in flight; 0 means DefaultMovePatience
	Progress func(MoveProgress) // told after each round trip; nil is not
}

// MoveStep is what a move does.
type MoveStep string

// The steps of a move.
const (
	MoveWaits   MoveStep = "waits for jobs in flight"
	MoveCopies  MoveStep = "copies"
	MoveRemoves MoveStep = "removes what was copied"
)

// MoveProgress is how far a move is.
type MoveProgress struct {
	Step     MoveStep
	InFlight int64 // while it waits
	Entries  int64 // copied so far: a job has about two, one of its content and one of its place
	Total    int64 // of them, about
}

// Moved is what a move came to.
type Moved struct {
	Bucket   string
	From, To string // tags: the name of the pool, or of the bucket where it is in none
	Jobs     int64  // dead letters too
	Entries  int64  // that were copied
	Already  bool   // there was nothing to do: it is there
}

// MoveError says why a bucket was not moved. If it is Frozen, it does nothing until it is
// moved after all, by [Control.Move] again, or the move is given up, by [Control.AbortMove]; else
// it is as it was.
type MoveError struct {
	Bucket string
	Frozen bool
	Err    error
}

func (e *MoveError) Error() string { return fmt.Sprintf("move bucket %q: %v", e.Bucket, e.Err) }
func (e *MoveError) Unwrap() error { return e.Err }

// Move brings all that a bucket holds to where the configuration of this client has it: into a
// pool, out of one, or into another. It has to be paused, and stays so. Jobs, dead letters and ids of settled jobs,
// the state and the settings of flows and groups, what operators said, quotas and limits: all is as it was.
//
// Meanwhile the bucket is frozen: nothing comes in ([ErrMoving], 503 over HTTP), nothing goes out or is changed. It
// begins when no lease is out, until which it waits, and takes some seconds for a million jobs; everything is
// copied, in round trips of about a millisecond of Redis time, so for a while it takes twice the memory. Then, at once,
// the bucket lives there. Processes with a configuration of before are refused from then on, and say so.
//
// Should it end early ([MoveError]), call it again: it goes on, also in another process, and nothing is lost or doubled. A Redis
// without memory for it is an error and leaves the bucket as it was.
func (c *Control) Move(ctx context.Context, bucket string, options MoveOptions) (Moved, error) {
	b, err := c.store.bucket(bucket)
	if err != nil {
		return Moved{}, fmt.Errorf("%w: only one that is configured is moved, to where the configuration has it", err)
	}
	if err := c.store.fitsMove(ctx, b); err != nil {
		return Moved{}, &MoveError{Bucket: bucket, Err: err}
	}
	m := newMover(c.store, b.settings.Load(), c.by, "")
	m.patient, m.sum = options.Patience, Moved{Bucket: bucket, To: m.to}
	if m.patient == 0 {
		m.patient = DefaultMovePatience
	}
	if options.Progress != nil {
		m.tell = options.Progress
	}
	if err := m.run(ctx); err != nil {
		return m.sum, c.moveFailed(ctx, m, err)
	}
	m.sum.Entries = m.copied.Entries
	// So that it joins its new pool, and obeys what the configuration says of it there.
	b.configured.Store(false)
	if err := c.store.configure(ctx, b); err != nil {
		return m.sum, err
	}
	if !m.sum.Already {
		c.note(ctx, bucket, actionMove, "from", m.sum.From, "to", m.to, "jobs", m.sum.Jobs)
	}
	return m.sum, nil
}

// fitsMove reports what of a configuration keeps a bucket from being used where it is to come: better
// that it is not brought there.
func (s *store) fitsMove(ctx context.Context, b *bucketState) error {
	live, err := s.liveKeys(ctx, b.Name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	k := live[b.Name]
	for _, name := range []string{k.conf(), k.confAside()} {
		values, err := s.redis.HMGet(ctx, name, "revision", "flows").Result()
		if err != nil {
			return fmt.Errorf("read its settings: %w", err)
		}
		if values[0] == nil {
			continue
		}
		text, _ := values[0].(string)
		flows, _ := values[1].(string)
		revision, _ := strconv.ParseInt(text, 10, 64) // 0 without one
		parted, _ := strconv.Atoi(flows)
		switch own := b.settings.Load(); {
		case revision > own.Revision:
			return fmt.Errorf("a configuration of revision %d is in force, and this one is of revision %d: move it with that one", revision, own.Revision)
		case parted < partedNot || parted > partedGroups:
			return errors.New("its data is of a newer program")
		case parted != b.parted():
			return fmt.Errorf("it was used %s, and is configured %s, which it cannot change together with its pool", partedText(parted), partedText(b.parted()))
		}
	}
	return nil
}

// moveFailed says in what state a move has left the bucket. It gives up one for which Redis
// has no memory, as that would stay so.
func (c *Control) moveFailed(ctx context.Context, m *mover, cause error) error {
	failed := &MoveError{Bucket: m.name, Err: cause, Frozen: errors.Is(cause, ErrMoving)}
	if m.sum.From == "" { // it is not frozen, or not by this move
		return failed
	}
	failed.Frozen = true
	if !isFull(cause) {
		return failed
	}
	failed.Err = fmt.Errorf("Redis has no memory for a second copy of what the bucket holds, so all is left as it was: %w", cause) //nolint:staticcheck // a name
	if _, err := c.AbortMove(context.WithoutCancel(ctx), m.name); err != nil {
		failed.Err = errors.Join(cause, err)
		return failed
	}
	failed.Frozen = false
	return failed
}

// AbortMove gives up a move that has not been completed, and lets the bucket be where it was,
// as it was, paused. It reports whether there was one. Once all is copied it is an error: then the move
// can only be completed.
func (c *Control) AbortMove(ctx context.Context, bucket string) (was bool, err error) {
	m := &mover{store: c.store, name: bucket, by: c.by, tell: func(MoveProgress) {}}
	var lives string
	var known bool
	var at mark
	err = m.again(ctx, func(ctx context.Context) (err error) {
		if lives, known, err = c.store.tagOf(ctx, bucket); err == nil {
			at, err = c.store.readMark(ctx, m.keys(lives))
		}
		return err
	})
	switch {
	case err != nil:
		return false, fmt.Errorf("bucket %q: %w", bucket, err)
	case !known:
		return false, fmt.Errorf("%w %q", ErrUnknownBucket, bucket)
	case at.state != stateFrozen:
		return false, nil
	}
	if err := m.giveUp(ctx, lives, &at); err != nil {
		return true, &MoveError{Bucket: bucket, Frozen: true, Err: err}
	}
	c.note(ctx, bucket, actionAbortMove, "tag", lives)
	return true, nil
}
