package admission

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// ErrStoreAway says that Redis was not asked, because it failed to answer a
// moment ago ([Breaker]). [Unavailable] is true for it.
var ErrStoreAway = errors.New("admission: Redis is away: it did not answer the last questions, and is asked again within a second")

// Defaults of a [Breaker].
const (
	DefaultBreakerFailures = 5
	DefaultBreakerPause    = time.Second
)

// BreakerConfig is what a [Breaker] needs. The zero value is ready to use.
type BreakerConfig struct {
	Failures int           // in a row that open it; 0 means DefaultBreakerFailures
	Pause    time.Duration // until one call may probe; 0 means DefaultBreakerPause
	Logger   *slog.Logger  // told of changes; nil logs nothing
	Metrics  *Metrics      // nil counts nothing
}

// Breaker keeps callers from waiting for a Redis that does not answer. It is
// closed at first and lets calls through. After some failures in a row it
// opens: calls fail at once, in less than a microsecond. A pause later it lets
// one call through as a probe, and closes if that works. One Breaker is for
// all that talk to the same Redis.
//
// A nil *Breaker lets everything through. It is safe for concurrent use.
type Breaker struct {
	cfg     BreakerConfig
	circuit *gobreaker.CircuitBreaker[struct{}]
	shaky   atomic.Bool
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
		// What Redis answers, be it an error, shows that it is there.
		IsSuccessful: func(err error) bool { return !Unavailable(err) },
		// A caller that gave up says nothing of Redis.
		IsExcluded: func(err error) bool { return errors.Is(err, context.Canceled) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			b.shaky.Store(to != gobreaker.StateClosed)
			cfg.Metrics.setBreaker(to)
			tell := log.Info
			if to == gobreaker.StateOpen {
				tell = log.Warn
			}
			tell("the circuit breaker of Redis changed", "from", from.String(), "to", to.String())
		},
	})
	return b
}

// Run calls f, or returns [ErrStoreAway] at once while the breaker is open, or
// half-open with a probe under way. It returns the error of f as it is. An
// error counts as a failure if it is [Unavailable]; one that is
// [context.Canceled] does not count at all. A deadline of the caller's own,
// shorter than Redis may need, should not reach f.
func (b *Breaker) Run(f func() error) error {
	if b == nil {
		return f()
	}
	_, err := b.circuit.Execute(func() (struct{}, error) { return struct{}{}, f() })
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return ErrStoreAway
	}
	return err
}

// Shaky reports whether the breaker is not closed: Redis did not answer, and
// has not been found to be back.
func (b *Breaker) Shaky() bool { return b != nil && b.shaky.Load() }

// Apart returns another breaker with the same settings, for a part of Redis that
// may be away while others are not, as a node of a cluster. It is not counted.
// Its changes are logged with attrs.
func (b *Breaker) Apart(attrs ...any) *Breaker {
	if b == nil {
		return nil
	}
	cfg := b.cfg
	cfg.Metrics = nil
	if cfg.Logger != nil {
		cfg.Logger = cfg.Logger.With(attrs...)
	}
	return NewBreaker(cfg)
}
