package config

import (
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/httpbound"
	"github.com/tundish-io/tundish/shaper"
)

// Bounds of settings that no other package has bounds for. The revision is a
// number of Lua.
const (
	maxRevision        = 1 << 53
	maxPoolSize        = 10_000
	minRedisTimeout    = 100 * time.Millisecond
	maxRedisTimeout    = 10 * time.Second
	minLease           = time.Second
	maxLease           = time.Hour
	maxShutdownTimeout = time.Hour
	minStoreTimeout    = 50 * time.Millisecond
	maxStoreTimeout    = 10 * time.Second
	minWebhookTimeout  = 100 * time.Millisecond
	maxBodyMemory      = 64 << 30
	maxConnections     = 1_000_000
)

// validate notes every value out of range and every broken relation. The packages of limits and buckets define their own ranges.
func (l *loader) validate(s *settings) {
	inRange(l, at("revision"), s.Revision, 0, maxRevision)
	if reason := s.Redis.URL.validate(); reason != "" {
		l.fail(at("redis.url"), literal(s.Redis.URL), "%s", reason)
	}
	l.redisTLS(s.Redis)
	inRange(l, at("redis.pool_size"), s.Redis.PoolSize, 0, maxPoolSize)
	inRange(l, at("redis.timeout"), s.Redis.Timeout, minRedisTimeout, maxRedisTimeout)
	inRange(l, at("producer.shutdown_timeout"), s.Producer.ShutdownTimeout, 0, maxShutdownTimeout)
	l.forwarding(s.Producer)
	inRange(l, at("producer.store_timeout"), s.Producer.StoreTimeout, minStoreTimeout, maxStoreTimeout)
	inRange(l, at("producer.body_memory"), size(s.Producer.BodyMemory), httpbound.MinBodyMemory, maxBodyMemory)
	inRange(l, at("producer.max_connections"), s.Producer.MaxConnections, 1, maxConnections)
	inRange(l, at("dispatcher.concurrency"), s.Dispatcher.Concurrency, 0, shaper.MaxConcurrency)
	inRange(l, at("dispatcher.lease"), s.Dispatcher.Lease, minLease, maxLease)
	inRange(l, at("dispatcher.shutdown_timeout"), s.Dispatcher.ShutdownTimeout, 0, maxShutdownTimeout)
	inRange(l, at("producer.idle_timeout"), s.Producer.IdleTimeout, time.Second, time.Hour)
	inRange(l, at("dispatcher.idle_timeout"), s.Dispatcher.IdleTimeout, time.Second, time.Hour)
	l.oneOf(at("producer.rate_limit_headers"), s.Producer.RateLimitHeaders,
		string(httplimit.BothHeaders), string(httplimit.StandardHeaders), string(httplimit.LegacyHeaders))
	l.oneOf(at("log.level"), s.Log.Level, "debug", "info", "warn", "error")
	l.oneOf(at("log.format"), s.Log.Format, "auto", "text", "json")
	l.oneOf(at("tracing.relation"), s.Tracing.Relation, relationLink, relationParent)
	const open = "every program that reaches it could use it"
	l.listen(at("redis.embedded_listen"), s.Redis.EmbeddedListen, "the embedded store has no password, so "+open)
	noKeys := ""
	if len(s.Keys) == 0 {
		noKeys = "without [[keys]] " + open + " (`producer key new ops --role admin --bucket '*'` prints the table for this file)"
	}
	l.listen(at("producer.listen"), s.Producer.Listen, noKeys)
	l.listen(at("dispatcher.listen"), s.Dispatcher.Listen, noKeys)
	l.console(s)
	l.keys(s)
	l.limits(s)
	l.pools(s)
	l.buckets(s)
	l.hooks(s)
	l.schedules(s)
}

// redisTLS refuses options of TLS for a connection without TLS.
func (l *loader) redisTLS(r Redis) {
	if (r.TLSCert == "") != (r.TLSKey == "") {
		l.fail(at("redis.tls_cert"), literal(r.TLSCert), "redis.tls_cert and redis.tls_key are a pair: set both or none")
	}
	if strings.HasPrefix(r.URL.Reveal(), "rediss") {
		return
	}
	for _, option := range []struct{ key, value string }{
		{"tls_ca", r.TLSCA}, {"tls_cert", r.TLSCert}, {"tls_key", r.TLSKey}, {"tls_server_name", r.TLSServerName},
	} {
		if option.value != "" {
			l.fail(at("redis."+option.key), literal(option.value), "is for TLS, which redis.url is not: write rediss instead of redis there, or leave this out")
		}
	}
}
