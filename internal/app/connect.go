package app

import (
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
)

// Connect makes the client for a URL with the settings of the configuration. A nil log logs nothing.
func Connect(cfg *config.Config, url string, log *slog.Logger) (redis.UniversalClient, error) {
	options := redisconn.Options{Timeout: cfg.Redis.Timeout, PoolSize: cfg.Redis.PoolSize, NoFunctions: !cfg.Redis.Functions, Logger: log}
	if r := cfg.Redis; !r.URL.Embedded() { // that one has no password
		options.Password, options.SentinelPassword = r.Password.Reveal(), r.SentinelPassword.Reveal()
		options.TLS = redisconn.TLSOptions{CA: r.TLSCA, Cert: r.TLSCert, Key: r.TLSKey, ServerName: r.TLSServerName}
	}
	return redisconn.Connect(url, options)
}

// CallTimeout bounds a call with its resends. Each command of a call has the
// configured timeout.
func CallTimeout(cfg *config.Config) time.Duration { return cfg.Redis.Timeout * 3 / 2 }

// Buckets are those of a configuration, as the library has them.
func Buckets(cfg *config.Config) []shaper.Bucket {
	buckets := make([]shaper.Bucket, len(cfg.Buckets))
	for i, b := range cfg.Buckets {
		buckets[i] = b.Bucket
	}
	return buckets
}
