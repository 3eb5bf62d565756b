package admission

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// Numbers of the sample of keys.
const (
	sampledKeys = 200
	sampleEvery = 30 * time.Second
	sampleTime  = time.Second // at most
)

// KeyCollector reports how many keys each limit has in Redis, as an estimate: its share of 200 random keys, times the number of all keys. The
// error is about 7 % of all keys at most (two standard deviations). It reads at a scrape, at most every 30 s, in two round trips (to each master
// of a cluster). When Redis is down the series are absent. They stay absent if Redis refuses DBSIZE or RANDOMKEY, which expose keys of other
// users.
type KeyCollector struct {
	ctx    context.Context //nolint:containedctx // a scrape brings none
	client redis.UniversalClient
	limits map[string]bool
	desc   *prometheus.Desc

	mu      sync.Mutex
	at      time.Time
	counts  map[string]float64
	refused bool
}

// NewKeyCollector returns a collector to register, for limits of these names,
// on their own or in buckets. Others count as "other". It reads until ctx ends.
func NewKeyCollector(ctx context.Context, client redis.UniversalClient, limits []string) *KeyCollector {
	c := &KeyCollector{
		ctx: ctx, client: client,
		desc: prometheus.NewDesc("tundish_limit_keys", "Keys for which a limit has a state in Redis, estimated by a sample.", []string{"limit"}, nil),
	}
	c.SetLimits(limits)
	return c
}

// SetLimits replaces the limits that have a series each, as after a reload.
func (c *KeyCollector) SetLimits(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.limits = time.Time{}, map[string]bool{otherLimits: true}
	for _, name := range names {
		c.limits[name] = true
	}
}

// Describe implements [prometheus.Collector].
func (c *KeyCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements [prometheus.Collector].
func (c *KeyCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.refused && (c.at.IsZero() || time.Since(c.at) >= sampleEvery) {
		c.counts, c.at = c.sample(), time.Now()
	}
	for name, n := range c.counts {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, n, name)
	}
}

// sample returns the counts, or nil: of all masters, where Redis is a cluster.
func (c *KeyCollector) sample() map[string]float64 {
	ctx, cancel := context.WithTimeout(c.ctx, sampleTime)
	defer cancel()
	counts := make(map[string]float64, len(c.limits))
	for name := range c.limits {
		counts[name] = 0
	}
	var mu sync.Mutex
	draw := func(ctx context.Context, client redis.Cmdable) error {
		keys, each, err := drawKeys(ctx, client)
		mu.Lock()
		defer mu.Unlock()
		for _, key := range keys {
			name, ok := limitOf(key)
			if !ok {
				continue
			}
			if !c.limits[name] {
				name = otherLimits
			}
			counts[name] += each
		}
		return err
	}
	var err error
	if cluster, ok := c.client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error { return draw(ctx, master) })
	} else {
		err = draw(ctx, c.client)
	}
	if err != nil {
		c.refused = redis.HasErrorPrefix(err, "NOPERM")
		return nil
	}
	return counts
}

// drawKeys draws random keys of one server; each is the number of keys that one of them represents.
func drawKeys(ctx context.Context, client redis.Cmdable) (keys []string, each float64, err error) {
	size, err := client.DBSize(ctx).Result()
	if err != nil || size == 0 { // without keys there is none to draw
		return nil, 0, err
	}
	drawn := make([]*redis.StringCmd, sampledKeys)
	if _, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := range drawn {
			drawn[i] = pipe.RandomKey(ctx)
		}
		return nil
	}); err != nil {
		return nil, 0, err
	}
	for _, cmd := range drawn {
		keys = append(keys, cmd.Val())
	}
	return keys, float64(size) / sampledKeys, nil
}

// limitOf returns the limit whose state a key of Redis holds. A limit without a bucket has keys tundish:{l:<limit>}:<key>; a limit of a bucket has
// keys tundish:{<tag>}:b:<bucket>:limit:<limit>:<key>.
func limitOf(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, "tundish:{")
	if !ok {
		return "", false
	}
	tag, rest, ok := strings.Cut(rest, "}:")
	if !ok {
		return "", false
	}
	if name, own := strings.CutPrefix(tag, "l:"); own {
		return name, rest != "conf" && !strings.HasPrefix(rest, countedKeys)
	}
	parts := strings.SplitN(rest, ":", 5)
	if len(parts) != 5 || parts[0] != "b" || parts[2] != "limit" {
		return "", false
	}
	return parts[3], true
}
