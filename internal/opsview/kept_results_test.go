package opsview

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper/operator"
)

// A bucket says how far back its results go, and when the bounds cut them short.
func TestKeptResults(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 14, 3, 50, 0, time.UTC)
	kept := operator.KeptResults{Kept: 10_000, Bytes: 1000, Max: 10_000, MaxBytes: 1 << 20, Retention: 72 * time.Hour, Oldest: now.Add(-50 * time.Second), Dropped: 7}
	view := resultsOf(&kept, now)
	const text = "10000 of 10000 kept, 1000 of 1048576 bytes, the oldest of 2026-11-30T14:03:00Z; 7 dropped by these bounds: they do not reach back result_retention (72h0m0s): raise results_max and results_bytes"
	must.Equal(t, view.Text(), text, "Text")
	const want = `{"kept":10000,"bytes":1000,"oldest":"2026-11-30T14:03:00Z","max":10000,"max_bytes":1048576,"dropped":7,"retention_seconds":259200,"short":true}`
	if got, err := json.Marshal(view); err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	for name, change := range map[string]func(*operator.KeptResults){
		"as old as they may be": func(k *operator.KeptResults) { k.Oldest = now.Add(-71 * time.Hour) },
		"with room":             func(k *operator.KeptResults) { k.Kept = 10 },
		"none was dropped":      func(k *operator.KeptResults) { k.Dropped = 0 },
	} {
		other := kept
		if change(&other); strings.Contains(resultsOf(&other, now).Text(), "do not reach back") {
			t.Errorf("%s: %s", name, resultsOf(&other, now).Text())
		}
	}
	if none := resultsOf(&operator.KeptResults{}, now); none != nil {
		t.Errorf("of a bucket that keeps none: %+v", none)
	}
}
