package httpworker

import (
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// A 401 is the fault of the credentials while it is the answer to several jobs and none is accepted: then no job ends, however long it takes. A job
// that is refused while others are accepted ends at its second try, and one that is alone after three minutes.
func TestWhoseFaultA401Is(t *testing.T) {
	t.Parallel()
	now := time.Now()
	want := func(r *refused, job string, want shaper.Result) (hold time.Duration) {
		t.Helper()
		result, hold := r.refuses(job, now)
		must.Equal(t, result, want, "%s", job)
		return hold
	}

	var r refused
	want(&r, "a", shaper.ResultRetry)
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
		for i := range 3 { // that are under way together
			must.Equal(t, want(&r, fmt.Sprint("b", i), shaper.ResultHeld), pause*time.Second, "held for, want %d s", pause)
		}
		now = now.Add(pause * time.Second)
	}
	now = now.Add(24 * time.Hour)
	want(&r, "a", shaper.ResultHeld)

	r.accepts() // the secret was replaced
	want(&r, "a", shaper.ResultDead)
	want(&r, "b0", shaper.ResultRetry)
	r.accepts()
	want(&r, "b0", shaper.ResultDead)

	want(&r, "alone", shaper.ResultRetry)
	now = now.Add(refusedAlone - time.Second)
	want(&r, "alone", shaper.ResultRetry)
	now = now.Add(time.Second)
	want(&r, "alone", shaper.ResultDead)

	r.accepts()
	for i := range 3 * mostDoubtful {
		want(&r, fmt.Sprint("c", i), shaper.ResultRetry)
		r.accepts()
	}
	if len(r.doubtful) > mostDoubtful {
		t.Errorf("%d jobs are remembered", len(r.doubtful))
	}
}
