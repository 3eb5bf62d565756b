package dispatcher

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// bucketConn is a bucket with its connection: its keys and settings, the scripts, and the clock of Redis. All parts of the process that work for the
// bucket share it.
type bucketConn struct {
	*store.Bucket
	store      *store.Store
	log        *slog.Logger
	dispatcher string // names this process in Redis, for this bucket
	lease      time.Duration
	life       context.Context //nolint:containedctx // ends when deliveries and settling must
	clock      *clock
	redisNow   func() time.Time // the current time by that clock
	outage     *outage          // shared by all buckets, unless Redis is a cluster
	departures departureQueues
}

func newBucketConn(b *store.Bucket, s *store.Store, lease time.Duration, life context.Context, o *outage) *bucketConn {
	c := &bucketConn{
		Bucket: b, store: s, log: s.Log.With("bucket", b.Name), dispatcher: store.ShortID(rand.Uint64()), //nolint:gosec // a name, not a secret
		lease: lease, life: life, clock: newClock(), outage: o,
	}
	c.redisNow = c.clock.now
	if _, ok := s.Redis.(*redis.ClusterClient); ok { // nodes fail independently
		c.outage = &outage{log: c.log}
	}
	return c
}

// run runs a script on the keys of some flows, and passes its reply to read. The error names the bucket and the script.
func (c *bucketConn) run(ctx context.Context, via *store.Store, script *lua.Script, flows []string, read func(*lua.Reader), args ...any) error {
	reply, err := via.Run(ctx, script, c.Keys.Of(script, flows...), args...)
	if err == nil {
		r := lua.NewReader(reply)
		if read(r); r.Err() != nil {
			err = fmt.Errorf("script %s: %w", script.Name(), r.Err())
		}
	}
	if err != nil {
		return fmt.Errorf("bucket %q: %w", c.Name, err)
	}
	return nil
}

func (c *bucketConn) heartbeatEvery() time.Duration { return c.lease / 3 }

// heartbeatSeen returns the time within which every living dispatcher has extended its leases.
func (c *bucketConn) heartbeatSeen() time.Duration { return c.heartbeatEvery() + time.Second }
