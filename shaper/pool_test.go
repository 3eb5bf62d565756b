package shaper_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

func TestPoolValidate(t *testing.T) {
	t.Parallel()
	valid := func() shaper.Bucket {
		return rig.Pooled("b", 10, 1, shaper.Pool{Name: "p", Rate: rig.PerSecond(100), Burst: 5, MaxInFlight: 3, Quotas: []admission.Rate{rig.PerSecond(7)}})
	}
	if err := valid().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(b *shaper.Bucket){
		"pool.name: \"P\"":      func(b *shaper.Bucket) { b.Pool.Name = "P" },
		"pool.name: \"b\"":      func(b *shaper.Bucket) { b.Pool.Name = "b" },
		"pool.rate: is missing": func(b *shaper.Bucket) { b.Pool.Rate = admission.Rate{} },
		"pool.rate: \"5 tokens": func(b *shaper.Bucket) { b.Pool.Rate = admission.Rate{Count: 5, Per: time.Second, Unit: "tokens"} },
		"pool.burst: -1":        func(b *shaper.Bucket) { b.Pool.Burst = -1 },
		"pool.burst: 1000001":   func(b *shaper.Bucket) { b.Pool.Burst = shaper.MaxBurst + 1 },
		"pool.burst: 100000: at": func(b *shaper.Bucket) {
			b.Pool.Burst, b.Pool.Rate.Per = 100_000, 31*24*time.Hour
			b.Pool.Rate.Count = 1
		},
		"pool.max_in_flight: -1":  func(b *shaper.Bucket) { b.Pool.MaxInFlight = -1 },
		"pool.quotas":             func(b *shaper.Bucket) { b.Pool.Quotas = []admission.Rate{{Count: -1, Per: time.Second}} },
		"weight: -1: want 1 to":   func(b *shaper.Bucket) { b.Weight = -1 },
		"weight: 1001: want 1 to": func(b *shaper.Bucket) { b.Weight = shaper.MaxWeight + 1 },
	} {
		b := valid()
		change(&b)
		if err := b.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestPoolWarnings(t *testing.T) {
	t.Parallel()
	b := rig.Pooled("b", 100, 1, shaper.Pool{Name: "p", Rate: rig.PerSecond(100), MaxInFlight: 256})
	b.MaxInFlight = 256
	if warnings := append(b.PoolWarnings(), rig.Bucket("x", 1).PoolWarnings()...); len(warnings) != 0 {
		t.Errorf("%q", warnings)
	}
	b.Pool.Rate.Count, b.Pool.MaxInFlight = 99, 255
	want := `[rate: 100/s is more than the 99/s of its pool "p", which holds max_in_flight: 256 is more than the 255 of its pool "p", which holds]`
	if got := fmt.Sprint(b.PoolWarnings()); got != want {
		t.Errorf("%s", got)
	}
}
