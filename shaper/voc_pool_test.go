package shaper

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
)

func TestPoolValidate(t *testing.T) {
	t.Parallel()
	valid := func() Bucket {
		return pooled("b", 10, 1, Pool{Name: "p", Rate: perSecond(100), Burst: 5, MaxInFlight: 3, Quotas: []admission.Rate{perSecond(7)}})
	}
	if err := valid().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(b *Bucket){
		"pool.name: \"P\"":        func(b *Bucket) { b.Pool.Name = "P" },
		"pool.name: \"b\"":        func(b *Bucket) { b.Pool.Name = "b" },
		"pool.rate: is missing":   func(b *Bucket) { b.Pool.Rate = admission.Rate{} },
		"pool.rate: \"5 tokens":   func(b *Bucket) { b.Pool.Rate = admission.Rate{Count: 5, Per: time.Second, Unit: "tokens"} },
		"pool.burst: -1":          func(b *Bucket) { b.Pool.Burst = -1 },
		"pool.burst: 1000001":     func(b *Bucket) { b.Pool.Burst = MaxBurst + 1 },
		"pool.burst: 100000: at":  func(b *Bucket) { b.Pool.Burst, b.Pool.Rate.Per = 100_000, 31*24*time.Hour; b.Pool.Rate.Count = 1 },
		"pool.max_in_flight: -1":  func(b *Bucket) { b.Pool.MaxInFlight = -1 },
		"pool.quotas":             func(b *Bucket) { b.Pool.Quotas = []admission.Rate{{Count: -1, Per: time.Second}} },
		"weight: -1: want 1 to":   func(b *Bucket) { b.Weight = -1 },
		"weight: 1001: want 1 to": func(b *Bucket) { b.Weight = MaxWeight + 1 },
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
	b := pooled("b", 100, 1, Pool{Name: "p", Rate: perSecond(100), MaxInFlight: 256})
	if warnings := append(b.PoolWarnings(), testBucket("x", 1).PoolWarnings()...); len(warnings) != 0 {
		t.Errorf("%q", warnings)
	}
	b.Pool.Rate.Count, b.Pool.MaxInFlight = 99, 255
	want := `[rate: 100/s is more than the 99/s of its pool "p", which holds max_in_flight: 256 is more than the 255 of its pool "p", which holds]`
	if got := fmt.Sprint(b.PoolWarnings()); got != want {
		t.Errorf("%s", got)
	}
}
