package app

import (
	"context"
	"errors"
	"fmt"
)

// ErrEmbedded says that there is nothing to serve: the store is in the dispatcher, which serves the API itself.
var ErrEmbedded = errors.New("redis.url is \"embedded\"")

// Produce serves the API that enqueues jobs until ctx ends, and then until requests have ended or the shutdown timeout is over.
func Produce(ctx context.Context, o Options) (err error) {
	src, cfg, log, err := o.open()
	if err != nil {
		return err
	}
	if cfg.Redis.URL.Embedded() {
		return fmt.Errorf("%w: that store lives in `dispatcher run`, which serves the API on %s already; "+
			"start that, or set redis.url (TUNDISH_REDIS_URL) to a real Redis", ErrEmbedded, cfg.Producer.Listen)
	}
	d, err := newDaemon(ctx, cfg, src, log, cfg.Redis.URL.Reveal(), true, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	answers, err := d.greet(ctx)
	if err != nil {
		return err
	}
	api, addr, err := d.producerStage(ctx)
	if err != nil {
		return err
	}
	member, err := d.memberStage(o.Version)
	if err != nil {
		return err
	}
	exchange := d.exchange()
	exchange.to, exchange.metrics = d.client, d.models
	where := []any{"api", "http://" + addr, "buckets", fewOf(rates(cfg)), "redis", cfg.Redis.URL, "version", o.Version}
	if answers {
		log.InfoContext(ctx, "producer takes jobs in", where...)
	} else {
		log.InfoContext(ctx, "producer has started: it takes jobs in as soon as redis answers", where...)
	}
	err = runStages(ctx, d.reloadStage(), d.notify.run, d.watchStage, d.examineStage(answers), exchange.run, api, member)
	log.InfoContext(ctx, "stopped", d.totals()[:2]...)
	return err
}
