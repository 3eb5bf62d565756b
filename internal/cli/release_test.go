package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
)

// heldText is what the downstream of a scope says: a hold until that time, and an adaptive rate of 5/s.
func heldText(until time.Time, breaker int) string {
	micros := until.UnixMicro()
	return stored.Downstream{Till: micros, RateCount: 5000, RatePer: 1_000_000_000, Breaker: int64(breaker), Failures: 12, Cut: 1, Since: 1, Grown: 1, Opened: 1,
		First: micros, OpenFor: 1, ChangedAt: micros, Reason: "http_429"}.String()
}

// What an answer has changed is shown until it is released.
func TestReleaseOfABucket(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, id := range []string{"a", "b"} {
		if receipts, err := s.client.Enqueue(t.Context(), shaper.Job{Bucket: "webhooks", ID: id, Payload: []byte("1")}); err != nil || receipts[0].Refusal != nil {
			t.Fatal(receipts, err)
		}
	}
	s.run(t, "dispatcher bucket release webhooks").want(t, 0, "had nothing to release: webhooks")
	s.deliver(t, 1, shaper.Outcome{Result: shaper.ResultHeld, Reason: "http_429", Status: 429, RetryAfter: time.Hour, Signal: shaper.SignalThrottled})

	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "held until ", "(http_429); slowed to 25/s, 50 % of its rate")
	s.run(t, "dispatcher bucket list").want(t, 0, "no dispatcher runs")
	s.run(t, "dispatcher bucket show webhooks --json").want(t, 0, `"held_until": "`, `"rate_per_second": 25`, `"factor": 0.5`, `"breaker": "closed"`, `"reason": "http_429"`)
	s.run(t, "dispatcher status").want(t, 0, "(no dispatcher runs)  dispatcher run")
	s.run(t, "dispatcher job show webhooks a").want(t, 0, `bucket "webhooks": held until `, "leaves    ")
	s.run(t, "dispatcher job show webhooks a --json").want(t, 0, `"held"`)

	s.run(t, "dispatcher bucket release webhooks").want(t, 0, "released: webhooks")
	if out := s.run(t, "dispatcher bucket release webhooks --json"); out.code != 0 || strings.Contains(out.out, "downstream") || strings.Contains(out.out, "held") {
		t.Errorf("released again: %+v", out)
	}
	s.run(t, "dispatcher bucket release nosuch").want(t, 4, `unknown bucket "nosuch"`)
	s.deliver(t, 2, shaper.Done(200))
}

func TestReleaseOfAFlow(t *testing.T) {
	t.Parallel()
	s := partedSite(t, false, "acme", "b")
	key, until := stored.Key("tenants", ""), time.Now().Add(time.Hour)
	for flow, breaker := range map[string]int{"acme": 0, "b": 1} {
		text := s.redis.HGet(t.Context(), key+"flows", flow).Val()
		if err := s.redis.HSet(t.Context(), key+"flows", flow, "@"+heldText(until, breaker)+" "+text).Err(); err != nil || text == "" {
			t.Fatal(text, err)
		}
	}
	s.redis.HSet(t.Context(), key+"count", "held", 1, "open", 1)
	s.run(t, "dispatcher flow list tenants").want(t, 0, "held until ", "circuit breaker open since ", "(12 failures in a row, the last one http_429); the next probe may leave at ")
	s.run(t, "dispatcher flow show tenants acme").want(t, 0, "waiting    1", "note       held until ", "slowed to 5/s, 10 % of its rate (http_429)")
	s.run(t, "dispatcher flow show tenants b --json").want(t, 0, `"breaker": "open"`, `"failures": 12`, `"open_since"`)
	s.run(t, "dispatcher bucket show tenants").want(t, 0, "flows held  1; circuit breaker open: 1, half-open: 0")
	s.run(t, "dispatcher bucket list").want(t, 0, "  1 breaker open; ")
	s.redis.HSet(t.Context(), key+"count", "open", 5, "half_open", 2)
	s.redis.ZAdd(t.Context(), key+"disabled", redis.Z{Member: "gone", Score: 1})
	s.run(t, "dispatcher bucket list").want(t, 0, "5 breakers open, 2 breakers half-open, 1 flow disabled; ")
	s.run(t, "dispatcher bucket show tenants --json").want(t, 0, `"5 breakers open, 2 breakers half-open, 1 flow disabled"`)
	s.redis.Del(t.Context(), key+"disabled")
	s.run(t, "dispatcher flow release tenants acme").want(t, 0, "released: acme")
	s.run(t, "dispatcher flow release tenants acme").want(t, 0, "had nothing to release: acme")
	if out := s.run(t, "dispatcher flow release tenants b --json"); out.code != 0 || strings.Contains(out.out, "downstream") {
		t.Errorf("released: %+v", out)
	}
	hold := func() {
		for flow, text := range s.redis.HGetAll(t.Context(), key+"flows").Val() {
			s.redis.HSet(t.Context(), key+"flows", flow, "@"+heldText(until, 1)+" "+text)
		}
	}
	hold()
	s.run(t, "dispatcher bucket release tenants").want(t, 0, "had nothing to release: tenants. Its flows have holds and breakers of their own: --all-flows releases them")
	s.run(t, "dispatcher bucket release tenants --all-flows").want(t, 0, "released: tenants (2 flows)")
	s.run(t, "dispatcher bucket release tenants --all-flows").want(t, 0, "had nothing to release: tenants\n")
	if out := s.run(t, "dispatcher flow list tenants --json"); out.code != 0 || strings.Contains(out.out, "downstream") {
		t.Errorf("all released: %+v", out)
	}
	s.run(t, "dispatcher bucket release webhooks --all-flows").want(t, 2, "the bucket has no flows")
	s.run(t, "dispatcher group release tenants acme").want(t, 2, "there is no command")
	s.run(t, "dispatcher flow release webhooks acme").want(t, 2, "the bucket has no flows")
}

// A disabled flow is shown, takes no jobs, and runs again once it is enabled.
func TestEnableOfAFlow(t *testing.T) {
	t.Parallel()
	s := partedSite(t, false, "acme", "b")
	key := stored.Key("tenants", "")
	must.OK(t, s.redis.HSet(t.Context(), key+"flow_settings", "acme", "- - - - - - - 1783228800123456/gone\n-").Err())
	must.OK(t, s.redis.ZAdd(t.Context(), key+"disabled", redis.Z{Member: "acme", Score: 1}).Err())
	s.run(t, "dispatcher flow list tenants").want(t, 0, "disabled since 2026-07-05T05:20:00.123Z (gone)")
	s.run(t, "dispatcher flow show tenants acme").want(t, 0, "note       disabled since 2026-07-05T05:20:00.123Z (gone)")
	s.run(t, "dispatcher flow show tenants acme --json").want(t, 0, `"disabled": {`, `"reason": "gone"`)
	s.run(t, "dispatcher bucket show tenants").want(t, 0, "flows disabled  1")
	s.run(t, "dispatcher flow enable tenants acme").want(t, 0, "enabled: acme")
	s.run(t, "dispatcher flow enable tenants acme").want(t, 0, "was not disabled: acme")
	s.run(t, "dispatcher flow enable tenants acme --redrive").want(t, 0, "was not disabled: acme", "redriven: 0 jobs")
	if out := s.run(t, "dispatcher flow enable tenants acme --json"); out.code != 0 || strings.Contains(out.out, "disabled") {
		t.Errorf("enabled: %+v", out)
	}
	s.run(t, "dispatcher flow enable webhooks acme").want(t, 2, "the bucket has no flows")
	s.run(t, "dispatcher group enable tenants acme").want(t, 2, "there is no command")
}

func TestReleaseOfAPool(t *testing.T) {
	t.Parallel()
	s := poolSite(t)
	vendor := &shaper.Pool{Name: "vendor", Rate: bucket(t, "x").Rate, Burst: 4}
	s.connected(t, vendor, 5)
	s.enqueue(t, "webhooks", "a")
	must.OK(t, s.redis.HSet(t.Context(), stored.PoolKey("vendor", "pace"), "down", heldText(time.Now().Add(time.Hour), 2)).Err())
	s.run(t, "dispatcher pool show vendor").want(t, 0, "note       circuit breaker half-open since a probe left", "slowed to 5/s, 10 % of its rate")
	s.run(t, "dispatcher pool show vendor --json").want(t, 0, `"breaker": "half-open"`)
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "pool vendor: circuit breaker half-open")
	s.run(t, "dispatcher job show webhooks a --json").want(t, 0, `"pool-breaker-open"`)
	s.run(t, "dispatcher pool release vendor").want(t, 0, "released: vendor")
	s.run(t, "dispatcher pool release vendor").want(t, 0, "had nothing to release: vendor")
	s.run(t, "dispatcher pool release nosuch").want(t, 4, "unknown pool")
}
