package shaper

import "github.com/redis/go-redis/v9"

// actors are a producer and an operator with the same buckets.
type actors struct {
	*Client
	op   *Operator
	Conn redis.UniversalClient
}

func newActors(cfg ClientConfig) (*actors, error) {
	client, err := NewClient(cfg)
	if err != nil {
		return nil, err
	}
	op, err := NewOperator(OperatorConfig{
		Redis: cfg.Redis, Buckets: cfg.Buckets, Timeout: cfg.Timeout, Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	return &actors{client, op, cfg.Redis}, err
}
