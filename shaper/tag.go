package shaper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrTagChanged says that a bucket is in another pool, or in none, than the configuration of
// this process says: with the keys that follow from that nobody would find its jobs.
// [Control.Move] brings them there.
var ErrTagChanged = errors.New("shaper: the bucket is not where this configuration has it")

// ErrMoving says that a bucket is on its way into another pool, or out of one, and does
// nothing until it is there: see [Control.Move]. The same call may work later.
var ErrMoving = errors.New("shaper: the bucket is being moved")

// Ids of settled jobs and flows that a bucket without jobs may have to change its tag by
// itself: that takes a moment, in the middle of somebody's call.
const moveAlone = 1000

// recordTag notes a bucket in the index of all buckets. It reads first: a server that
// is out of memory refuses the write, and a bucket that is known must still be drained.
func (s *store) recordTag(ctx context.Context, b *Bucket) error {
	old, known, err := s.tagOf(ctx, b.Name)
	if err == nil && !known {
		var first bool
		if first, err = s.redis.HSetNX(ctx, tagsKey, b.Name, b.tag()).Result(); err == nil && !first { // another one has it elsewhere, maybe
			old, _, err = s.tagOf(ctx, b.Name)
		} else {
			old = b.tag()
		}
	}
	if err != nil || old == b.tag() {
		return err
	}
	return s.leave(ctx, old, b)
}

// tagOf is the tag under which a bucket lives.
func (s *store) tagOf(ctx context.Context, bucket string) (tag string, known bool, err error) {
	tag, err = s.redis.HGet(ctx, tagsKey, bucket).Result()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	return tag, err == nil, err
}

// leave moves a bucket from its old tag, if it holds no jobs there, and no operator has moved it there. A
// process that still has the old configuration finds the mark of the move, and is refused; but where
// nobody has asked for that move, it may bring the bucket back in the same way.
func (s *store) leave(ctx context.Context, tag string, b *Bucket) error {
	old, err := s.readMark(ctx, taggedKeys(b.tag(), b.Name))
	if err != nil {
		return err
	}
	if old.state == stateFrozen || old.state == stateGone && old.atMost == "" {
		return old.refusal(b.tag(), tag)
	}
	// As elsewhere, who has the higher revision is obeyed.
	text, err := s.redis.HGet(ctx, taggedKeys(tag, b.Name).conf(), "revision").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if revision, _ := strconv.ParseInt(text, 10, 64); revision > b.Revision {
		return fmt.Errorf("%w: it has the tag %q by a configuration of revision %d, and this one, of revision %d, wants %q: restart this process with that one",
			ErrTagChanged, tag, revision, b.Revision, b.tag())
	}
	err = newMover(s, b, "a process whose configuration has it there", strconv.Itoa(moveAlone)).run(ctx)
	if errors.Is(err, errOvertaken) || errors.Is(err, errDiffers) || errors.Is(err, errGivenUp) { // by others, who do the same or the opposite
		err = aloneError{fmt.Errorf("%w by several at the same time: %w", ErrMoving, err)}
	}
	return err
}

// mark is where a move of a bucket is, at one of its tags: see lua/move.lua.
type mark struct {
	state  string
	move   string // its id
	tag    string // the other one
	since  time.Time
	by     string
	atMost string // "" of a move that an operator has asked for
}

// States of a mark.
const (
	stateFrozen   = "frozen"
	stateGone     = "gone"
	stateClearing = "clearing"
	stateReady    = "ready"
	stateArrived  = "arrived"
	stateRefused  = "refused"
)

var markFields = []string{"state", "move", "tag", "since", "by", "at_most"}

func newMark(texts []string) mark {
	since, _ := strconv.ParseInt(texts[3], 10, 64) // 0 without one
	return mark{texts[0], texts[1], texts[2], instantOf(since), texts[4], texts[5]}
}

func (s *store) readMark(ctx context.Context, k keys) (mark, error) {
	values, err := s.redis.HMGet(ctx, k.move(), markFields...).Result()
	if err != nil {
		return mark{}, fmt.Errorf("read the mark of a move: %w", err)
	}
	return markOf(values), nil
}

func markOf(values []any) mark {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i], _ = value.(string)
	}
	return newMark(texts)
}

// aloneError says that a bucket moves by itself, which takes a moment.
type aloneError struct{ error }

func (e aloneError) Unwrap() error { return e.error }

// refusal says why a bucket is not to be used under a tag where it has this mark.
func (m *mark) refusal(tag, lives string) error {
	err := m.reason(tag, lives)
	if m.atMost != "" && errors.Is(err, ErrMoving) {
		return aloneError{err}
	}
	return err
}

func (m *mark) reason(tag, lives string) error {
	since := m.since.UTC().Format(time.RFC3339)
	switch m.state {
	case stateGone:
		return fmt.Errorf("%w: it was moved from the tag %q to %q at %s by %s: this process has a configuration of before, so restart it with the one of now",
			ErrTagChanged, tag, m.tag, since, m.by)
	case stateFrozen:
		if lives != tag {
			return fmt.Errorf("%w: it was moved from the tag %q to %q by %s: this process has a configuration of before, so restart it with the one of now",
				ErrTagChanged, tag, m.tag, m.by)
		}
		return fmt.Errorf("%w from the tag %q to %q since %s by %s", ErrMoving, tag, m.tag, since, m.by)
	default:
		return fmt.Errorf("%w from the tag %q to %q since %s by %s", ErrMoving, m.tag, tag, since, m.by)
	}
}

// onMark says why a bucket cannot be configured that has a mark, or completes the move that
// has been decided: who carried it out may have died before the last steps. Then
// it returns nil, and the bucket can be.
func (s *store) onMark(ctx context.Context, b *Bucket) error {
	k := taggedKeys(b.tag(), b.Name)
	m, err := s.readMark(ctx, k)
	if err != nil {
		return err
	}
	lives, _, err := s.tagOf(ctx, b.Name) // after the mark: only of its move it can say so then
	if err != nil {
		return err
	}
	if m.state == stateReady && lives == b.tag() {
		_, _, _, err := (&mover{store: s, name: b.Name, id: m.move, by: m.by}).step(ctx, k, stepOpen, m.tag)
		return err
	}
	return m.refusal(b.tag(), lives)
}

// allKeysOf are those of buckets that are configured here or, by their tag, known to Redis.
func (s *store) allKeysOf(ctx context.Context, buckets ...string) ([]keys, error) {
	all := make([]keys, len(buckets))
	var unknown []string
	for i, name := range buckets {
		if b, ok := s.buckets[name]; ok {
			all[i] = b.keys
		} else {
			unknown = append(unknown, name)
		}
	}
	live, err := s.liveKeys(ctx, unknown...)
	for i, name := range buckets {
		if k, ok := live[name]; ok {
			all[i] = k
		}
	}
	return all, err
}

// liveKeys are those under which buckets live, whatever the configuration says.
func (s *store) liveKeys(ctx context.Context, buckets ...string) (map[string]keys, error) {
	if len(buckets) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	buckets = slices.Compact(slices.Sorted(slices.Values(buckets)))
	tags, err := s.redis.HMGet(ctx, tagsKey, buckets...).Result()
	if err != nil {
		return nil, fmt.Errorf("look for buckets: %w", err)
	}
	live := make(map[string]keys, len(buckets))
	for i, name := range buckets {
		live[name] = bucketKeys(name)
		if tag, ok := tags[i].(string); ok {
			live[name] = taggedKeys(tag, name)
		}
	}
	return live, nil
}
