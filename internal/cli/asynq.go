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

// newAsynqWorker makes the worker of a bucket of the kind asynq. conn is the Redis of Tundish.
func newAsynqWorker(cfg *config.Config, b config.Bucket, conn redis.UniversalClient) (closer, error) {
	w, settings := asynqWorker{}, b.Asynq.Worker()
	settings.Redis = conn
	if url := b.Asynq.RedisURL; url != "" {
		own, err := redisconn.Connect(url.Reveal(), redisconn.Options{Timeout: cfg.Redis.Timeout, PoolSize: cfg.Redis.PoolSize})
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
