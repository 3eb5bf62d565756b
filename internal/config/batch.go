package config

import (
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/webhook"
)

// batch checks the settings that batches require of the bucket at p.
func (l *loader) batch(p place, b Bucket) {
	if !l.set(p.key("batch")) {
		return
	}
	here := p.key("batch")
	if b.Batch.MaxSize == 0 { // for the bucket this means no batches
		l.fail(here.key("max_size"), "0", "want 1 to %d, or leave out [buckets.batch] to send jobs one by one", shaper.MaxBatchSize)
	}
	l.failAll(p, b.BatchFormat.Validate())
	switch {
	case b.Worker == workerAsynq:
		l.fail(here, "", "is for the workers %s and %s: a task of asynq is one job", workerWebhook, workerHTTP)
	case b.Worker == workerLLM:
		l.fail(here, "", "is for the workers %s and %s: an answer of a model is for one job", workerWebhook, workerHTTP)
	case b.HTTP != nil && b.HTTP.ServeProxy:
		l.fail(here, "", "cannot be together with http.serve_proxy: a client of the proxy waits for the answer to its own request")
	case b.BatchFormat == workers.BatchNDJSON && b.Webhook.Format != string(webhook.FormatStandard) && b.Worker == workerWebhook:
		l.fail(here.key("format"), literal(b.BatchFormat), "events of CloudEvents have a batch form of their own: leave the format out, or have webhook.format = %s", literal(string(webhook.FormatStandard)))
	}
}
