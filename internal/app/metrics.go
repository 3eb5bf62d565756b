package app

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/workers/llm"
)

// RegisterMetrics registers each metric of both programs with reg, as newDaemon and its dispatcher do. The reference of metrics is made from it
// (scripts/operations). It does not talk to Redis, and nothing counts. A test compares a running program with that reference.
func RegisterMetrics(reg prometheus.Registerer) error {
	ctx, log, nowhere := context.Background(), slog.New(slog.DiscardHandler), redis.NewClient(&redis.Options{})
	o, err := operator.New(operator.Config{Redis: nowhere, Logger: log, Registerer: reg})
	if err != nil {
		return err
	}
	if err := reg.Register(operator.NewCollector(ctx, o)); err != nil {
		return err
	}
	admission.NewMetrics(reg, nil)
	if err := reg.Register(admission.NewKeyCollector(ctx, nowhere, nil)); err != nil {
		return err
	}
	if _, err := llm.NewMetrics(reg); err != nil {
		return err
	}
	newReloader(nil, nil, log, reg)
	newRefusedKeys(reg)
	return nil
}
