package cli

import (
	"context"
	"fmt"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
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
func livesIn(info *shaper.BucketInfo) string {
	if info.Pool == nil {
		return ""
	}
	return info.Pool.Name
}

// elsewhereNotes say that a bucket is not where the configuration has it, or is being moved.
func elsewhereNotes(cfg *config.Config, info *shaper.BucketInfo) (notes []string) {
	if m := info.Moving; m != nil {
		to := m.To
		if to == info.Name {
			to = ""
		}
		return []string{fmt.Sprintf("it is being moved to %s since %s by %s, and does nothing until then: if that ended early, run dispatcher bucket move %s again, or with --abort",
			poolName(to), stamp(m.Since), line(m.By, 100), info.Name)}
	}
	if info.Elsewhere {
		return []string{fmt.Sprintf("it is in %s, the configuration here has it in %s, so it is not used: if that is right, pause it, then run dispatcher bucket move %s",
			poolName(livesIn(info)), poolName(configuredPool(cfg, info.Name)), info.Name)}
	}
	return nil
}

// tellElsewhere logs which buckets cannot be used, as they live in another pool.
func (d *daemon) tellElsewhere(ctx context.Context) {
	if len(d.config.Buckets) == 0 {
		return
	}
	infos, err := d.client.BucketInfos(ctx)
	if err != nil {
		d.log.WarnContext(ctx, "the buckets could not be looked at", "error", err)
	}
	for i := range infos {
		info := &infos[i]
		if info.Elsewhere {
			d.log.ErrorContext(ctx, "a bucket is in another pool than configured, and is not used: pause it and run dispatcher bucket move, or give it back its pool",
				"bucket", info.Name, "jobs_are_in", poolName(livesIn(info)), "configured_in", poolName(configuredPool(d.config, info.Name)))
		}
	}
}
