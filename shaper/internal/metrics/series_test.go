package metrics

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// TestSeriesAtZero: series that were never counted are shown at 0, each once, also while others are counted, and go with their bucket.
func TestSeriesAtZero(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	m := must.Get(New(reg))(t)
	again, err := New(reg) // another actor of the process
	must.OK(t, err)
	for _, actor := range []*Metrics{m, again} {
		actor.AddBucket("b")
		actor.AddLimit("b", "mine")
		actor.AddLimit("b", "other")
	}
	m.CountReceipt(&shaper.Receipt{Bucket: "b"})
	m.CountReceipt(&shaper.Receipt{Bucket: "unknown"})
	m.CountSweep("b", 0, 2, 0)
	m.CountOverflow("b", "mine")
	want := `
# HELP tundish_leases_reclaimed_total Leases that ran out and were taken back, by what became of the job.
# TYPE tundish_leases_reclaimed_total counter
tundish_leases_reclaimed_total{bucket="b",outcome="expired"} 0
tundish_leases_reclaimed_total{bucket="b",outcome="poison"} 2
# HELP tundish_repairs_total Jobs that the sweeper found in a wrong place and moved.
# TYPE tundish_repairs_total counter
tundish_repairs_total{bucket="b"} 0
# HELP tundish_admission_limit_refusals_total Jobs that a limit of the bucket refused, or would have refused if it were not in shadow mode. A job may be refused by several limits.
# TYPE tundish_admission_limit_refusals_total counter
`
	for _, limit := range []string{"mine", "other"} {
		for _, outcome := range []string{limitImpossible, limitRefused, limitShadowRefused} {
			want += fmt.Sprintf("tundish_admission_limit_refusals_total{bucket=\"b\",limit=%q,outcome=%q} 0\n", limit, outcome)
		}
	}
	names := []string{"tundish_leases_reclaimed_total", "tundish_repairs_total", "tundish_admission_limit_refusals_total"}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	must.Equal(t, must.Get(testutil.GatherAndCount(reg, "tundish_admission_decisions_total"))(t), len(decided)+1, "decisions")
	m.RemoveLimit("b", "mine")
	must.Equal(t, must.Get(testutil.GatherAndCount(reg, names[2], "tundish_admission_overflow_total"))(t), 3, "series of limits after one went")
	m.RemoveBucket("b")
	m.RemoveBucket("unknown")
	if n, err := testutil.GatherAndCount(reg, append(names, "tundish_admission_decisions_total", "tundish_attempts_total")...); err != nil || n != 0 {
		t.Errorf("%d series of a bucket that went, %v", n, err)
	}
}

// TestHistogramAtZero: a histogram in which nothing was noted is shown as an empty one, and one in which something was noted is shown once.
func TestHistogramAtZero(t *testing.T) {
	t.Parallel()
	of := newHistograms(prometheus.HistogramOpts{Name: "took_seconds", Help: "h", Buckets: []float64{.1, 1}})
	of.know("idle", single...)
	of.know("busy", single...)
	of.WithLabelValues("busy").Observe(.5)
	want := `
# HELP took_seconds h
# TYPE took_seconds histogram
took_seconds_bucket{bucket="busy",le="0.1"} 0
took_seconds_bucket{bucket="busy",le="1"} 1
took_seconds_bucket{bucket="busy",le="+Inf"} 1
took_seconds_sum{bucket="busy"} 0.5
took_seconds_count{bucket="busy"} 1
took_seconds_bucket{bucket="idle",le="0.1"} 0
took_seconds_bucket{bucket="idle",le="1"} 0
took_seconds_bucket{bucket="idle",le="+Inf"} 0
took_seconds_sum{bucket="idle"} 0
took_seconds_count{bucket="idle"} 0
`
	if err := testutil.CollectAndCompare(of, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	of.forget("idle")
	of.forget("busy")
	must.Equal(t, testutil.CollectAndCount(of), 0, "series are left")
}

// TestCountWhileShown: a series that is counted for the first time while metrics are shown is there once.
func TestCountWhileShown(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	m := must.Get(New(reg))(t)
	var counting sync.WaitGroup
	for i := range 50 {
		bucket := fmt.Sprint("b", i)
		m.AddBucket(bucket)
		counting.Go(func() {
			for _, action := range acted {
				m.CountAction(bucket, action[0])
			}
		})
	}
	for range 20 {
		must.Equal(t, must.Get(testutil.GatherAndCount(reg, "tundish_control_actions_total"))(t), 50*len(acted), "series")
	}
	counting.Wait()
}

// TestMemoryOfABucket: the series of a bucket in which nothing was counted take 2.5 KB at most. They took 4 KB.
func TestMemoryOfABucket(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	const buckets, most = 1000, 2500
	m := must.Get(New(prometheus.NewRegistry()))(t)
	inUse := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := inUse()
	for i := range buckets {
		m.AddBucket(fmt.Sprint("b", i))
	}
	if took := (int64(inUse()) - int64(before)) / buckets; took > most {
		t.Errorf("%d bytes a bucket", took)
	} else {
		t.Logf("%d bytes a bucket", took)
	}
	m.CountReceipt(&shaper.Receipt{Bucket: "b0"}) // it is in use until here
}
