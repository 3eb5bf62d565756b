package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/shaper"
)

// elsewhere finds those of the buckets that hold jobs in another pool than that of the
// configuration here, as a client does that has them not configured.
func elsewhere(ctx context.Context, conn redis.UniversalClient, timeout time.Duration, infos []shaper.BucketInfo) (map[string]shaper.BucketInfo, error) {
	var names []string
	pools := map[string]string{}
	for _, info := range infos {
		if !info.Configured { // there, where it is looked for here
			names = append(names, info.Name)
			pools[info.Name] = poolName(info.Pool)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	stranger, err := shaper.NewClient(shaper.ClientConfig{Redis: conn, Timeout: timeout})
	if err != nil {
		return nil, err
	}
	there, err := stranger.BucketInfos(ctx, names...)
	if err != nil {
		return nil, err
	}
	found := map[string]shaper.BucketInfo{}
	for _, info := range there {
		if poolName(info.Pool) != pools[info.Name] && info.Unfinished+info.Scheduled+info.Dead > 0 {
			found[info.Name] = info
		}
	}
	return found, nil
}

// poolName is a pool in a sentence.
func poolName(p *shaper.PoolInfo) string {
	if p == nil {
		return "no pool"
	}
	return fmt.Sprintf("pool %q", p.Name)
}

// tellElsewhere logs which buckets cannot be used, as they hold jobs in another pool.
func (d *daemon) tellElsewhere(ctx context.Context) {
	if len(d.config.Buckets) == 0 {
		return
	}
	infos, err := d.client.BucketInfos(ctx)
	var found map[string]shaper.BucketInfo
	if err == nil {
		found, err = elsewhere(ctx, d.redis, callTimeout(d.config), infos)
	}
	if err != nil {
		d.log.WarnContext(ctx, "the buckets could not be looked at", "error", err)
		return
	}
	for _, info := range infos {
		if there, ok := found[info.Name]; ok {
			d.log.ErrorContext(ctx, "a bucket was given another pool and still holds jobs: it is not used until they have left, so give it back its pool until then",
				"bucket", info.Name, "jobs_are_in", poolName(there.Pool), "configured_in", poolName(info.Pool))
		}
	}
}
