package app

import (
	"errors"
	"runtime"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/workers/asynq"
)

// asynqWorker is a worker of the kind asynq.
type asynqWorker struct{ *asynq.Worker }

// Close closes nothing: the worker that handed tasks over still follows the tasks that wait in asynq. Its own connections are closed when nothing refers
// to the worker any more.
func (asynqWorker) Close() {}

// asynqSettings are the settings of a worker of the kind asynq.
type asynqSettings struct {
	asynq.Config

	url     string // of a Redis of its own, "" for Tundish's
	options redisconn.Options
}

func asynqConfig(cfg *config.Config, b config.Bucket) asynqSettings {
	return asynqSettings{b.Asynq.Worker(), b.Asynq.RedisURL.Reveal(), redisconn.Options{Timeout: cfg.Redis.Timeout, PoolSize: cfg.Redis.PoolSize}}
}

// worker makes the worker. conn is the Redis of Tundish.
func (s asynqSettings) worker(conn redis.UniversalClient) (closer, error) {
	settings := s.Config
	settings.Redis = conn
	if s.url == "" {
		w, err := asynq.New(settings)
		return asynqWorker{w}, err
	}
	own, err := redisconn.Connect(s.url, s.options)
	if err != nil {
		return nil, err
	}
	settings.Redis = own
	w, err := asynq.New(settings)
	if err != nil {
		return nil, errors.Join(err, own.Close())
	}
	runtime.AddCleanup(w, func(own redis.UniversalClient) { _ = own.Close() }, own) // nothing is under way any more
	return asynqWorker{w}, nil
}
