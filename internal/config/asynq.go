package config

import (
	"time"

	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/workers/asynq"
)

// AsynqSettings are the settings of a bucket whose worker is "asynq".
type AsynqSettings struct {
	Queue     string        `setting:"queue"`
	Task      string        `setting:"task"`      // of jobs that name none
	RedisURL  RedisURL      `setting:"redis_url"` // of the asynq servers; "" means redis.url
	Retention time.Duration `setting:"retention"`
	Timeout   time.Duration `setting:"timeout"`
	Settle    string        `setting:"settle"`
}

// Worker returns the settings as the worker has them. The Redis client is still to be set.
func (a AsynqSettings) Worker() asynq.Config {
	return asynq.Config{Queue: a.Queue, Task: a.Task, Retention: a.Retention, Timeout: a.Timeout, Settle: asynq.Settle(a.Settle)}
}

// asynq checks the settings of the worker of the bucket at p.
func (l *loader) asynq(p place, b Bucket) {
	if b.Asynq == nil {
		l.fail(p.key("asynq"), "", "is missing: a bucket with the worker asynq wants a table [buckets.asynq] with a queue")
		return
	}
	here, url := p.key("asynq").key("redis_url"), b.Asynq.RedisURL
	if url.Embedded() {
		l.fail(here, literal(url), "want the URL of a Redis server, or leave it out to have redis.url")
	} else if err := redisconn.CheckURL(url.Reveal()); url != "" && err != nil {
		l.fail(here, literal(url), "%v", err)
	}
	l.failAll(p, b.Asynq.Worker().Validate())
}
