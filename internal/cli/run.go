package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/embedded"
	"github.com/tundish-io/tundish/internal/httpapi"
)

func (a *app) dispatchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run the daemon that lets jobs out",
		Long: `Run the daemon until SIGINT or SIGTERM: it lets jobs out of their buckets at the
configured rate, and serves metrics and health on dispatcher.listen. Any number of
dispatchers may share a Redis: the rate is that of all together.

With redis.url = "embedded" it is the whole of Tundish in one process: the store,
in memory only, and the API that takes jobs in, on producer.listen.

A stop admits no new jobs, claims nothing more, and gives deliveries
dispatcher.shutdown_timeout to end. A second signal ends the process at once; jobs in
flight are delivered again when their lease ends. While Redis is unavailable the daemon
goes on trying, and /readyz is 503.

SIGHUP, or a change of the configuration file, applies buckets, workers, pools, limits,
hooks and keys that came, went or changed. Deliveries under way end as they began. Of a
bucket that left, nothing more is claimed. After a fault the daemon applies nothing.
[redis], [producer], [dispatcher] and [log] need a restart.`,
		Example: `  dispatcher run
  TUNDISH_REDIS_URL=redis://127.0.0.1:6379 dispatcher run
  curl -s 127.0.0.1:8081/readyz?verbose`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.dispatch(cmd.Context()) },
	}
}

func (a *app) dispatch(ctx context.Context) (err error) {
	src := &source{options: a.options()}
	cfg, err := src.load(true)
	if err != nil {
		return err
	}
	log := a.logger(cfg)
	url := cfg.Redis.URL.Reveal()
	if cfg.Redis.URL.Embedded() {
		store, err := embedded.Start(cfg.Redis.EmbeddedListen)
		if err != nil {
			return err
		}
		defer store.Close()
		url = store.URL()
		a.warnOfMemory(ctx, log, store.Addr())
	}
	d, err := newDaemon(ctx, cfg, src, log, url, cfg.Redis.URL.Embedded(), true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	return d.dispatch(ctx)
}

// warnOfMemory is loud, because jobs are at stake.
func (a *app) warnOfMemory(ctx context.Context, log *slog.Logger, addr string) {
	if isTerminal(a.err) {
		bar := strings.Repeat("!", 72)
		a.note("%s\n!!  EMBEDDED STORE: everything is in memory only.\n!!  ALL JOBS ARE GONE when this process stops.\n"+
			"!!  For jobs that matter set redis.url to a real Redis.\n%s", bar, bar)
	}
	log.WarnContext(ctx, "EMBEDDED STORE: memory only, ALL JOBS ARE GONE when this process stops; for jobs that matter set redis.url to a real Redis",
		"embedded_listen", addr)
}

// dispatch runs the stages of the flow until ctx ends: the API, where the store
// is embedded, the dispatcher, and the operator's listener, in this order.
func (d *daemon) dispatch(ctx context.Context) error {
	dispatcher, err := d.fleet()
	if err != nil {
		return err
	}
	defer dispatcher.close()
	begin := d.greet
	if d.config.Redis.URL.Embedded() {
		begin = d.joinPools
	}
	if err := begin(ctx); err != nil {
		return err
	}

	listener, err := httpapi.Listen(ctx, d.config.Dispatcher.Listen, "dispatcher.listen")
	if err != nil {
		return err
	}
	handler := httpapi.NewOps(httpapi.OpsConfig{
		Buckets: d.operator, Pools: d.config.Pools, Keys: d.config.Keys, Metrics: d.registry, Logger: d.log.With("component", "operator_api"), Sink: wantsSink(d.config),
	})
	d.followKeys(handler)
	// The first to stop: not ready from then on, and yet to be asked till the end.
	announce := func(ctx context.Context) error {
		<-ctx.Done()
		handler.Drain()
		d.log.InfoContext(ctx, "stopping: deliveries may end", "shutdown_timeout", d.config.Dispatcher.ShutdownTimeout)
		return nil
	}
	operate := func(ctx context.Context) error {
		return httpapi.Serve(ctx, listener, handler, opsShutdownTimeout, d.log)
	}

	stages := []stage{announce, dispatcher.Run, operate}
	where := []any{"buckets", strings.Join(rates(d.config), ", "), "operator_api", "http://" + listener.Addr().String()}
	if d.config.Redis.URL.Embedded() {
		api, addr, err := d.producerStage(ctx)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		stages = []stage{announce, api, dispatcher.Run, operate}
		where = append(where, "producer_api", "http://"+addr)
	}
	d.log.InfoContext(ctx, "dispatcher lets jobs out", append(where, "redis", d.config.Redis.URL, "version", version())...)
	started := time.Now()
	err = runStages(ctx, append([]stage{d.reloadStage()}, stages...)...)
	d.log.InfoContext(ctx, "stopped", append(d.totals(), "after", human(time.Since(started)))...)
	return err
}

// wantsSink reports whether a bucket's url is the sink of this very process, as
// in the config.toml that we ship.
func wantsSink(cfg *config.Config) bool {
	return slices.ContainsFunc(cfg.Buckets, func(b config.Bucket) bool {
		return b.Webhook.URL.Reveal() == "http://"+cfg.Dispatcher.Listen+httpapi.SinkPath
	})
}

// opsShutdownTimeout is how long a scrape may take when all else has stopped.
const opsShutdownTimeout = 2 * time.Second

// rates says how fast each bucket leaks: "webhooks at 50/s".
func rates(cfg *config.Config) []string {
	list := make([]string, len(cfg.Buckets))
	for i, b := range cfg.Buckets {
		list[i] = fmt.Sprintf("%s at %s", b.Name, b.Rate)
	}
	return list
}
