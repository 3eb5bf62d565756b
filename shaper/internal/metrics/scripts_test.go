package metrics

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tundish-io/tundish/internal/must"
)

// The errors of a script are shown at 0 from its first run on: a rate misses an error with which a series begins.
func TestErrorsOfScriptsAtZero(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	m := must.Get(New(reg))(t)
	m.ObserveScript("claim", time.Millisecond, nil)
	m.ObserveScript("settle", time.Millisecond, errors.New("it failed"))
	want := `
# HELP tundish_redis_errors_total Scripts that failed.
# TYPE tundish_redis_errors_total counter
tundish_redis_errors_total{script="claim"} 0
tundish_redis_errors_total{script="settle"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "tundish_redis_errors_total"); err != nil {
		t.Error(err)
	}
}
