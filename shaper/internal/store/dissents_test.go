package store_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// A process that is not of one mind with the others is named beside the bucket, as long as it is so; what dispatchers changed lately, too.
func TestDissents(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		is, was := rig.Flowing("b", shaper.FlowKeyJob), rig.Flowing("b", shaper.FlowKeyJob)
		is.Rate, is.Flow.DefaultURL = rig.PerSecond(30), "https://a.example/secret"
		var log bytes.Buffer
		old := ownerOf(t, conn, "dispatcher 1 on old", nil, was)
		must.OK(t, old.JoinPools(t.Context()))
		late := ownerOf(t, conn, "dispatcher 2 on new", slog.New(slog.NewTextHandler(&log, nil)), is)
		must.OK(t, late.JoinPools(t.Context()))
		if text := log.String(); !strings.Contains(text, `msg="this process changed the settings in force" bucket=b changes="rate 1/s → 30/s, url  → https://a.example/***"`) {
			t.Errorf("logged is\n%s", text)
		}
		producer := must.Get(store.New(store.ReadOnly, conn, []shaper.Bucket{was}, 0, nil, nil))(t)
		producer.By = "producer 3 on web"
		must.Get(producer.Use(t.Context(), "b"))(t)
		seen := func() shaper.Authorship {
			t.Helper()
			for _, s := range []*store.Store{old, late, producer} {
				s.Watch(t.Context())
			}
			all := late.Authorships(t.Context(), []store.Keys{store.BucketKeys("b")}, true)
			must.Be(t, len(all), 1, "nothing is known: %v", all)
			return all[store.BucketKeys("b").Prefix]
		}
		a := seen()
		if a.By != "dispatcher 2 on new" || a.At.IsZero() || a.Provisional || len(a.Changes) != 1 || a.Changes[0].By != a.By ||
			store.ChangesText(a.Changes[0].Changes) != "rate 1/s → 30/s, url  → https://a.example/***" {
			t.Errorf("written: %+v", a)
		}
		var names []string
		for _, d := range a.Dissents {
			names = append(names, d.Process+": "+store.DifferencesText(d.Differences))
		}
		const differs = "rate 1/s here, 30/s in force; url  here, https://a.example/*** in force"
		if got, want := strings.Join(names, "\n"), "dispatcher 1 on old: "+differs+"\nproducer 3 on web: "+differs; got != want {
			t.Errorf("these differ:\n%s\nwant\n%s", got, want)
		}
		// An override is no difference.
		must.Get(clientWith(t, conn).Op.As("anna").Bucket("b").Set(t.Context(), rig.MustPatch(t, "capacity", "7")))(t)
		if a := seen(); len(a.Dissents) != 2 || len(a.Dissents[0].Differences) != 2 {
			t.Errorf("with an override: %+v", a.Dissents)
		}
		must.OK(t, producer.Reconfigure([]shaper.Bucket{is}))
		must.Get(producer.Use(t.Context(), "b"))(t)
		if a := seen(); len(a.Dissents) != 1 || a.Dissents[0].Process != "dispatcher 1 on old" {
			t.Errorf("after a reload of the producer: %+v", a.Dissents)
		}
		must.OK(t, old.Reconfigure([]shaper.Bucket{is}))
		must.OK(t, old.JoinPools(t.Context()))
		if a := seen(); len(a.Dissents) != 0 || a.By != "dispatcher 1 on old" {
			t.Errorf("of one mind: %+v", a)
		}
	})
}

// Each field that is written of a bucket has a name for people, but the timetable, which follows from the plan.
func TestEverySettingHasAName(t *testing.T) {
	t.Parallel()
	b := rig.In(rig.PoolNamed("p"), rig.Grouped("b", 10))
	if unnamed := store.UnnamedFields(&b); len(unnamed) > 0 {
		t.Errorf("these have none: %v", unnamed)
	}
}
