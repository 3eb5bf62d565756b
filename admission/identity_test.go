package admission

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What is not known of a caller is decided by the limit, and by default refused.
func TestMissingIdentity(t *testing.T) {
	t.Parallel()
	for _, per := range []string{PerCaller, PerIP, PerFlow, "header:X-Tenant"} {
		l := validLimit()
		l.Per = []string{per}
		_, err := l.Key(Identity{Headers: map[string]string{"X-Other": "x"}})
		var missing *MissingIdentityError
		if !errors.As(err, &missing) || missing.Per != per || !strings.Contains(err.Error(), "on_missing") {
			t.Errorf("%s: %v", per, err)
		}
		l.OnMissing = Exempt
		if key, err := l.Key(Identity{}); key != "" || err != nil {
			t.Errorf("%s, exempt: %q, %v", per, key, err)
		}
		l.OnMissing = Share
		if key, err := l.Key(Identity{}); key == "" || err != nil {
			t.Errorf("%s, shared: %q, %v", per, key, err)
		}
	}
}

func TestHeaderNamesAreCanonical(t *testing.T) {
	t.Parallel()
	l := validLimit()
	l.Per = []string{"header:x-tenant-id"}
	key, err := l.Key(Identity{Headers: map[string]string{"X-Tenant-Id": "a"}})
	other, otherErr := l.Key(Identity{Headers: map[string]string{"X-Tenant-Id": "b"}})
	if err != nil || otherErr != nil || key == other {
		t.Errorf("%q %v, %q %v", key, err, other, otherErr)
	}
	if got := Headers([]Limit{l, l}); len(got) != 1 || got[0] != "X-Tenant-Id" {
		t.Errorf("%v", got)
	}
}

func TestTiers(t *testing.T) {
	t.Parallel()
	l := Limit{Name: "l", Limit: Rate{Count: 100, Per: time.Minute}, Burst: 200, Per: []string{PerCaller},
		Tiers: map[string]Rate{"pro": {Count: 1000, Per: time.Minute}}}.WithDefaults()
	if pro := l.For("pro"); pro.Limit.Count != 1000 || pro.Burst != 2000 {
		t.Errorf("%+v", pro)
	}
	if free := l.For("free"); free.Burst != 200 || free.Limit.Count != 100 {
		t.Errorf("%+v", free)
	}
	keys := map[string]string{}
	for _, tier := range []string{"", "free", "pro"} {
		keys[tier], _ = l.Key(Identity{Caller: "ada", Tier: tier})
	}
	if keys[""] != keys["free"] || keys["pro"] == keys[""] {
		t.Errorf("%v: a tier that the limit has counts apart, one that it has not does not", keys)
	}
	l.Tiers["Pro!"] = Rate{}
	l.Tiers["slow"] = Rate{Count: 1, Per: MaxPeriod}
	l.Tiers["none"] = Rate{Per: time.Second}
	err := l.Validate()
	for _, want := range []string{`tiers: "Pro!"`, "tiers.none:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s in %v", want, err)
		}
	}
}

func TestStoredLimits(t *testing.T) {
	t.Parallel()
	limits := []Limit{
		Limit{Name: "a", Algorithm: FixedWindow, Per: []string{PerCaller, "header:X-Tenant"}, Limit: Rate{Count: 5, Per: time.Hour, Unit: UnitRequests},
			Tiers: map[string]Rate{"pro": {Count: 50, Per: time.Hour, Unit: UnitRequests}}, Mode: Shadow, OnStoreFailure: Local, OnMissing: Exempt,
			SyncInterval: 50 * time.Millisecond}.WithDefaults(),
		Limit{Name: "b", Limit: Rate{Count: 7, Per: time.Minute, Unit: UnitRequests}}.WithDefaults(),
	}
	text, err := EncodeLimits(limits)
	if err != nil {
		t.Fatal(err)
	}
	conf := map[string]string{FieldLimits: text}
	got, ignored, err := DecodeLimits(conf)
	if diff := cmp.Diff(limits, got); diff != "" || err != nil || ignored != nil {
		t.Fatalf("%v %v %s", err, ignored, diff)
	}

	conf[FieldOverride+"a"] = `{"limit":"10/h","tiers":{"pro":"100/h"},"mode":"enforce"}`
	conf[FieldOverride+"b"] = `{"limit":"14/m"}`
	got, ignored, err = DecodeLimits(conf)
	if err != nil || ignored != nil {
		t.Fatal(err, ignored)
	}
	if a := got[0]; a.Limit.Count != 10 || a.Tiers["pro"].Count != 100 || a.Mode != Enforce {
		t.Errorf("%+v", a)
	}
	if b := got[1]; b.Limit.Count != 14 || b.Burst != 14 {
		t.Errorf("%+v", b)
	}
	if limits[0].Tiers["pro"].Count != 50 {
		t.Error("a override changed the limit that it is over")
	}

	for _, override := range []string{`{"tiers":{"gold":"1/s"}}`, `{"limit":"0/s"}`, `{"burst":5}`, `nonsense`} {
		conf[FieldOverride+"a"] = override
		if got, ignored, err = DecodeLimits(conf); err != nil || len(ignored) != 1 || got[0].Limit.Count != 5 {
			t.Errorf("override %s: %v, %v, %+v", override, err, ignored, got[0])
		}
	}
	for _, text := range []string{"", "{}", `[{"name":"a","algorithm":"leaky","limit":"1/s"}]`, `[{"name":"a","limit":"1"}]`} {
		if _, _, err := DecodeLimits(map[string]string{FieldLimits: text}); err == nil {
			t.Errorf("limits %q are not refused", text)
		}
	}
}

func FuzzDecodeLimits(f *testing.F) {
	f.Add(`[{"name":"a","algorithm":"fixed_window","limit":"5/s","tiers":{"pro":"5/m"}}]`, `{"limit":"3/s","burst":5}`)
	f.Fuzz(func(t *testing.T, text, override string) {
		limits, _, err := DecodeLimits(map[string]string{FieldLimits: text, FieldOverride + "a": override})
		if err != nil {
			return
		}
		for _, l := range limits {
			if err := l.Validate(); err != nil {
				t.Fatalf("%+v is in force: %v", l, err)
			}
		}
	})
}
