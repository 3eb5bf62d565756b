package redisconn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// ErrBreakerOpen is the error of [Breaker.Run] while the breaker is open: Redis was not
// called. [Unavailable] is true for it.
var ErrBreakerOpen = errors.New("redisconn: Redis is unavailable: its last calls failed, and the circuit breaker tries it again within a second: retry")

// Defaults of a [Breaker].
const (
	DefaultBreakerFailures = 5
	DefaultBreakerPause    = time.Second
)

// BreakerConfig configures a [Breaker]. The zero value is ready to use.
type BreakerConfig struct {
	Failures int                // in a row that open it; 0 means DefaultBreakerFailures
	Pause    time.Duration      // until one call may probe; 0 means DefaultBreakerPause
	Logger   *slog.Logger       // logs each change of state; nil logs nothing
	OnChange func(BreakerState) // is called at each change of state, under a lock of the breaker; may be nil
}

// BreakerState is the state of a [Breaker].
type BreakerState int

// The states of a [Breaker].
const (
	BreakerClosed   BreakerState = iota // calls go to Redis
	BreakerHalfOpen                     // one call probes Redis, the others fail at once
	BreakerOpen                         // calls fail at once
)

// Breaker keeps callers from waiting for a Redis that does not respond. A new breaker is closed: calls go to Redis. After some failures in a row it
// opens: calls fail at once, in less than a microsecond. After a pause one call goes through as a probe, and the breaker closes if the probe works.
// All callers of one Redis share one Breaker.
//
// A nil *Breaker lets every call through. A Breaker is safe for concurrent use.
type Breaker struct {
	cfg     BreakerConfig
	circuit *gobreaker.CircuitBreaker[struct{}]
	shaky   atomic.Bool
	last    atomic.Pointer[error] // the error response of the last call that failed, nil if it got none
	opened  time.Time             // written where the state changes, which the library does one at a time
}

// NewBreaker returns a closed breaker.
func NewBreaker(cfg BreakerConfig) *Breaker {
	if cfg.Failures <= 0 {
		cfg.Failures = DefaultBreakerFailures
	}
	if cfg.Pause <= 0 {
		cfg.Pause = DefaultBreakerPause
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := &Breaker{cfg: cfg}
	b.circuit = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     cfg.Pause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return int(c.ConsecutiveFailures) >= cfg.Failures },
		// An error of this program's own scripts shows that Redis responds.
		IsSuccessful: func(err error) bool { return !Unavailable(err) },
		// A caller that gave up is no sign that Redis fails.
		IsExcluded: func(err error) bool { return errors.Is(err, context.Canceled) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			b.shaky.Store(to != gobreaker.StateClosed)
			if cfg.OnChange != nil {
				cfg.OnChange(BreakerState(to)) // the library numbers its states in the same way
			}
			switch { // failed probes change nothing
			case from == gobreaker.StateClosed:
				b.opened = time.Now()
				log.Warn("the circuit breaker of Redis is open: its last calls failed", "probe_every", cfg.Pause, "error", b.failure())
			case to == gobreaker.StateClosed:
				log.Info("the circuit breaker of Redis is closed: it answers again", "after", time.Since(b.opened).Round(time.Millisecond))
			default:
				log.Debug("the circuit breaker of Redis changed", "from", from.String(), "to", to.String())
			}
		},
	})
	return b
}

// Run calls f, or returns [ErrBreakerOpen] at once while the breaker is open, or
// half-open with a probe under way. That error wraps the error response of Redis by which the last call failed, so [FailureOf]
// still names the failure. It returns the error of f as it is. An
// error counts as a failure if it is [Unavailable]. [context.Canceled] does not count at
// all. The caller's own deadline must not reach f if it is shorter than Redis may need.
func (b *Breaker) Run(f func() error) error {
	if b == nil {
		return f()
	}
	_, err := b.circuit.Execute(func() (struct{}, error) {
		err := f()
		b.note(err)
		return struct{}{}, err
	})
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return b.failure()
	}
	return err
}

// failure returns the error response by which the last call failed, or [ErrBreakerOpen].
func (b *Breaker) failure() error {
	if last := b.last.Load(); last != nil {
		return *last
	}
	return ErrBreakerOpen
}

// note keeps the error with which an open breaker fails calls.
func (b *Breaker) note(err error) {
	var answer redis.Error
	switch {
	case !Unavailable(err):
	case errors.As(err, &answer):
		err = fmt.Errorf("%w: the last call failed by: %w", ErrBreakerOpen, answer)
		b.last.Store(&err)
	default:
		b.last.Store(nil)
	}
}

// Shaky reports whether the breaker is open or half-open.
func (b *Breaker) Shaky() bool { return b != nil && b.shaky.Load() }

// Apart returns a closed breaker with the same settings but OnChange, for a part of
// Redis that may be unavailable by itself, such as a node of a cluster. Its log
// lines have attrs.
func (b *Breaker) Apart(attrs ...any) *Breaker {
	if b == nil {
		return nil
	}
	cfg := b.cfg
	cfg.OnChange = nil
	if cfg.Logger != nil {
		cfg.Logger = cfg.Logger.With(attrs...)
	}
	return NewBreaker(cfg)
}
