package config

import (
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/webhook"
)

// batchSettings make several jobs of a bucket one request.
type batchSettings struct {
	MaxSize  int64         `mapstructure:"max_size"`
	MaxBytes size          `mapstructure:"max_bytes"`
	MaxWait  time.Duration `mapstructure:"max_wait"`
	Format   string        `mapstructure:"format"`
}

func defaultBatch() batchSettings {
	return batchSettings{MaxSize: 100, MaxBytes: shaper.MaxBatchBytes, Format: string(workers.BatchArray)}
}

// batch are the settings of batches of a bucket; the zero value has none.
func (s *bucketSettings) batch() shaper.BatchSettings {
	if s.Batch == nil {
		return shaper.BatchSettings{}
	}
	return shaper.BatchSettings{MaxSize: s.Batch.MaxSize, MaxBytes: int64(s.Batch.MaxBytes), MaxWait: s.Batch.MaxWait}
}

// batchFormat is how the requests carry their jobs.
func (s *bucketSettings) batchFormat() workers.BatchFormat {
	if s.Batch == nil {
		return ""
	}
	return workers.BatchFormat(s.Batch.Format)
}

// batch checks what batches need of the rest of the bucket at p.
func (l *loader) batch(p place, b bucketSettings) {
	if b.Batch == nil {
		return
	}
	here := p.key("batch")
	if b.Batch.MaxSize == 0 { // to the bucket it means that there are none
		l.fail(here.key("max_size"), "0", "want 1 to %d, or leave out [buckets.batch] to send jobs one by one", shaper.MaxBatchSize)
	}
	l.failAll(p, b.batchFormat().Validate())
	switch {
	case b.Worker == workerAsynq:
		l.fail(here, "", "is for the workers %s and %s: a task of asynq is one job", workerWebhook, workerHTTP)
	case b.HTTP != nil && b.HTTP.ServeProxy:
		l.fail(here, "", "cannot be together with http.serve_proxy: a client of the proxy waits for the answer to its own request")
	case b.Batch.Format == string(workers.BatchNDJSON) && b.Webhook.Format != string(webhook.FormatStandard) && b.Worker == workerWebhook:
		l.fail(here.key("format"), literal(b.Batch.Format), "events of CloudEvents have a batch form of their own: leave the format out, or have webhook.format = %s", literal(string(webhook.FormatStandard)))
	}
}
