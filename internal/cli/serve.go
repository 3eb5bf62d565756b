package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) serveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Serve the HTTP API that takes jobs in",
		Long: `Serve the HTTP API on producer.listen until SIGINT or SIGTERM; a second signal
ends it at once. Any number of producers may share a Redis. While Redis is
unavailable it goes on: /readyz is 503, and jobs are answered 503.

SIGHUP, or a change of the configuration file, applies keys, limits, pools and buckets
that came, went or changed. A bucket that left is answered 404. After a fault the daemon
applies nothing. [redis], [producer], [dispatcher] and [log] need a restart.

With redis.url = "embedded" there is nothing to serve: the embedded store and the
API are both in "dispatcher run".`,
		Example: `  TUNDISH_REDIS_URL=redis://127.0.0.1:6379 producer serve
  producer serve --config /etc/tundish/config.toml`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context()) },
	}
}

func (a *app) serve(ctx context.Context) (err error) {
	src := &source{options: a.options()}
	cfg, err := src.load(true)
	if err != nil {
		return err
	}
	if cfg.Redis.URL.Embedded() {
		return fail(exitUsage, "redis.url is \"embedded\": that store lives in `dispatcher run`, which serves the API on %s already; "+
			"start that, or set redis.url (TUNDISH_REDIS_URL) to a real Redis", cfg.Producer.Listen)
	}
	log := a.logger(cfg)
	d, err := newDaemon(ctx, cfg, src, log, cfg.Redis.URL.Reveal(), true, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.greet(ctx); err != nil {
		return err
	}
	api, addr, err := d.producerStage(ctx)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "producer takes jobs in", "api", "http://"+addr, "buckets", strings.Join(rates(cfg), ", "), "redis", cfg.Redis.URL, "version", version())
	err = runStages(ctx, d.reloadStage(), d.watchStage, api)
	log.InfoContext(ctx, "stopped", d.totals()[:2]...)
	return err
}
