package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// A bucket joins a pool, leaves one, or moves to another: it gets other keys. The steps are in lua/relocate.lua. Each may be repeated, and a process
// that finds a change under way completes it. One write decides it (assign): before that write the bucket lives at the old place, after it at the new
// one. carry.go moves all data of a bucket; if that is impossible, an empty bucket moves with its settings, pace and counts (copy_settings.go).

const (
	poolChangeTries = 8   // of a change that other processes also make, or interfere with
	copiedAtOnce    = 200 // pairs of a hash or elements of a list in one script
	schedulesCopied = 8   // pairs of the hash of schedules, whose definitions have up to 96 KiB
	carriedAtOnce   = 200 // keys that one script renames, in 1 to 2 ms: all of ofBucket, which belong together

	carryIdle = 100 * time.Millisecond // a process that renames no key for this long while it carries a bucket has died or stalls
	carryPoll = 10 * time.Millisecond
)

// changePool begins the move of a bucket from p to the place of its configuration, and completes it. If running deliveries prevent the move, the
// bucket sends nothing for 3 s, and the error is an [shaper.ErrMoves]: the caller tries again within that time.
func (s *Store) changePool(ctx context.Context, b *shaper.Bucket, p place) error {
	next := p.number() + 1
	if there, err := s.arrive(ctx, b, p, tagOf(b), "check", next); there || err != nil {
		return err
	}
	together, err := s.together(ctx, b, p.tag, tagOf(b))
	if err != nil {
		return err
	}
	old, more := TaggedKeys(p.tag, b.KeyName()), []string(nil)
	if together {
		more = []string{old.Pace()}
	}
	r, err := s.relocate(ctx, b, p.tag, old, more, "leave", next, tagOf(b), schemaVersion, b.Revision)
	if err != nil {
		return err
	}
	return s.complete(ctx, b, p, r.Text(), next)
}

// complete moves a bucket that has left p to its new place.
func (s *Store) complete(ctx context.Context, b *shaper.Bucket, p place, tag string, generation int64) error {
	if there, err := s.arrive(ctx, b, p, tag, "begin", generation); there || err != nil {
		return err
	}
	together, err := s.together(ctx, b, p.tag, tag)
	switch {
	case err != nil:
		return err
	case together:
		err = s.carry(ctx, b, p.tag, tag, generation)
	default:
		err = s.copySettings(ctx, b, p.tag, tag, generation)
	}
	if err != nil {
		return err
	}
	if err := s.decide(ctx, b, p, newPlace(tag, generation, p.tag)); err != nil {
		return err
	}
	if !s.Quiet {
		s.Log.InfoContext(ctx, "the bucket has moved", "bucket", b.Name, "from", poolText(p.tag, b.KeyName()), "to", poolText(tag, b.KeyName()))
	}
	return nil
}

// decide writes where the bucket lives. No other write does.
func (s *Store) decide(ctx context.Context, b *shaper.Bucket, old, now place) error {
	written, err := s.assign(ctx, b.KeyName(), old, now)
	if err == nil && !written {
		err = errOvertaken
	}
	if err != nil {
		return fmt.Errorf("bucket %q: write its place: %w", b.Name, err)
	}
	return nil
}

// arrive checks the target place of a bucket, or clears it. If the bucket lives there already, a failover has lost the write of the index: arrive
// repeats that.
func (s *Store) arrive(ctx context.Context, b *shaper.Bucket, p place, tag, step string, generation int64) (there bool, err error) {
	k := TaggedKeys(tag, b.KeyName())
	r, err := s.relocate(ctx, b, p.tag, k, k.ofBucket(time.Now()), step, generation)
	if errors.Is(err, errLivesThere) {
		return true, s.decide(ctx, b, p, newPlace(tag, r.Int(), p.tag))
	}
	return false, err
}

// removeLeft removes the keys of the place that a bucket has left, and removes the bucket from that pool.
func (s *Store) removeLeft(ctx context.Context, b *shaper.Bucket, p place) error {
	k := TaggedKeys(p.left(), b.KeyName())
	remove := func(names []string) error {
		_, err := s.relocate(ctx, b, p.tag, k, names, "clear", p.number())
		return err
	}
	err := s.eachGroup(ctx, k, func(groups []string) error {
		for i, group := range groups {
			groups[i] = k.DueOfGroup(group)
		}
		return remove(groups)
	})
	if err == nil {
		err = remove(append(k.OfEmpty(), k.Uses(time.Now())...))
	}
	if err == nil && k.Pool != "" {
		err = s.Redis.HDel(ctx, poolBuckets(k.Pool), k.Name).Err()
	}
	if err != nil && !errors.Is(err, errOvertaken) { // then the keys are in use again
		return fmt.Errorf("bucket %q: remove its old keys: %w", b.Name, err)
	}
	return s.decide(ctx, b, p, newPlace(p.tag, p.number(), ""))
}

// catchUp completes a change for which configure.lua found that the index is behind. Either the bucket has moved, and the process that moved it
// stopped then, or a failover has lost a write of the index.
func (s *Store) catchUp(ctx context.Context, b *shaper.Bucket, p place, lowest int64, leftFor string) error {
	switch {
	case p.left() != "":
		return s.removeLeft(ctx, b, p)
	case leftFor != "" && s.Role == ReadOnly && s.awaitCarried(ctx, b, leftFor):
		return errOvertaken
	case leftFor != "":
		return s.complete(ctx, b, p, leftFor, lowest)
	}
	return s.decide(ctx, b, p, newPlace(p.tag, lowest, ""))
}
