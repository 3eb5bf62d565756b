package app

import (
	"slices"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/httpworker"
	"github.com/tundish-io/tundish/workers/webhook"
)

// CheckFlow returns a check of a flow's own settings for deliveries, by the worker of the flow's bucket. Those of a
// bucket that the configuration does not have are checked as those of a webhook.
func CheckFlow(cfg *config.Config) func(bucket string, own *shaper.OwnDelivery) error {
	return func(bucket string, own *shaper.OwnDelivery) error {
		worker, ok := workerOf(cfg, bucket)
		if !ok {
			worker = webhook.DefaultConfig()
		}
		return worker.CheckFlow(own)
	}
}

// checker is what the settings of any worker check before something is sent.
type checker interface {
	CheckJob(job *shaper.Job) error
	CheckFlow(own *shaper.OwnDelivery) error
}

// workerOf returns the settings of a bucket's worker, and whether the bucket is configured.
func workerOf(cfg *config.Config, bucket string) (worker checker, ok bool) {
	i := slices.IndexFunc(cfg.Buckets, func(b config.Bucket) bool { return b.Name == bucket })
	switch {
	case i < 0:
		return nil, false
	case cfg.Buckets[i].Asynq != nil:
		return asynqConfig(cfg, cfg.Buckets[i]), true
	case cfg.Buckets[i].HTTP != nil:
		return httpConfig(cfg, cfg.Buckets[i]), true
	case cfg.Buckets[i].LLM != nil:
		return llmConfig(cfg, cfg.Buckets[i]), true
	default:
		return webhookConfig(cfg, cfg.Buckets[i]), true
	}
}

func webhookConfig(cfg *config.Config, b config.Bucket) webhook.Config {
	worker := b.Webhook.Worker(min(cfg.Dispatcher.Workers(), int(b.EffectiveMaxInFlight())))
	worker.Policy, worker.Batch = workers.Policy{Statuses: b.Statuses, Hold: b.Adapt.Hold}, b.BatchFormat
	return worker
}

func httpConfig(cfg *config.Config, b config.Bucket) httpworker.Config {
	worker := b.HTTP.Worker(min(cfg.Dispatcher.Workers(), int(b.EffectiveMaxInFlight())))
	worker.Policy, worker.Batch = workers.Policy{Statuses: b.Statuses, Hold: b.Adapt.Hold}, b.BatchFormat
	return worker
}

// CheckJob returns a check of a job by the worker of its bucket.
func CheckJob(cfg *config.Config) func(bucket string, job *shaper.Job) error {
	return func(bucket string, job *shaper.Job) error {
		worker, ok := workerOf(cfg, bucket)
		if !ok {
			return nil
		}
		return worker.CheckJob(job)
	}
}
