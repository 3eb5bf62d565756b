package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// poolName is a pool in a sentence, by its name: "" is none.
func poolName(name string) string {
	if name == "" {
		return "no pool"
	}
	return fmt.Sprintf("pool %q", name)
}

// configuredPool is the pool in which the configuration has a bucket, "" if in none.
func configuredPool(cfg *config.Config, bucket string) string {
	for _, b := range cfg.Buckets {
		if b.Name == bucket && b.Pool != nil {
			return b.Pool.Name
		}
	}
	return ""
}

// livesIn is the pool in which a bucket is, "" if in none.
func livesIn(info *operator.BucketInfo) string {
	if info.Pool == nil {
		return ""
	}
	return info.Pool.Name
}

// elsewhereNote says that a bucket is not in the pool that the configuration has it in.
func elsewhereNote(cfg *config.Config, info *operator.BucketInfo) string {
	return fmt.Sprintf("it is in %s, and the configuration here has it in %s: once it is empty, a dispatcher or producer that starts with this configuration, or reloads it, moves it",
		poolName(livesIn(info)), poolName(configuredPool(cfg, info.Name)))
}

// joinPools brings the buckets into the pools that the configuration says. The error is of a bucket that is not
// empty: the daemon does not start then. A Redis that does not answer is no error: the first use joins.
func (d *daemon) joinPools(ctx context.Context) error {
	err := d.client.JoinPools(ctx)
	if errors.Is(err, shaper.ErrTagChanged) {
		return fail(exitUsage, "%w", err)
	}
	if err != nil {
		d.log.WarnContext(ctx, "not all buckets could be configured: their first use tries again", "error", err)
	}
	return nil
}
