package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

// One step of lua/relocate.lua, and the meaning of its replies.

// Replies of relocate.lua.
const (
	relocateOvertook = 1
	relocateHolds    = 2
	relocateRevision = 3
	relocateSchema   = 4
	relocateThere    = 5
	relocateUnderWay = 6
)

// errOvertaken says that another process has changed where the bucket lives. It is an ErrTagChanged.
var errOvertaken error = elsewhereError{"another process changes the pool of the bucket at the same time: try again"}

// errLivesThere says that the bucket lives at its target place already.
var errLivesThere = errors.New("the bucket lives there")

// relocate runs a step of relocate.lua on the keys of one place. from is the current tag of the bucket.
func (s *Store) relocate(ctx context.Context, b *shaper.Bucket, from string, k Keys, more []string, step string, generation int64, args ...any) (*lua.Reader, error) {
	reply, err := s.Run(ctx, lua.Relocate, append(k.Of(lua.Relocate), more...), append([]any{step, generation}, args...)...)
	return readRelocate(b, from, k, step, reply, err)
}

// readRelocate returns an error for every reply except that the step is done.
func readRelocate(b *shaper.Bucket, from string, k Keys, step string, reply any, err error) (*lua.Reader, error) {
	if err != nil {
		return nil, fmt.Errorf("bucket %q: change its pool: %w", b.Name, err)
	}
	r := lua.NewReader(reply)
	switch code := r.Int(); {
	case r.Err() != nil:
		return nil, fmt.Errorf("bucket %q: script relocate: %w", b.Name, r.Err())
	case code == relocateOvertook:
		return nil, fmt.Errorf("bucket %q: %w", b.Name, errOvertaken)
	case code == relocateHolds:
		if step == "check" || step == "begin" {
			return nil, elsewheref("bucket %q %s: %d of its jobs are kept where no dispatcher looks for them: remove the keys %s* or bring the bucket back there",
				b.Name, cannot(b, from), sumOf(r), k.Prefix)
		}
		if held := readHoldings(r); held != "" {
			return nil, elsewheref("bucket %q %s: it holds %s, and in a Redis Cluster a bucket changes its pool while it is empty: let it drain, or point producers at a new bucket %s",
				b.Name, cannot(b, from), held, outside(b))
		}
	case code == relocateRevision:
		return nil, elsewheref("bucket %q %s: a configuration of revision %d is in force, and this process has revision %d: restart it with the current configuration",
			b.Name, cannot(b, from), r.Int(), b.Revision)
	case code == relocateSchema:
		return nil, newerSchema("bucket", b.Name, r.Int())
	case code == relocateUnderWay:
		live, ends := r.Int(), lua.Microseconds(r.Int())
		return nil, fmt.Errorf("bucket %q: %w: %s it, for at most %s unless their leases are extended. It sends nothing until then",
			b.Name, shaper.ErrMoves, countOf(live, "delivery under way keeps", "deliveries under way keep"), shortDuration(ends))
	case code == relocateThere:
		return r, errLivesThere
	}
	return r, r.Err()
}

// cannot describes which change of pool is refused.
func cannot(b *shaper.Bucket, from string) string {
	switch {
	case from == b.KeyName():
		return fmt.Sprintf("cannot join pool %q", tagOf(b))
	case b.Pool == nil:
		return fmt.Sprintf("cannot leave pool %q", from)
	}
	return fmt.Sprintf("cannot go from pool %q to pool %q", from, tagOf(b))
}

func outside(b *shaper.Bucket) string {
	if b.Pool == nil {
		return "outside the pool"
	}
	return "in the pool"
}

func sumOf(r *lua.Reader) int64 { return r.Int() + r.Int() + r.Int() }

// readHoldings describes what a bucket holds, "" if it is empty.
func readHoldings(r *lua.Reader) string {
	var parts []string
	add := func(n int64, one, many string) bool {
		if n > 0 {
			parts = append(parts, countOf(n, one, many))
		}
		return n > 0
	}
	add(r.Int(), "job", "jobs")
	add(r.Int(), "dead letter", "dead letters")
	add(r.Int(), "lease", "leases")
	ids, last := r.Int(), r.Int()
	if add(ids, "remembered id", "remembered ids") {
		parts[len(parts)-1] += fmt.Sprintf(" (the last ends in %s)", shortDuration(lua.Microseconds(last)))
	}
	add(r.Int(), "callback", "callbacks")
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
	return strings.Join(parts, "")
}

// countOf is a number of things in a sentence.
func countOf(n int64, one, many string) string {
	if n == 1 {
		many = one
	}
	return strconv.FormatInt(n, 10) + " " + many
}

// shortDuration is a duration in a sentence: 24h, 90m or 45s, rounded up.
func shortDuration(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}} {
		if d > 2*unit.size {
			return fmt.Sprint(int64((d+unit.size-1)/unit.size), unit.name)
		}
	}
	return fmt.Sprint(int64((d+time.Second-1)/time.Second), "s")
}
