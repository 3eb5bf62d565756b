package shaper

import (
	"errors"
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

// All buckets of a pool say the same of it.
func TestPoolIsTheSameToAll(t *testing.T) {
	t.Parallel()
	pool := Pool{Name: "p", Rate: perSecond(100)}
	a, b := pooled("a", 10, 1, pool), pooled("b", 10, 1, pool)
	b.Pool.Burst = 1 // as where none is given
	w := newPoolWorld(t, a, b)
	for name, change := range map[string]func(p *Pool){
		"rate": func(p *Pool) { p.Rate.Count++ }, "burst": func(p *Pool) { p.Burst = 2 }, "bound": func(p *Pool) { p.MaxInFlight = 5 },
		"quotas": func(p *Pool) { p.Quotas = []admission.Rate{perSecond(9)} }, "revision": func(p *Pool) { p.Revision = 1 },
	} {
		other := pooled("b", 10, 1, pool)
		change(other.Pool)
		if _, err := newActors(ClientConfig{Redis: w.server.Client(), Buckets: []Bucket{a, other}}); err == nil || !strings.Contains(err.Error(), `pool "p": its settings differ`) {
			t.Errorf("another %s: %v", name, err)
		}
		if err := w.client.Reconfigure([]Bucket{a, other}); err == nil {
			t.Errorf("reconfigured with another %s", name)
		}
	}
	// It stays where it is while it is in use, and its pool may change.
	if err := w.client.Reconfigure([]Bucket{testBucket("a", 10)}); err == nil || !strings.Contains(err.Error(), `bucket "a" cannot leave pool "p" while this process runs: restart this process`) {
		t.Errorf("it left: %v", err)
	}
	faster := pool
	faster.Rate = perSecond(300)
	if err := w.client.Reconfigure([]Bucket{pooled("a", 10, 1, faster), pooled("b", 10, 1, faster)}); err != nil {
		t.Fatal(err)
	}
	w.enqueue("a", 1, nil)
	if infos, err := w.client.op.BucketInfos(t.Context(), "a"); err != nil || infos[0].Pool.Rate != faster.Rate {
		t.Errorf("%+v, %v", infos, err)
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

// An operator changes a pool over what configurations say, until it is taken back.
func TestControlOfAPool(t *testing.T) {
	t.Parallel()
	pool := Pool{Name: "p", Rate: perSecond(100), MaxInFlight: 5}
	w := newPoolWorld(t, pooled("b", 10, 1, pool))
	control := w.client.op.Control("anna")
	patch := func(setting Setting, value string) (p BucketPatch) {
		if err := p.Put(setting, value); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, test := range []struct {
		setting Setting
		value   string
		want    string
	}{
		{SettingRate, "20/s", "[rate 100/s → 20/s]"}, {SettingMaxInFlight, "0", "[max_in_flight 5 → 0]"}, {SettingBurst, "3", "[burst 1 → 3]"},
	} {
		if changes, err := control.SetPool(t.Context(), "p", patch(test.setting, test.value)); err != nil || fmt.Sprint(changes) != test.want {
			t.Errorf("%v, %v", changes, err)
		}
	}
	inForce := func() string {
		infos, err := w.clientOf(pooled("b", 10, 1, pool)).op.BucketInfos(t.Context()) // another process
		if err != nil {
			t.Fatal(err)
		}
		p := infos[0].Pool
		return fmt.Sprint(p.Rate, " ", p.Burst, " ", p.MaxInFlight)
	}
	w.client = w.clientOf(w.buckets...)
	w.enqueue("b", 1, nil) // its configuration is written again
	if got := inForce(); got != "20/s 3 0" {
		t.Errorf("in force: %s", got)
	}
	for _, bad := range []BucketPatch{{}, patch(SettingCapacity, "5"), patch(SettingBurst, "0"), patch(SettingBurst, "-1"), patch(SettingMaxInFlight, "-1")} {
		var invalid *InvalidChangeError
		if changes, err := control.SetPool(t.Context(), "p", bad); !errors.As(err, &invalid) {
			t.Errorf("%+v: %v, %v", bad, changes, err)
		}
	}
	for _, name := range []string{"other", "No name"} {
		if _, err := control.SetPool(t.Context(), name, patch(SettingRate, "1/s")); !errors.Is(err, ErrUnknownPool) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := control.ResetPool(t.Context(), name); !errors.Is(err, ErrUnknownPool) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := control.ResetPool(t.Context(), "p", SettingShedLow); err == nil {
		t.Error("a pool sheds")
	}
	if changes, err := control.ResetPool(t.Context(), "p"); err != nil || fmt.Sprint(changes) != "[rate 20/s → 100/s burst 3 → 1 max_in_flight 0 → 5]" {
		t.Errorf("%v, %v", changes, err)
	}
	if got := inForce(); got != "100/s 1 5" {
		t.Errorf("in force: %s", got)
	}
}
