package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
)

// schemaVersion is the version of the data in Redis. The store does not touch a bucket with a newer one.
const schemaVersion = 1

// newerSchema is the error for a bucket or a pool (kind) whose data a newer program has written.
func newerSchema(kind, name string, schema int64) error {
	return fmt.Errorf("%s %q: its data has schema %d, this program knows %d: use a newer program", kind, name, schema, schemaVersion)
}

// ErrNotConfigured is the reply of scripts for a bucket without conf: it is new, or Redis was flushed.
var ErrNotConfigured = errors.New("shaper: the bucket is not configured in Redis")

// Store runs scripts with a deadline. It writes a bucket's conf to Redis before its first script runs.
type Store struct {
	Redis   redis.UniversalClient
	Timeout time.Duration
	Log     *slog.Logger
	Metrics *metrics.Metrics
	Role    Role
	By      string                      // names this process where settings are written
	Quiet   bool                        // another store of this process logs and records where settings differ
	UsesAll bool                        // set by an operator, which acts on any bucket that Redis knows
	OnLost  func(context.Context, Loss) // is called when Redis has lost settings; nil: nothing is
	sharing *sharing                    // nil: each call has a round trip of its own
	*known
}

// known is the state that a store shares with its copies.
type known struct {
	closed atomic.Bool // by its client: no call goes to Redis any more

	changing sync.Mutex                // held during a change of the set
	set      atomic.Pointer[bucketSet] // replaced by a reload

	starts  poolStarts
	watches watches
}

// bucketSet is the buckets of a configuration. It does not change.
type bucketSet struct {
	byName  map[string]*Bucket
	order   []*Bucket         // of the configuration
	renamed map[string]string // the names of buckets by their first names
}

// Bucket is a bucket as this process sees it. A bucket that changes its pool, or is removed from the configuration and added again, becomes another
// Bucket.
type Bucket struct {
	Name string
	Keys Keys

	own         atomic.Pointer[shaper.Bucket] // the configuration, replaced by a reload
	Settings    atomic.Pointer[shaper.Bucket] // the settings that this process obeys: in a read-only process the effective ones, as far as it knows them
	started     atomic.Int64                  // of the last write since a start or a reload, see lua/configure.lua; 0 none
	warned      atomic.Pointer[string]        // differences that were logged
	dissent     atomic.Pointer[string]        // the same differences, as operators see them
	noted       atomic.Bool                   // the differences were recorded
	settlesOnly bool                          // this process has no configuration of the bucket, and writes none
	turn        chan struct{}                 // held by the goroutine that writes the conf
	Configured  atomic.Bool
	joined      atomic.Bool // it is, or was, in the pool of its configuration: see join
	planned     atomic.Bool // the effective settings have a plan, as last seen by Watch

	budgets atomic.Pointer[seenBudgets] // the effective budgets, as last seen by Watch; nil: not seen yet
}

// SettleOnly returns a bucket for a process without its configuration. Outcomes are settled by settings.
func SettleOnly(settings *shaper.Bucket, keys Keys) *Bucket {
	b := &Bucket{Name: settings.Name, Keys: keys, settlesOnly: true}
	b.own.Store(settings)
	b.Settings.Store(settings)
	return b
}

// Own returns the settings of the configuration.
func (b *Bucket) Own() *shaper.Bucket { return b.own.Load() }

// HasPlan reports whether the bucket has windows or a calendar, by its configuration or by the effective settings.
func (b *Bucket) HasPlan() bool { return b.planned.Load() || !b.own.Load().Plan().IsZero() }

// SettlesOnly reports whether this process has no configuration of the bucket.
func (b *Bucket) SettlesOnly() bool { return b.settlesOnly }

// All returns the buckets in the order of the configuration.
func (s *Store) All() []*Bucket { return s.set.Load().order }

// Names returns the names of the buckets in the order of the configuration.
func (s *Store) Names() []string {
	all := s.All()
	names := make([]string, len(all))
	for i, b := range all {
		names[i] = b.Name
	}
	return names
}

// Known returns a bucket of the configuration, or nil.
func (s *Store) Known(name string) *Bucket { return s.set.Load().byName[name] }

// CurrentName returns the name of the bucket that was renamed from the given one, as the configuration says, else the given name.
func (s *Store) CurrentName(name string) string {
	set := s.set.Load()
	if now := set.renamed[name]; now != "" && set.byName[name] == nil {
		return now
	}
	return name
}

// KeyName returns the name that scripts publish of a bucket: its first name, as far as this process knows.
func (s *Store) KeyName(bucket string) string {
	if b := s.Known(s.CurrentName(bucket)); b != nil {
		return b.Keys.Name
	}
	return bucket
}

// Bucket is Known with an error instead of nil, and of a store that was closed. A bucket has its first name, too.
func (s *Store) Bucket(name string) (*Bucket, error) {
	if err := s.IfClosed(); err != nil {
		return nil, err
	}
	if b := s.Known(s.CurrentName(name)); b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("%w %q", shaper.ErrUnknownBucket, name)
}

// Close has every later call fail with ErrClosed.
func (s *Store) Close() { s.closed.Store(true) }

// IfClosed returns ErrClosed, or nil.
func (s *Store) IfClosed() error {
	if s.closed.Load() {
		return shaper.ErrClosed
	}
	return nil
}

// Run runs a script once, within the deadline of ctx or else the store's
// timeout.
func (s *Store) Run(ctx context.Context, script *lua.Script, keys []string, args ...any) (any, error) {
	if err := s.IfClosed(); err != nil {
		return nil, err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	if s.sharing != nil {
		return script.Run(ctx, s.sharing, s.Metrics.ObserveScript, keys, args...)
	}
	return script.Run(ctx, s.Redis, s.Metrics.ObserveScript, keys, args...)
}

// ErrOtherFlows says that the effective configuration has other levels of flows and groups than this process's configuration.
var ErrOtherFlows = errors.New("another configuration is in force, which is not the same about its flows: " +
	"give all processes the same [buckets.flow] and [buckets.group]")
