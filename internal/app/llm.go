package app

import (
	"maps"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/llm"
)

func llmConfig(cfg *config.Config, b config.Bucket) llm.Config {
	worker := b.LLM.Worker(min(cfg.Dispatcher.Workers(), int(b.EffectiveMaxInFlight())))
	worker.HTTP.Policy = b.Policy()
	return worker
}

// estimate returns the budget units that a job reserves: those that the job names, and the expected tokens of its request for the others. It estimates
// for buckets with the worker llm. It is called in buckets with budgets.
func (d *daemon) estimate(bucket string, job *shaper.Job) shaper.Units {
	b := d.inForce.Load().buckets[bucket]
	if b == nil {
		return job.Units
	}
	settings, ok := b.worker.(llm.Config)
	if !ok {
		return job.Units
	}
	if _, named := job.Units[shaper.UnitTokens]; named { // input and output would be added to it
		return job.Units
	}
	units, err := llm.Estimate(settings, job.URL, job.Payload, d.learnedEstimates.learnedOf(bucket))
	if err != nil {
		return job.Units // the check of the job reports it
	}
	maps.Copy(units, job.Units)
	return units
}

// llmMetrics returns the metrics of the workers llm, of the dispatcher and of proxy routes.
func (d *daemon) llmMetrics() (m *llm.Metrics, err error) {
	if d.models == nil {
		d.models, err = llm.NewMetrics(d.registry)
	}
	return d.models, err
}
