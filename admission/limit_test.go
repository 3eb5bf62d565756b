package admission

import (
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func validLimit() Limit {
	return Limit{Name: "l", Limit: Rate{Count: 10, Per: time.Second, Unit: UnitRequests}}.WithDefaults()
}

func TestLimitValidate(t *testing.T) {
	t.Parallel()
	if l := validLimit(); l.Validate() != nil || l.Burst != 10 || l.Algorithm != TokenBucket {
		t.Fatalf("%+v: %v", l, l.Validate())
	}
	for want, change := range map[string]func(*Limit){
		"name":                   func(l *Limit) { l.Name = "No" },
		"name:":                  func(l *Limit) { l.Name = strings.Repeat("a", 64) },
		"algorithm":              func(l *Limit) { l.Algorithm = "leaky" },
		"per":                    func(l *Limit) { l.Per = []string{PerIP, "moon"} },
		"limit":                  func(l *Limit) { l.Limit.Count = 0 },
		"burst: 0":               func(l *Limit) { l.Burst = 0 },
		"burst: -1":              func(l *Limit) { l.Burst = -1 },
		"burst: 1000001":         func(l *Limit) { l.Burst = 1_000_001 },
		"days to refill":         func(l *Limit) { l.Limit, l.Burst = Rate{Count: 1, Per: MaxPeriod}, 12 },
		"cannot be counted exac": func(l *Limit) { l.Limit = Rate{Count: 999_999_937, Per: 1_000_003 * time.Millisecond} },
	} {
		l := validLimit()
		change(&l)
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got %v", want, err)
		}
	}
}

func TestLimitValidateByAlgorithm(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]Limit{
		"":                           {Algorithm: SlidingWindowLog, Limit: Rate{Count: 100_000, Per: minWindow}},
		" ":                          {Algorithm: SlidingWindowCounter, Limit: Rate{Count: 1_000_000, Per: MaxPeriod}, Precision: 100},
		"  ":                         {Algorithm: FixedWindow, Limit: Rate{Count: 1, Per: MaxPeriod}},
		"burst: 5: is for token_buc": {Algorithm: FixedWindow, Limit: Rate{Count: 5, Per: time.Second}, Burst: 5},
		"burst: 6: is for token_buc": {Algorithm: SlidingWindowLog, Limit: Rate{Count: 5, Per: time.Second}, Burst: 6},
		"burst: 7: is for token_buc": {Algorithm: SlidingWindowCounter, Limit: Rate{Count: 5, Per: time.Second}, Burst: 7},
		"precision: 2: is for":       {Limit: Rate{Count: 5, Per: time.Second}, Precision: 2},
		"precision: 3: is for":       {Algorithm: SlidingWindowLog, Limit: Rate{Count: 5, Per: time.Second}, Precision: 3},
		"precision: 4: is for":       {Algorithm: FixedWindow, Limit: Rate{Count: 5, Per: time.Second}, Precision: 4},
		"precision: 101: want":       {Algorithm: SlidingWindowCounter, Limit: Rate{Count: 5, Per: time.Second}, Precision: 101},
		"precision: -1: want":        {Algorithm: SlidingWindowCounter, Limit: Rate{Count: 5, Per: time.Second}, Precision: -1},
		"precision: 3: does not div": {Algorithm: SlidingWindowCounter, Limit: Rate{Count: 5, Per: time.Second}, Precision: 3},
		"there is sliding_window_co": {Algorithm: SlidingWindowLog, Limit: Rate{Count: 100_001, Per: time.Second}},
		"the window is 99ms":         {Algorithm: FixedWindow, Limit: Rate{Count: 5, Per: 99 * time.Millisecond}},
		"the window is 98ms":         {Algorithm: SlidingWindowLog, Limit: Rate{Count: 5, Per: 98 * time.Millisecond}},
		"the window is 97ms":         {Algorithm: SlidingWindowCounter, Limit: Rate{Count: 5, Per: 97 * time.Millisecond}},
		"the number is 0":            {Algorithm: SlidingWindowCounter, Limit: Rate{Per: time.Second}},
	} {
		l.Name = "l"
		err := l.WithDefaults().Validate()
		if valid := strings.TrimSpace(want) == ""; valid != (err == nil) || !valid && !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// What the scripts and the header are told of each algorithm.
func TestParamsByAlgorithm(t *testing.T) {
	t.Parallel()
	rate := Rate{Count: 100, Per: 10 * time.Second}
	for _, try := range []struct {
		limit  Limit
		params Params
		quota  int64
		window time.Duration
	}{
		{Limit{Limit: rate, Burst: 50}, Params{TokenBucket, 10, 1, 50_000_000}, 50, 5 * time.Second},
		{Limit{Algorithm: SlidingWindowLog, Limit: rate}, Params{SlidingWindowLog, 0, 10_000_000, 100}, 100, 10 * time.Second},
		{Limit{Algorithm: SlidingWindowCounter, Limit: rate}, Params{SlidingWindowCounter, 1, 10_000_000, 100}, 100, 10 * time.Second},
		{
			Limit{Algorithm: SlidingWindowCounter, Limit: rate, Precision: 10},
			Params{SlidingWindowCounter, 10, 1_000_000, 100}, 100, 10 * time.Second,
		},
		{Limit{Algorithm: FixedWindow, Limit: rate}, Params{FixedWindow, 0, 10_000_000, 100}, 100, 10 * time.Second},
	} {
		l := try.limit.WithDefaults()
		if got := l.Params(); got != try.params {
			t.Errorf("%s: %+v, want %+v", l.Algorithm, got, try.params)
		}
		if d := l.Decide(0, 1, 0, 0); d.Quota != try.quota || d.Window != try.window {
			t.Errorf("%s: %+v, want %d in %s", l.Algorithm, d, try.quota, try.window)
		}
	}
}

func TestValidName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a": true, "0": true, "a.b_c-d": true, strings.Repeat("a", 63): true,
		"": false, "A": false, ".a": false, "-a": false, "a b": false, "a{b}": false, "a:b": false, "a\n": false, "é": false, strings.Repeat("a", 64): false,
	} {
		if ValidName(name) != want {
			t.Errorf("ValidName(%q) = %t", name, !want)
		}
	}
}

// The numbers of the script are the rate, in lowest terms, and small enough.
func TestParams(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := validLimit()
		l.Limit.Count = rapid.Int64Range(1, 1_000_000).Draw(t, "count")
		l.Limit.Per = time.Duration(rapid.Int64Range(1, MaxPeriod.Milliseconds()).Draw(t, "millis")) * time.Millisecond
		l.Burst = rapid.Int64Range(1, 1_000_000).Draw(t, "burst")
		if l.Validate() != nil {
			t.Skip("not a valid limit")
		}
		p := l.Params()
		if p.A < 1 || p.B < 1 || p.Full != l.Burst*1_000_000 || p.Full > 1<<53 || p.A > (1<<53)/p.B {
			t.Fatalf("%s: %+v", l.Limit, p)
		}
		// a/b micro-tokens a microsecond are count tokens a period.
		if big.NewRat(p.A, p.B).Cmp(big.NewRat(l.Limit.Count*1_000_000, l.Limit.Per.Microseconds())) != 0 {
			t.Fatalf("%s: %+v", l.Limit, p)
		}
	})
}

func TestLimitKey(t *testing.T) {
	t.Parallel()
	dimensions := [][]string{nil, {PerCaller}, {PerIP}, {PerFlow}, {PerCaller, PerFlow}, {PerFlow, PerCaller}, {PerCaller, PerIP, PerFlow}, {"header:x-tenant"}}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.SampledFrom([]string{"", "a", "b", "a:b", "6:caller", "1:a2:ip"}), rapid.String())
		draw := func(name string) (Limit, Identity) {
			l := validLimit()
			l.Per = rapid.SampledFrom(dimensions).Draw(t, "per")
			l.OnMissing = Share
			return l, Identity{Caller: text.Draw(t, name), IP: text.Draw(t, name), Flow: text.Draw(t, name),
				Headers: map[string]string{"X-Tenant": text.Draw(t, name)}}
		}
		values := func(l Limit, id Identity) (v []string) {
			for _, per := range l.Per {
				v = append(v, per, map[string]string{PerCaller: id.Caller, PerIP: id.IP, PerFlow: id.Flow, "header:x-tenant": id.Headers["X-Tenant"]}[per])
			}
			return v
		}
		l1, id1 := draw("one")
		l2, id2 := draw("two")
		k1, err1 := l1.Key(id1)
		k2, err2 := l2.Key(id2)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if (k1 == k2) != slices.Equal(values(l1, id1), values(l2, id2)) {
			t.Fatalf("%v %+v and %v %+v have the keys %s and %s", l1.Per, id1, l2.Per, id2, k1, k2)
		}
		if strings.ContainsAny(k1, "{}: \n") || len(k1) > 22 {
			t.Fatalf("key %q", k1)
		}
	})
}
