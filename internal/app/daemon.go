// Package app is the two daemons: it runs, reloads and stops `dispatcher run` and `producer serve`. It wires the other packages together, and has no
// rules of its own.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/doctor"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/session"
	"github.com/tundish-io/tundish/internal/telemetry"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/workers/llm"
)

// daemon is the common part of `producer serve` and `dispatcher run`.
type daemon struct {
	config           *config.Config          // with which it started
	inForce          atomic.Pointer[applied] // the one that its buckets have
	log              *slog.Logger
	redis            redis.UniversalClient
	registry         *prometheus.Registry
	client           *producer.Client
	operator         *operator.Operator
	limiter          *admission.Limiter     // of a process that takes no jobs in, to look at limits and to change them
	llmRoutes        *llmRoutes             // nil where no jobs are taken in
	refused          atomic.Pointer[string] // see reloader
	learnedEstimates learnedEstimates
	models           *llm.Metrics // see llmMetrics
	tracing          *telemetry.Tracing

	wrongKeys prometheus.Counter
	forbidden *prometheus.CounterVec

	version string
	notify  *notifier
	source  *source
	targets []target // the parts that follow a changed configuration

	// places moves buckets into their pools: the dispatcher or, without one, the client, which looks up their pools.
	places places
}

// newDaemon wires a daemon on the Redis at url. It does not dial. Requests during the shutdown are served too, so only the values of ctx are used. A
// daemon that enqueues has a limiter, and short timeouts for its callers. With dispatches, the dispatcher writes the settings of buckets, not the
// client.
func newDaemon(ctx context.Context, cfg *config.Config, src *source, log *slog.Logger, url string, takesIn, dispatches bool) (*daemon, error) {
	conn, err := Connect(cfg, url, log)
	if err != nil {
		return nil, err
	}
	tracing, err := telemetry.NewTracing(ctx, src.options.Env, programOf(dispatches), log)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	d := &daemon{tracing: tracing, config: cfg, source: src, log: log, redis: conn, registry: telemetry.NewRegistry(), notify: newNotifier(src.options.Env, log)}
	d.wrongKeys, d.forbidden = newRefusedKeys(d.registry)
	d.inForce.Store(newApplied(cfg))
	client := producer.Config{
		Redis: conn, Buckets: Buckets(cfg), Timeout: cfg.CallTimeout(), Logger: log, Registerer: d.registry, DispatcherHere: dispatches, Tracer: tracing.Provider(),
	}
	limits := admission.LimiterConfig{
		Redis: conn, Limits: cfg.Limits, Revision: cfg.Revision, Timeout: client.Timeout, Logger: log.With("component", "limiter"), ReadOnly: !takesIn,
	}
	if takesIn {
		limits.Metrics = admission.NewMetrics(d.registry, limitNames(cfg))
		client.Timeout, limits.Timeout = cfg.Producer.StoreTimeout, cfg.Producer.StoreTimeout
		client.Breaker = redisconn.NewBreaker(redisconn.BreakerConfig{Logger: log, OnChange: limits.Metrics.SetBreaker})
		limits.Breaker = client.Breaker
	}
	if d.limiter, err = admission.NewLimiter(limits); err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.client, err = producer.New(client)
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.places = d.client
	d.operator, err = operator.New(operator.Config{
		Redis: conn, Buckets: client.Buckets, Timeout: client.Timeout, Logger: log, Registerer: d.registry,
		CheckFlow: func(bucket string, own *shaper.OwnDelivery) error { return d.inForce.Load().checkFlow(bucket, own) },
		CheckJob:  func(bucket string, job *shaper.Job) error { return d.inForce.Load().checkJob(bucket, job) },
	})
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.registry.MustRegister(operator.NewCollector(context.WithoutCancel(ctx), d.operator))
	d.targets = append(d.targets, target{bucketPaths, d.followBuckets})
	followLimits := d.followLimits
	if takesIn {
		keys := admission.NewKeyCollector(context.WithoutCancel(ctx), conn, limitNames(cfg))
		d.registry.MustRegister(keys)
		followLimits = func(ctx context.Context, cfg *config.Config) error {
			if err := d.followLimits(ctx, cfg); err != nil {
				return err
			}
			limits.Metrics.SetLimits(limitNames(cfg))
			keys.SetLimits(limitNames(cfg))
			return nil
		}
	}
	d.targets = append(d.targets, target{[]string{"revision", "limits"}, followLimits})
	return d, nil
}

// newRefusedKeys registers the counters of requests whose key is unknown or lacks a right.
func newRefusedKeys(reg prometheus.Registerer) (wrong prometheus.Counter, forbidden *prometheus.CounterVec) {
	wrong = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tundish_http_unauthorized_total",
		Help: "Requests and logins that showed an API key which the server does not know.",
	})
	forbidden = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tundish_http_forbidden_total",
		Help: "Requests for which the API key lacks a right, by the name of the key.",
	}, []string{"key"})
	reg.MustRegister(wrong, forbidden)
	return wrong, forbidden
}

// programOf is the name of a daemon in traces.
func programOf(dispatches bool) string {
	if dispatches {
		return "tundish-dispatcher"
	}
	return "tundish-producer"
}

func limitNames(cfg *config.Config) []string {
	list := make([]string, len(cfg.Limits))
	for i, limit := range cfg.Limits {
		list[i] = limit.Name
	}
	return list
}

// followLimits does not need Redis: if the change cannot be written now, the next
// question writes it.
func (d *daemon) followLimits(ctx context.Context, cfg *config.Config) error {
	err := d.limiter.Reconfigure(ctx, cfg.Limits, cfg.Revision)
	if redisconn.Unavailable(err) {
		d.log.WarnContext(ctx, "redis does not answer: the changed limits hold as soon as it does", "error", err)
		return nil
	}
	return err
}

// followKeys makes an API follow the keys, and the pools that it shows.
func (d *daemon) followKeys(api *httpapi.Handler) {
	d.targets = append(d.targets, target{[]string{"keys"}, func(_ context.Context, cfg *config.Config) error {
		api.SetKeys(cfg.Keys)
		api.SetPools(cfg.Pools)
		return nil
	}})
}

// reloadStage follows the configuration as long as the daemon runs.
func (d *daemon) reloadStage() stage {
	r := newReloader(d.config, d.source, d.log, d.registry, d.targets...)
	r.records, r.notify, r.refused = d.operator.Audit(), d.notify, &d.refused
	return r.run
}

// reloadRefused returns why the changed configuration was refused, "" if it was not.
func (d *daemon) reloadRefused() string {
	if why := d.refused.Load(); why != nil {
		return *why
	}
	return ""
}

// watchStage logs changes of the effective settings.
func (d *daemon) watchStage(ctx context.Context) error {
	d.client.WatchSettings(ctx)
	return nil
}

// exchange shares the learned estimates of models, as far as this process needs them.
func (d *daemon) exchange() *estimateExchange {
	return &estimateExchange{known: &d.learnedEstimates, buckets: func() []string { return llmBuckets(d.inForce.Load().Config) }, from: d.client, log: d.log}
}

func (d *daemon) close() error {
	d.llmRoutes.close()
	if d.client != nil {
		d.client.Close()
	}
	if d.limiter != nil {
		d.limiter.Close()
	}
	d.tracing.Close()
	if err := d.redis.Close(); err != nil {
		return fmt.Errorf("close the connections to redis: %w", err)
	}
	return nil
}

// producerStage listens on producer.listen and returns the stage that serves the producer's API there, and its address.
func (d *daemon) producerStage(ctx context.Context) (serve stage, addr string, err error) {
	if err := d.openRoutes(); err != nil {
		return nil, "", err
	}
	listener, err := httpapi.Listen(ctx, d.config.Producer.Listen, "producer.listen")
	if err != nil {
		return nil, "", err
	}
	api := httpapi.ProducerConfig{
		Jobs: d.client, CheckJob: d.checkJob, CheckCallbacks: d.checkCallbacks, Estimate: d.estimate, Proxy: d.proxy, LLMRoutes: d.llmRoutes.behind, Limits: d.limiter, BucketLimits: d.client,
		Keys: d.config.Keys, TrustedProxies: d.config.Producer.TrustedProxies,
		ForwardedHeader: d.config.Producer.ForwardedHeader, IPv6Prefix: d.config.Producer.IPv6Prefix,
		RateLimitHeaders: httplimit.RateLimitHeaders(d.config.Producer.RateLimitHeaders),
		IdleTimeout:      d.config.Producer.IdleTimeout,
		MaxConnections:   d.config.Producer.MaxConnections,
		BodyMemory:       d.config.Producer.BodyMemory,
		Metrics:          d.registry, Exemplars: d.tracing != nil, Logger: d.log.With("component", "producer_api"), Audit: d.operator.Audit(),
		WrongKeys: d.wrongKeys, Forbidden: d.forbidden, Sessions: session.New(d.redis),
	}
	api.HostFault = d.hostFault
	api.ServesAlone = func() bool { return servesAlone(d.inForce.Load().Config) }
	if d.config.Producer.OperatorAPI {
		api.Operator, api.Pools = d.operator, d.config.Pools
	}
	handler := httpapi.NewProducer(api)
	d.followKeys(handler)
	serve = func(ctx context.Context) error {
		return httpapi.Serve(ctx, listener, handler, d.config.Producer.ShutdownTimeout, d.log)
	}
	return serve, listener.Addr().String(), nil
}

// servesAlone reports whether a limit of a configuration is served while Redis fails.
func servesAlone(cfg *config.Config) bool {
	return slices.ContainsFunc(cfg.Limits, func(l admission.Limit) bool {
		return l.OnStoreFailure != admission.Closed || l.Mode == admission.Shadow
	})
}

// checkJob checks a job by the bucket's worker before it is enqueued.
func (d *daemon) checkJob(bucket string, job *shaper.Job) error {
	b := d.inForce.Load().buckets[bucket]
	if b == nil {
		return fmt.Errorf("%w %q", shaper.ErrUnknownBucket, bucket)
	}
	return errors.Join(b.worker.CheckJob(job), d.checkCallbacks(bucket, job))
}

// checkCallbacks checks the callback URLs of a job or a bundle, by the worker of the bucket that delivers callbacks.
func (d *daemon) checkCallbacks(bucket string, job *shaper.Job) error {
	return d.inForce.Load().checkCallbacks(bucket, job)
}

// hostFault reports whether no dispatcher of a bucket can connect to its receivers. One round trip.
func (d *daemon) hostFault(ctx context.Context, bucket string) bool {
	seen, err := d.operator.Fleet().Look(ctx)
	if err != nil {
		return false
	}
	_, isAll := seen.HostFault(bucket)
	return isAll
}

// proxy returns how the shaping proxy serves a bucket, and whether it does.
func (d *daemon) proxy(bucket string) (httpapi.ProxySettings, bool) {
	b := d.inForce.Load().buckets[bucket]
	if b == nil || b.HTTP == nil || !b.HTTP.ServeProxy {
		return httpapi.ProxySettings{}, false
	}
	http := b.HTTP
	settings := httpapi.ProxySettings{
		Timeout: http.ProxyTimeout, Credentials: http.Worker(1).Auth.Headers(), Priority: shaper.Priority(http.ProxyPriority), BaseURL: http.BaseURL.Reveal(),
	}
	if http.ProxyPriority == config.ProxyFirst {
		settings.Priority, settings.First = shaper.PriorityCritical, true
	}
	return settings, true
}

// greet probes Redis once. It moves buckets into their pools, and warns of settings of Redis that would lose jobs. If Redis fails, it logs that the
// daemon keeps trying, and reports false. After an error the daemon must not start: Redis refuses its user or its password, for example.
func (d *daemon) greet(ctx context.Context) (answers bool, err error) {
	err = d.client.Probe(ctx)
	switch redisconn.FailureOf(err) {
	case redisconn.Forbidden:
		return false, fmt.Errorf("redis at %s refuses the user or the password: set redis.password (TUNDISH_REDIS_PASSWORD), of sentinels redis.sentinel_password, "+
			"and give the user the rights in deploy/redis/users.acl: %w", d.config.Redis.URL, err)
	case redisconn.Full:
		d.log.ErrorContext(ctx, "redis is out of memory: no job is stored until it has room; raise maxmemory, or have closed buckets send with bucket drain", "redis", d.config.Redis.URL, "error", err)
	default:
		if err != nil {
			d.log.WarnContext(ctx, "redis does not answer yet: trying on", "redis", d.config.Redis.URL, "error", err)
			return false, nil
		}
	}
	if err := d.joinPools(ctx); err != nil {
		return true, err
	}
	d.examine(ctx)
	return true, nil
}

// examine warns of settings of Redis that would lose jobs, and of rights that the user does not have.
func (d *daemon) examine(ctx context.Context) {
	for _, c := range doctor.Examine(ctx, d.redis) {
		switch {
		case c.Status == doctor.StatusFail:
			d.log.ErrorContext(ctx, "redis is not fit to keep jobs, see `dispatcher doctor`", "check", c.Name, "finding", c.Text, "next", c.Next)
		case c.Status == doctor.StatusWarn && c.Next != "": // an unknown check needs no action
			d.log.WarnContext(ctx, "redis could be set up better, see `dispatcher doctor`", "check", c.Name, "finding", c.Text, "next", c.Next)
		}
	}
}

// examineStage examines a Redis that did not respond at the start, once it does.
func (d *daemon) examineStage(answers bool) stage {
	return func(ctx context.Context) error {
		for known := answers; !known && ctx.Err() == nil; {
			select {
			case <-time.After(time.Second):
				if known = d.client.Probe(ctx) == nil; known {
					d.examine(ctx)
				}
			case <-ctx.Done():
			}
		}
		<-ctx.Done()
		return nil
	}
}

// totals sums the counters of a daemon's work.
func (d *daemon) totals() []any {
	sums := map[string]float64{}
	families, _ := d.registry.Gather() // metrics that come from Redis are missing while it is down
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			key := family.GetName()
			for _, label := range metric.GetLabel() {
				if name := label.GetName(); name == "outcome" || name == "decision" {
					key += "/" + label.GetValue()
				}
			}
			sums[key] += metric.GetCounter().GetValue()
		}
	}
	var list []any
	for _, total := range []struct{ name, key string }{
		{"admitted", "tundish_admission_decisions_total/admitted"},
		{"departed", "tundish_departures_total"},
		{"delivered", "tundish_attempts_total/done"},
		{"retried", "tundish_retries_total"},
		{"dead", "tundish_dead_letters_total"},
	} {
		list = append(list, total.name, int64(sums[total.key]))
	}
	return list
}
