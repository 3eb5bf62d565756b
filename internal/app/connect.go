package app

import (
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
)

// Connect makes the client for a URL with the settings of the configuration. A nil log logs nothing.
func Connect(cfg *config.Config, url string, log *slog.Logger) (redis.UniversalClient, error) {
	return redisconn.Connect(url, cfg.Redis.Options(log))
}

// Buckets returns the buckets of a configuration, in the library's form.
func Buckets(cfg *config.Config) []shaper.Bucket {
	buckets := make([]shaper.Bucket, len(cfg.Buckets))
	for i, b := range cfg.Buckets {
		buckets[i] = b.Bucket
	}
	return buckets
}
