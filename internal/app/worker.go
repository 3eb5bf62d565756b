package app

import (
	"errors"
	"sync"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/httpworker"
	"github.com/tundish-io/tundish/workers/webhook"
)

// applied is a configuration with its buckets by their names, and the settings of their workers. It is made once for a configuration, because
// each job is checked by it.
type applied struct {
	*config.Config

	buckets map[string]*appliedBucket
}

type appliedBucket struct {
	config.Bucket

	worker checker // the settings of its worker
}

func newApplied(cfg *config.Config) *applied {
	a := &applied{cfg, make(map[string]*appliedBucket, len(cfg.Buckets))}
	for _, b := range cfg.Buckets {
		a.buckets[b.Name] = &appliedBucket{b, settingsOf(cfg, b)}
	}
	return a
}

// CheckFlow returns a check of a flow's own delivery settings, by the worker of the flow's bucket. Settings for a bucket outside of the configuration
// are checked as a webhook's.
func CheckFlow(cfg *config.Config) func(bucket string, own *shaper.OwnDelivery) error {
	a := sync.OnceValue(func() *applied { return newApplied(cfg) })
	return func(bucket string, own *shaper.OwnDelivery) error { return a().checkFlow(bucket, own) }
}

func (a *applied) checkFlow(bucket string, own *shaper.OwnDelivery) error {
	if b := a.buckets[bucket]; b != nil {
		return b.worker.CheckFlow(own)
	}
	return webhook.DefaultConfig().CheckFlow(own)
}

// CheckJob returns a check of a job by the worker of its bucket.
func CheckJob(cfg *config.Config) func(bucket string, job *shaper.Job) error {
	a := sync.OnceValue(func() *applied { return newApplied(cfg) })
	return func(bucket string, job *shaper.Job) error { return a().checkJob(bucket, job) }
}

// checkJob accepts any job of a bucket outside of the configuration.
func (a *applied) checkJob(bucket string, job *shaper.Job) error {
	if b := a.buckets[bucket]; b != nil {
		return b.worker.CheckJob(job)
	}
	return nil
}

// CheckCallbacks returns a check of the URLs that a job or a bundle names for callbacks, by the worker that delivers these.
func CheckCallbacks(cfg *config.Config) func(bucket string, job *shaper.Job) error {
	a := sync.OnceValue(func() *applied { return newApplied(cfg) })
	return func(bucket string, job *shaper.Job) error { return a().checkCallbacks(bucket, job) }
}

// checkCallbacks accepts any URL for buckets outside of the configuration.
func (a *applied) checkCallbacks(bucket string, job *shaper.Job) error {
	b := a.buckets[bucket]
	if b == nil || a.buckets[b.Callbacks.Bucket] == nil {
		return nil
	}
	var errs []error
	for _, given := range []struct{ field, url string }{{"callback_url", job.CallbackURL}, {"failure_url", job.FailureURL}} {
		if given.url == "" {
			continue
		}
		err := a.buckets[b.Callbacks.Bucket].worker.CheckJob(&shaper.Job{URL: given.url, Payload: []byte("{}")})
		if fault, ok := errors.AsType[*shaper.FieldError](err); ok {
			err = &shaper.FieldError{Field: given.field, Reason: fault.Reason}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// checker is the set of checks that the settings of any worker have.
type checker interface {
	CheckJob(job *shaper.Job) error
	CheckFlow(own *shaper.OwnDelivery) error
}

// anyJob stands for the worker in a user's program, which is not known here: it accepts any job.
type anyJob struct{}

func (anyJob) CheckJob(*shaper.Job) error          { return nil }
func (anyJob) CheckFlow(*shaper.OwnDelivery) error { return nil }

// settingsOf are the settings of a bucket's worker.
func settingsOf(cfg *config.Config, b config.Bucket) checker {
	switch {
	case b.ByProgram():
		return anyJob{}
	case b.Asynq != nil:
		return asynqConfig(cfg, b)
	case b.HTTP != nil:
		return httpConfig(cfg, b)
	case b.LLM != nil:
		return llmConfig(cfg, b)
	default:
		return webhookConfig(cfg, b)
	}
}

func webhookConfig(cfg *config.Config, b config.Bucket) webhook.Config {
	worker := b.Webhook.Worker(min(cfg.Dispatcher.Workers(), int(b.EffectiveMaxInFlight())))
	worker.Policy, worker.Batch = b.Policy(), b.BatchFormat
	return worker
}

func httpConfig(cfg *config.Config, b config.Bucket) httpworker.Config {
	worker := b.HTTP.Worker(min(cfg.Dispatcher.Workers(), int(b.EffectiveMaxInFlight())))
	worker.Policy, worker.Batch = b.Policy(), b.BatchFormat
	return worker
}
