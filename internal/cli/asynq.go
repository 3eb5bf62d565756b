package cli

import (
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/workers/asynq"
)

// asynqWorker is a worker of the kind asynq, with its connections if they are its own.
type asynqWorker struct {
	*asynq.Worker

	own redis.UniversalClient // nil: it uses those of Tundish
}

// Close closes the connections to a Redis of its own.
func (w asynqWorker) Close() {
	if w.own != nil {
		_ = w.own.Close() // nothing is under way any more
	}
}

// asynqSettings are those of a worker of the kind asynq.
type asynqSettings struct {
	asynq.Config

	url     string // of a Redis of its own, "" for that of Tundish
	options redisconn.Options
}

func asynqConfig(cfg *config.Config, b config.Bucket) asynqSettings {
	return asynqSettings{b.Asynq.Worker(), b.Asynq.RedisURL.Reveal(), redisconn.Options{Timeout: cfg.Redis.Timeout, PoolSize: cfg.Redis.PoolSize}}
}

// worker makes the worker. conn is the Redis of Tundish.
func (s asynqSettings) worker(conn redis.UniversalClient) (closer, error) {
	w, settings := asynqWorker{}, s.Config
	settings.Redis = conn
	if s.url != "" {
		own, err := redisconn.Connect(s.url, s.options)
		if err != nil {
			return nil, err
		}
		settings.Redis, w.own = own, own
	}
	made, err := asynq.New(settings)
	if err != nil {
		w.Close()
		return nil, err
	}
	w.Worker = made
	return w, nil
}
