package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/console"
	"github.com/tundish-io/tundish/internal/embedded"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/session"
	"github.com/tundish-io/tundish/internal/telemetry"
)

// Options are the options of a daemon.
type Options struct {
	Config     config.Options
	Stderr     io.Writer // of its log
	IsTerminal bool      // a person reads the output
	Version    string    // for the log
}

// open reads the configuration, and logs its warnings.
func (o Options) open() (*source, *config.Config, *slog.Logger, error) {
	src := &source{options: o.Config}
	cfg, err := src.load(true)
	if err != nil {
		return nil, nil, nil, err
	}
	log := telemetry.NewLogger(cfg.Log.Level, cfg.Log.Format, o.Stderr)
	for _, warning := range cfg.Warnings() {
		log.Warn("configuration", "warning", warning)
	}
	for _, advice := range cfg.Advice() {
		log.Info("configuration", "advice", advice)
	}
	return src, cfg, log, nil
}

// Dispatch dispatches jobs until ctx ends, and then until deliveries have ended or the shutdown timeout is over. With the embedded store it enqueues
// jobs, too.
func Dispatch(ctx context.Context, o Options) (err error) {
	src, cfg, log, err := o.open()
	if err != nil {
		return err
	}
	url := cfg.Redis.URL.Reveal()
	if cfg.Redis.URL.Embedded() {
		store, err := embedded.Start(cfg.Redis.EmbeddedListen)
		if err != nil {
			return err
		}
		defer store.Close()
		url = store.URL()
		o.warnOfMemory(ctx, log, store.Addr())
	}
	d, err := newDaemon(ctx, cfg, src, log, url, cfg.Redis.URL.Embedded(), true)
	if err != nil {
		return err
	}
	d.version = o.Version
	defer func() { err = errors.Join(err, d.close()) }()
	return d.dispatch(ctx)
}

// warnOfMemory is loud, because jobs are at stake.
func (o Options) warnOfMemory(ctx context.Context, log *slog.Logger, addr string) {
	if o.IsTerminal {
		bar := strings.Repeat("!", 72)
		fmt.Fprintf(o.Stderr, "%s\n!!  EMBEDDED STORE: everything is in memory only.\n!!  ALL JOBS ARE GONE when this process stops.\n"+
			"!!  For jobs that matter set redis.url to a real Redis.\n%s\n", bar, bar)
	}
	log.WarnContext(ctx, "EMBEDDED STORE: memory only, ALL JOBS ARE GONE when this process stops; for jobs that matter set redis.url to a real Redis",
		"embedded_listen", addr)
}

// dispatch runs the stages of the daemon until ctx ends: the API, if the store is embedded, the dispatcher, and the operator's listener, in this order.
func (d *daemon) dispatch(ctx context.Context) error {
	dispatcher, err := d.dispatching()
	if err != nil {
		return err
	}
	defer dispatcher.close()
	answers := true
	if d.config.Redis.URL.Embedded() {
		err = d.joinPools(ctx)
	} else {
		answers, err = d.greet(ctx)
	}
	if err != nil {
		return err
	}

	listener, err := httpapi.Listen(ctx, d.config.Dispatcher.Listen, "dispatcher.listen")
	if err != nil {
		return err
	}
	handler := httpapi.NewOps(httpapi.OpsConfig{
		Buckets: d.operator, CheckCallbacks: d.checkCallbacks, Pools: d.config.Pools, Keys: d.config.Keys, Metrics: d.registry, Exemplars: d.tracing != nil, WrongKeys: d.wrongKeys, Forbidden: d.forbidden, Sessions: session.New(d.redis),
		Logger: d.log.With("component", "operator_api"), Sink: wantsSink(d.config),
		Limits: d.limiter, BucketLimits: d.client, Pages: d.console(), IdleTimeout: d.config.Dispatcher.IdleTimeout,
	})
	d.followKeys(handler)
	// The first to stop: not ready from then on, and still reachable until the end.
	announce := func(ctx context.Context) error {
		<-ctx.Done()
		handler.Drain()
		d.log.InfoContext(ctx, "stopping: deliveries may end", "shutdown_timeout", d.config.Dispatcher.ShutdownTimeout)
		return nil
	}
	operate := func(ctx context.Context) error {
		return httpapi.Serve(ctx, listener, handler, opsShutdownTimeout, d.log)
	}

	exchange := d.exchange()
	exchange.to, exchange.metrics = dispatcher, dispatcher.metrics

	stages := []stage{announce, dispatcher.Run, exchange.run, operate}
	where := []any{"buckets", fewOf(rates(d.config)), "operator_api", "http://" + listener.Addr().String()}
	if d.config.Redis.URL.Embedded() {
		api, addr, err := d.producerStage(ctx)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		stages = []stage{announce, api, dispatcher.Run, exchange.run, operate}
		where = append(where, "producer_api", "http://"+addr)
	}
	d.logStart(ctx, answers, append(where, "redis", d.config.Redis.URL, "version", d.version))
	started := time.Now()
	err = runStages(ctx, append([]stage{d.reloadStage(), d.notify.run, d.examineStage(answers)}, stages...)...)
	d.log.InfoContext(ctx, "stopped", append(d.totals(), "after", opsview.Human(time.Since(started)))...)
	return err
}

// logStart logs that the dispatcher works, or will as soon as Redis responds.
func (d *daemon) logStart(ctx context.Context, answers bool, where []any) {
	if answers {
		d.log.InfoContext(ctx, "dispatcher lets jobs out", where...)
	} else {
		d.log.InfoContext(ctx, "dispatcher has started: it lets jobs out as soon as redis answers", where...)
	}
}

// wantsSink reports whether a bucket's receiver is the sink of this very process, as in the files of `dispatcher init`.
func wantsSink(cfg *config.Config) bool {
	sink := "http://" + cfg.Dispatcher.Listen + httpapi.SinkPath
	return slices.ContainsFunc(cfg.Buckets, func(b config.Bucket) bool {
		return b.Webhook.URL.Reveal() == sink || b.HTTP != nil && b.HTTP.BaseURL.Reveal() == sink || b.LLM != nil && b.LLM.BaseURL.Reveal() == sink
	})
}

// console returns the pages for operators, nil if they are switched off.
func (d *daemon) console() *httpapi.Pages {
	if !d.config.Console.Enabled {
		return nil
	}
	c := d.config.Console
	return console.Pages(console.Config{
		Redis: d.redis, Name: c.Name, Colour: c.Colour, Version: d.version, Logger: d.log.With("component", "console"), Audit: d.operator.Audit(),
		Proxies: httplimit.Proxies{Trusted: c.TrustedProxies}, UserHeader: c.UserHeader, UserKey: c.UserKey, Origin: c.Origin(), HidePayloads: c.HidesPayloads(),
	})
}

// opsShutdownTimeout is how long a scrape may take after everything else has stopped.
const opsShutdownTimeout = 2 * time.Second

// rates returns the rate of each bucket: "webhooks at 50/s".
func rates(cfg *config.Config) []string {
	list := make([]string, len(cfg.Buckets))
	for i, b := range cfg.Buckets {
		list[i] = fmt.Sprintf("%s at %s", b.Name, b.Rate)
	}
	return list
}
