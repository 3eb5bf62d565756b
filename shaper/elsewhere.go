package shaper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tundish-io/tundish/lua"
)

// elsewhere logs that a bucket is not where this process looks for it, and that it is there again,
// once each. It is no outage of Redis, and not of other buckets.
type elsewhere struct{ why string }

// tell reports whether that is what an error says.
func (e *elsewhere) tell(ctx context.Context, log *slog.Logger, err error) bool {
	if !errors.Is(err, ErrMoving) && !errors.Is(err, ErrTagChanged) {
		return false
	}
	if why := err.Error(); e.why != why {
		e.why = why
		log.ErrorContext(ctx, "nothing is claimed until the bucket is where this configuration has it", "error", err)
	}
	return true
}

func (e *elsewhere) back(ctx context.Context, log *slog.Logger) {
	if e.why != "" {
		e.why = ""
		log.InfoContext(ctx, "the bucket is there again")
	}
}

// Moving is a move of a bucket that is under way, or was left where it is.
type Moving struct {
	To    string // its tag then: the name of the pool, or its own
	Since time.Time
	By    string
}

// lookElsewhere looks again at buckets that are not configured where they were looked for: they
// may be frozen there, or live under another tag.
func (c *Client) lookElsewhere(ctx context.Context, infos []BucketInfo) error {
	var names []string
	for i := range infos {
		if !infos[i].Configured {
			names = append(names, infos[i].Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	tags, err := c.store.redis.HMGet(ctx, tagsKey, names...).Result()
	if err != nil {
		return fmt.Errorf("look for buckets: %w", err)
	}
	found := map[string]BucketInfo{}
	for i, name := range names {
		if tag, known := tags[i].(string); known { // others are new
			info, err := c.lookAtTag(ctx, name, taggedKeys(tag, name))
			if err != nil {
				return fmt.Errorf("look at bucket %q: %w", name, err)
			}
			if info.Moving != nil || info.Elsewhere {
				found[name] = info
			}
		}
	}
	for i := range infos {
		if info, ok := found[infos[i].Name]; ok {
			infos[i] = info
		}
	}
	return nil
}

// lookAtTag looks at a bucket where it lives.
func (c *Client) lookAtTag(ctx context.Context, name string, k keys) (BucketInfo, error) {
	at, err := c.store.readMark(ctx, k)
	if err != nil {
		return BucketInfo{}, err
	}
	k.aside = at.state == stateFrozen
	reply, err := c.store.run(ctx, lua.InspectBucket, k.forInspectBucket(), k.member)
	if err != nil {
		return BucketInfo{}, err
	}
	info, err := readBucketInfo(name, k, reply)
	if at.state == stateFrozen {
		info.Moving = &Moving{To: at.tag, Since: at.since, By: at.by}
	}
	if b, ok := c.store.buckets[name]; ok && b.keys.prefix != k.prefix {
		info.Elsewhere = info.Unfinished+info.Scheduled+info.Dead > 0
	}
	return info, err
}
