// Package operator reads buckets, flows, groups, pools, jobs and dead letters, and changes them while programs run. Every process obeys a change from
// its next script on.
package operator

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/audit"
	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Config configures an [Operator].
type Config struct {
	Redis   redis.UniversalClient // made by redisconn.Connect
	Buckets []shaper.Bucket       // of the configuration
	Timeout time.Duration         // of one call; 0 means DefaultTimeout
	Logger  *slog.Logger          // every change is logged; nil logs nothing

	// Registerer is where the metrics go; nil counts nothing. Actors of one process may share it.
	Registerer prometheus.Registerer

	// CheckFlow, if not nil, returns the faults that the bucket's kind of worker finds in an operator's settings for deliveries of a flow. Each fault
	// is a [*shaper.FieldError]; they are joined, and contain no credential. [Flow.Set] calls it. A worker checks again: other processes may
	// write settings without a check.
	CheckFlow func(bucket string, own *shaper.OwnDelivery) error

	// CheckJob, if not nil, returns the faults that the bucket's kind of worker finds in a job, in the same form. [Schedule.Set] calls it for
	// the job of a schedule.
	CheckJob func(bucket string, job *shaper.Job) error
}

// maxBy bounds the name of an author in bytes: a longer one is cut.
const maxBy = 128

// ErrNoAuthor says that a change has no author, so nothing was changed. [Operator.As] names one.
var ErrNoAuthor = errors.New("shaper: a change needs an author: name one by Operator.As")

// Operator reads and changes buckets, flows, groups, pools, jobs, dead letters and schedules, through the handles that its methods return. It works on
// every bucket that Redis knows, also if the configuration does not have it. It is safe for concurrent use.
//
// Reads need no author. A change needs one: make it through the Operator that [Operator.As] returns. Every change is logged with its author, and a
// pause and an override show the author later. Without an author a change returns [ErrNoAuthor].
//
// All processes obey a change at once, because it is in Redis, where every decision is made; a sleeping dispatcher is woken. It survives restarts,
// whatever configurations say, until it is reset. When Redis is down or too slow, a method returns an error after [Config.Timeout] for each of its
// round trips, or at the deadline of ctx. The outcome of a change is unknown then, and the method may be called again.
type Operator struct {
	store     *store.Store
	by        string // the author of changes
	checkFlow func(bucket string, own *shaper.OwnDelivery) error
	checkJob  func(bucket string, job *shaper.Job) error
}

// New checks the buckets and returns an operator without an author. It does not talk to Redis yet.
func New(cfg Config) (*Operator, error) {
	s, err := store.New(store.ReadOnly, cfg.Redis, cfg.Buckets, cfg.Timeout, cfg.Logger, cfg.Registerer)
	if err != nil {
		return nil, err
	}
	s.Quiet, s.UsesAll = true, true
	return &Operator{store: s, checkFlow: cfg.CheckFlow, checkJob: cfg.CheckJob}, nil
}

// As returns an Operator that makes changes in the name of author, a person or a program. It shares everything else with o, and needs no round trip.
// Control characters in author become spaces, and a name of more than 128 bytes is cut.
func (o *Operator) As(author string) *Operator {
	author = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(author, "?"))
	for len(author) > maxBy {
		_, size := utf8.DecodeLastRuneInString(author)
		author = author[:len(author)-size]
	}
	as := *o
	as.by = author
	return &as
}

// hasAuthor returns [ErrNoAuthor] unless o has an author.
func (o *Operator) hasAuthor() error {
	if o.by == "" {
		return ErrNoAuthor
	}
	return nil
}

// Fleet returns a view of the processes of this Redis, and of their counters.
func (o *Operator) Fleet() *fleet.View { return fleet.NewView(o.store.Redis, o.store.Timeout) }

// Audit returns the log of operations and their authors. The methods of this package write none: the API and the command line do, for each operation.
func (o *Operator) Audit() *audit.Log { return audit.NewLog(o.store.Redis, o.store.Timeout) }

// Buckets returns the names of all configured buckets, in the order of the configuration.
func (o *Operator) Buckets() []string { return o.store.Names() }

// Reconfigure replaces the configured buckets, as a producer's Client does.
func (o *Operator) Reconfigure(buckets []shaper.Bucket) error { return o.store.Reconfigure(buckets) }

// Ping checks that Redis responds: in a cluster, that any master does. One round trip.
func (o *Operator) Ping(ctx context.Context) error { return o.store.Ping(ctx) }

// Probe finds out what is wrong with Redis: [redisconn.FailureOf] names it. It pings, and runs a script that writes. Two round trips.
func (o *Operator) Probe(ctx context.Context) error { return o.store.Probe(ctx) }
