package app

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/llm"
)

// lessons holds the learned estimates of each bucket: this process's, and those of other processes that it read from Redis. A reload keeps them. The
// zero value is ready.
type lessons struct {
	mu       sync.Mutex
	byBucket map[string]*llm.Learned
}

// learnedOf returns the learned estimates of a bucket.
func (l *lessons) learnedOf(bucket string) *llm.Learned {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byBucket == nil {
		l.byBucket = map[string]*llm.Learned{}
	}
	if l.byBucket[bucket] == nil {
		l.byBucket[bucket] = &llm.Learned{}
	}
	return l.byBucket[bucket]
}

// keep drops the estimates of all other buckets.
func (l *lessons) keep(buckets []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.byBucket, func(bucket string, _ *llm.Learned) bool { return !slices.Contains(buckets, bucket) })
}

// llmBuckets are the buckets with the worker llm.
func llmBuckets(cfg *config.Config) (names []string) {
	for _, b := range cfg.Buckets {
		if b.LLM != nil {
			names = append(names, b.Name)
		}
	}
	return names
}

const (
	exchangeEvery = 10 * time.Second
	lastExchange  = time.Second // a Redis that is silent must not delay the stop
)

// lessonExchange reads the estimates that other processes learned, and stores this process's: at the start, every 10 s, and after the last delivery. It
// asks Redis only for buckets with the worker llm.
type lessonExchange struct {
	known   *lessons
	buckets func() []string // with the worker llm
	from    interface {
		Lessons(ctx context.Context, buckets ...string) (map[string]shaper.Lessons, error)
	}
	to interface {
		Learn(ctx context.Context, lessons map[string]shaper.Lessons) error
	} // nil: the process delivers nothing, so it has no estimates of its own
	metrics *llm.Metrics
	log     *slog.Logger
	failed  bool // the last time
}

func (x *lessonExchange) run(ctx context.Context) error {
	ticks := time.NewTicker(exchangeEvery)
	defer ticks.Stop()
	for {
		x.exchange(ctx)
		select {
		case <-ctx.Done():
			if x.to != nil && !x.failed { // a Redis that is away would only delay the stop
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastExchange)
				defer cancel()
				x.exchange(last)
			}
			return nil
		case <-ticks.C:
		}
	}
}

func (x *lessonExchange) exchange(ctx context.Context) {
	buckets := x.buckets()
	x.metrics.Keep(func(bucket string) bool { return slices.Contains(buckets, bucket) })
	if len(buckets) == 0 {
		return
	}
	stored, err := x.from.Lessons(ctx, buckets...)
	news := map[string]shaper.Lessons{}
	for bucket, lessons := range stored {
		learned := x.known.learnedOf(bucket)
		learned.Adopt(lessons)
		if n := learned.News(); len(n) > 0 && x.to != nil {
			news[bucket] = n
		}
	}
	if len(news) > 0 {
		err = errors.Join(err, x.to.Learn(ctx, news))
	}
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && !x.failed:
		x.log.WarnContext(ctx, "what models have taught is not shared with other processes: this one tries again", "error", err)
	case err == nil && x.failed:
		x.log.InfoContext(ctx, "what models have taught is shared with other processes again")
	}
	x.failed = err != nil
}
