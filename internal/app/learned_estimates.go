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

// learnedEstimates holds the learned estimates of each bucket: this process's, and the estimates of other processes that it read from Redis. A
// reload keeps them.
// The zero value is ready.
type learnedEstimates struct {
	mu       sync.Mutex
	byBucket map[string]*llm.LearnedEstimates
}

// learnedOf returns the learned estimates of a bucket.
func (l *learnedEstimates) learnedOf(bucket string) *llm.LearnedEstimates {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byBucket == nil {
		l.byBucket = map[string]*llm.LearnedEstimates{}
	}
	if l.byBucket[bucket] == nil {
		l.byBucket[bucket] = &llm.LearnedEstimates{}
	}
	return l.byBucket[bucket]
}

// keep drops the estimates of all other buckets.
func (l *learnedEstimates) keep(buckets []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.byBucket, func(bucket string, _ *llm.LearnedEstimates) bool { return !slices.Contains(buckets, bucket) })
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

// estimateExchange reads the estimates that other processes learned, and stores this process's: at the start, every 10 s, and after the last delivery. It
// asks Redis only for buckets with the worker llm.
type estimateExchange struct {
	known   *learnedEstimates
	buckets func() []string // with the worker llm
	from    interface {
		LearnedEstimates(ctx context.Context, buckets ...string) (map[string]shaper.LearnedEstimates, error)
	}
	to interface {
		StoreLearnedEstimates(ctx context.Context, learnedEstimates map[string]shaper.LearnedEstimates) error
	} // nil: the process delivers nothing, so it has no estimates of its own
	metrics *llm.Metrics
	log     *slog.Logger
	failed  bool // the last time
}

func (x *estimateExchange) run(ctx context.Context) error {
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

func (x *estimateExchange) exchange(ctx context.Context) {
	buckets := x.buckets()
	x.metrics.Keep(func(bucket string) bool { return slices.Contains(buckets, bucket) })
	if len(buckets) == 0 {
		return
	}
	stored, err := x.from.LearnedEstimates(ctx, buckets...)
	news := map[string]shaper.LearnedEstimates{}
	for bucket, learnedEstimates := range stored {
		learned := x.known.learnedOf(bucket)
		learned.Adopt(learnedEstimates)
		if n := learned.News(); len(n) > 0 && x.to != nil {
			news[bucket] = n
		}
	}
	if len(news) > 0 {
		err = errors.Join(err, x.to.StoreLearnedEstimates(ctx, news))
	}
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && !x.failed:
		x.log.WarnContext(ctx, "the learned estimates are not shared with other processes: this one tries again", "error", err)
	case err == nil && x.failed:
		x.log.InfoContext(ctx, "the learned estimates are shared with other processes again")
	}
	x.failed = err != nil
}
