package store

import (
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
)

// A bucket that stays is the same, and is written again only if its settings have changed. One that changes its pool, or leaves and comes
// back, is another. What is not valid changes nothing.
func TestReconfigure(t *testing.T) {
	t.Parallel()
	bucket := func(name string) shaper.Bucket {
		b := shaper.DefaultBucket()
		b.Name, b.Rate = name, admission.Rate{Count: 10, Per: time.Second, Unit: admission.UnitRequests}
		return b
	}
	a, b := bucket("a"), bucket("b")
	s := must.Get(New(Authoritative, redistest.Start(t).Client(), []shaper.Bucket{a, b}, 0, nil, nil))(t)
	must.OK(t, s.JoinPools(t.Context()))
	first := s.All()
	give := func(buckets ...shaper.Bucket) {
		t.Helper()
		must.OK(t, s.Reconfigure(buckets))
	}
	faster := a
	faster.Rate.Count++
	give(b, faster)
	if names := strings.Join(s.Names(), " "); names != "b a" || s.Known("a") != first[0] || s.Known("b") != first[1] {
		t.Errorf("the buckets are %s, or are others", names)
	}
	if s.Known("a").Configured.Load() || !s.Known("b").Configured.Load() {
		t.Error("the bucket that has changed is not written again, or the other one is")
	}

	alone := shaper.DefaultFlowSettings()
	alone.Key = shaper.FlowKeyJob
	flowing := faster
	flowing.Flow = &alone
	if err := s.Reconfigure([]shaper.Bucket{flowing}); err == nil || !strings.Contains(err.Error(), "restart with it empty") || len(s.All()) != 2 {
		t.Errorf("a bucket got flows: %v, %d buckets", err, len(s.All()))
	}
	give(b)
	if s.Known("a") != nil {
		t.Error("a bucket that left is known")
	}
	pooled := b
	pooled.Pool = &shaper.Pool{Name: "p", Rate: b.Rate}
	give(faster, pooled)
	if s.Known("a") == first[0] || s.Known("b") == first[1] || s.Known("b").Keys.Pool != "p" {
		t.Error("a bucket that came back, or has another pool, is the one of before")
	}
	if !first[1].joined.Load() || s.Known("b").joined.Load() {
		t.Error("the bucket of before would go back to its place, or the new one would not go there")
	}
	s.Close()
	if err := s.Reconfigure(nil); err == nil {
		t.Error("a store that is closed was given buckets")
	}
}
