package asynq

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// table is the worker's table in the configuration.
const table = "asynq"

// Settle says which process ends the job of a task.
type Settle string

// The ways to end a job.
const (
	SettleHandler  Settle = "handler"  // the handler, by [Middleware]
	SettleHandover Settle = "handover" // the hand-over: the job is done once asynq has the task
)

// Settles lists all ways.
func Settles() []Settle { return []Settle{SettleHandler, SettleHandover} }

// Bounds of a [Config].
const (
	DefaultTimeout = 30 * time.Minute // as asynq has it
	MaxTimeout     = 30 * 24 * time.Hour
)

// Config selects the asynq queue of a bucket's jobs.
type Config struct {
	Queue string // of asynq; required

	// Task is the type name of tasks whose jobs name none in the header [HeaderTask]; "": each job must.
	Task string

	// Timeout is how long a handler may run, in whole seconds. A job may have its own in the header [HeaderTimeout].
	Timeout time.Duration

	// Retention is how long asynq keeps a completed task, in whole seconds; 0: not at all. With SettleHandover it is a minute at least.
	Retention time.Duration

	Settle Settle // "" means SettleHandler

	// Redis is the Redis of the asynq servers. A [Worker] does not close it.
	Redis redis.UniversalClient
}

// DefaultConfig returns the defaults: 30 minutes, no retention, the handler settles.
func DefaultConfig() Config { return Config{Timeout: DefaultTimeout, Settle: SettleHandler} }

// Validate reports every fault of the settings but Redis, joined, or nil. Each begins with the key of the configuration.
func (c Config) Validate() error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s.%s: %s", table, key, fmt.Sprintf(format, args...)))
	}
	if strings.TrimSpace(c.Queue) == "" {
		fail("queue", `is missing: want the name of a queue of the asynq servers, such as "default"`)
	} else if strings.ContainsAny(c.Queue, "{}") {
		fail("queue", "%q: braces would change where a Redis Cluster keeps it: want a name without", c.Queue)
	}
	if c.Timeout < time.Second || c.Timeout > MaxTimeout || c.Timeout%time.Second != 0 {
		fail("timeout", "%s: want whole seconds, 1s to %s", c.Timeout, MaxTimeout)
	}
	if c.Retention < 0 || c.Retention > MaxTimeout || c.Retention%time.Second != 0 {
		fail("retention", "%s: want whole seconds, 0s (none) to %s", c.Retention, MaxTimeout)
	}
	if c.Settle != "" && c.Settle != SettleHandler && c.Settle != SettleHandover {
		fail("settle", "%q: want handler or handover", string(c.Settle))
	}
	return errors.Join(errs...)
}

// byHandler reports whether the handler ends the jobs.
func (c Config) byHandler() bool { return c.Settle != SettleHandover }
