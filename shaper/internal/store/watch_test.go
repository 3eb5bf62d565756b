package store_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// What others change of a bucket or a pool is logged once, with their names.
func TestWatch(t *testing.T) {
	t.Parallel()
	pool := shaper.Pool{Name: "p", Rate: rig.PerSecond(100)}
	w := rig.NewPoolWorld(t, rig.Pooled("a", 10, 1, pool), rig.Pooled("b", 20, 1, pool))
	var log bytes.Buffer
	s := ownerOf(t, w.Server.Client(), "this one", slog.New(slog.NewTextHandler(&log, nil)), w.Buckets...)
	told := func() string {
		s.Watch(t.Context())
		var lines []string
		for line := range strings.Lines(log.String()) {
			_, text, _ := strings.Cut(strings.TrimSpace(line), "msg=")
			lines = append(lines, text)
		}
		log.Reset()
		return strings.Join(lines, "\n")
	}
	is := func(what, want string) {
		t.Helper()
		if got := told(); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
		must.Equal(t, told(), "", "%s, told twice", what)
	}
	do := func(_ any, err error) {
		t.Helper()
		must.OK(t, err)
	}
	anna := w.Client.Op.As("anna")
	is("before it is used", "")
	do(nil, s.JoinPools(t.Context()))
	is("seen for the first time", "")
	do(anna.Bucket("a").Set(t.Context(), rig.MustPatch(t, "rate", "5/s", "capacity", "77")))
	do(anna.Pool("p").Set(t.Context(), rig.MustPatch(t, "rate", "50/s", "max_in_flight", "9")))
	got := told()
	for _, part := range []string{
		`"what is in force was changed" bucket=a changes="rate 10/s → 5/s, capacity 10000 → 77" by=anna action=set at=`,
		`"what is in force was changed" pool=p changes="rate 100/s → 50/s, max_in_flight 0 → 9" by=anna action=set at=`,
	} {
		must.Equal(t, strings.Count(got, part), 1, "set: got\n%s\nwant once\n%s", got, part)
	}
	is("set, told once", "")
	do(nil, anna.Bucket("b").Pause(t.Context(), "a test"))
	is("paused", `"a bucket was paused or resumed" bucket=b before=running after="paused since `)
	do(anna.Bucket("b").Resume(t.Context()))
	is("resumed", `"a bucket was paused or resumed" bucket=b before="paused since `)
	do(anna.Bucket("a").Reset(t.Context(), shaper.SettingRate))
	is("reset", `"what is in force was changed" bucket=a changes="rate 5/s → 10/s" by=anna action=reset at=`)
	slower := pool
	slower.Rate = rig.PerSecond(90)
	faster := rig.Pooled("b", 30, 1, slower)
	do(nil, ownerOf(t, w.Server.Client(), "another", nil, faster).JoinPools(t.Context()))
	got = told()
	for _, part := range []string{
		`"another process changed the settings in force" pool=p changes="rate 100/s → 90/s" by=another at=`,
		`"another process changed the settings in force" bucket=b changes="rate 20/s → 30/s" by=another at=`,
		`started or reloaded last" bucket=a differences="pool.rate 100/s here, 90/s in force" written_by=another`,
		`started or reloaded last" bucket=b differences="rate 20/s here, 30/s in force; pool.rate 100/s here, 90/s in force" written_by=another`,
	} {
		must.Equal(t, strings.Count(got, part), 1, "configured: got\n%s\nwant once\n%s", got, part)
	}
	if lines := strings.Count(got, "\n") + 1; lines != 4 || told() != "" {
		t.Errorf("%d lines were logged, or some twice:\n%s", lines, got)
	}

	// A conf that was lost is no change, and is told once. One that cannot be seen is not lost.
	do(nil, w.Server.Client().Del(t.Context(), store.TaggedKeys("p", "b").Conf()).Err())
	is("lost", `"redis has lost data: `)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.Watch(ended)
	is("after a look that failed", "")
}

// An unset max_in_flight follows the rate. Where an operator overrides the rate, or resets it, both are told once and as the operator's, by a
// dispatcher and by a producer, and stand in the record of changes. So is an override that ends where the configuration has the same value.
func TestWatchOfOverrides(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		b := rig.Bucket("b", 50)
		b.MaxInFlight, b.DeliveryTimeout = 0, time.Second
		var log bytes.Buffer
		owner := ownerOf(t, conn, "dispatcher", slog.New(slog.NewTextHandler(&log, nil)), b)
		readOnly := must.Get(store.New(store.ReadOnly, conn, []shaper.Bucket{b}, 0, owner.Log, nil))(t)
		must.OK(t, owner.JoinPools(t.Context()))
		must.Get(readOnly.Use(t.Context(), "b"))(t)
		is := func(what, want string) {
			t.Helper()
			for range 2 {
				owner.Watch(t.Context())
				readOnly.Watch(t.Context())
			}
			var texts []string
			for line := range strings.Lines(log.String()) {
				_, text, _ := strings.Cut(line, "level=")
				text, _, _ = strings.Cut(text, " at=")
				if !strings.Contains(text, "settings of this process are not those") {
					texts = append(texts, strings.TrimSpace(text))
				}
			}
			log.Reset()
			if got := strings.Join(texts, "\n"); got != strings.TrimSpace(want+"\n"+want) {
				t.Errorf("%s: told is\n%s\nwant twice\n%s", what, got, want)
			}
		}
		record := func(what, want string) {
			t.Helper()
			k := store.BucketKeys("b")
			newest := owner.Authorships(t.Context(), []store.Keys{k}, true)[k.Prefix].Changes[0]
			must.Equal(t, newest.By+" "+newest.Action+" "+store.ChangesText(newest.Changes), want, "%s: recorded is", what)
		}
		is("nothing", "")
		anna := clientWith(t, conn, b).Op.As("anna").Bucket("b")
		must.Get(anna.Set(t.Context(), rig.MustPatch(t, "rate", "125/s")))(t)
		is("set", `INFO msg="what is in force was changed" bucket=b changes="rate 50/s → 125/s, max_in_flight 50 → 125" by=anna action=set`)
		record("set", "anna set rate 50/s → 125/s, max_in_flight 50 → 125")
		must.Get(anna.Set(t.Context(), rig.MustPatch(t, "rate", "125/s")))(t)
		is("set again", "")
		must.Get(anna.Reset(t.Context()))(t)
		is("reset", `INFO msg="what is in force was changed" bucket=b changes="rate 125/s → 50/s, max_in_flight 125 → 50" by=anna action=reset`)
		record("reset", "anna reset rate 125/s → 50/s, max_in_flight 125 → 50")
		must.Get(anna.Reset(t.Context()))(t)
		is("reset again", "")
		must.Get(anna.Set(t.Context(), rig.MustPatch(t, "rate", "50/s")))(t)
		is("set as configured", `INFO msg="what is in force was changed" bucket=b changes="rate 50/s → 50/s" by=anna action=set`)
		must.Get(anna.Set(t.Context(), rig.MustPatch(t, "max_in_flight", "9", "rate", "125/s")))(t)
		is("a bound of its own", `INFO msg="what is in force was changed" bucket=b changes="rate 50/s → 125/s, max_in_flight 50 → 9" by=anna action=set`)
		must.Get(anna.Reset(t.Context(), shaper.SettingMaxInFlight))(t)
		is("the bound is reset", `INFO msg="what is in force was changed" bucket=b changes="max_in_flight 9 → 125" by=anna action=reset`)
		must.Get(anna.Reset(t.Context()))(t)
		is("all is reset", `INFO msg="what is in force was changed" bucket=b changes="rate 125/s → 50/s, max_in_flight 125 → 50" by=anna action=reset`)
	})
}

// Settings that Redis has lost are told once for all buckets, whether or not a process has written them again, and whoever does. A pause
// that was lost was not resumed by an operator, and an override that was lost was not reset. A bucket that changes its pool has lost nothing.
func TestWatchTellsWhatRedisLost(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		pool := &shaper.Pool{Name: "p", Rate: rig.PerSecond(100)}
		var buckets []shaper.Bucket
		for i := range 30 {
			buckets = append(buckets, rig.In(pool, rig.Bucket(fmt.Sprintf("b%02d", i), 10)))
		}
		var log bytes.Buffer
		reg := prometheus.NewRegistry()
		s := must.Get(store.New(store.Authoritative, conn, buckets, 0, slog.New(slog.NewTextHandler(&log, nil)), reg))(t)
		op := clientWith(t, conn, buckets...).Op.As("anna")
		for _, again := range []struct {
			what   string
			writes func()
		}{
			{"nobody", func() {}},
			{"this process", func() {
				for _, b := range s.All() {
					b.Configured.Store(false)
				}
				if err := s.JoinPools(t.Context()); err != nil {
					t.Error(err)
				}
			}},
			{"another dispatcher", func() {
				if err := ownerOf(t, conn, "another", nil, buckets...).JoinPools(t.Context()); err != nil {
					t.Error(err)
				}
			}},
			{"a producer", func() {
				readOnly, err := store.New(store.ReadOnly, conn, buckets, 0, nil, nil)
				if err == nil {
					err = readOnly.JoinPools(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}},
		} {
			conn.FlushAll(t.Context())
			for _, b := range s.All() {
				b.Configured.Store(false)
			}
			must.OK(t, s.JoinPools(t.Context()))
			must.OK(t, op.Bucket("b00").Pause(t.Context(), "a test"))
			must.Get(op.Bucket("b01").Set(t.Context(), rig.MustPatch(t, "rate", "5/s")))(t)
			must.Get(op.Pool("p").Set(t.Context(), rig.MustPatch(t, "rate", "50/s")))(t)
			s.Watch(t.Context())
			log.Reset()
			const counted = `tundish_settings_lost_total{bucket=b00}`
			before := rig.Scrape(t, reg, "tundish_settings")[counted]
			conn.FlushAll(t.Context())
			again.writes()
			for n := range 3 { // a wake-up of one bucket; then all
				s.WatchSome(t.Context(), func(b *store.Bucket) bool { return n > 0 || b.Name == "b07" })
			}
			var lines []string
			for line := range strings.Lines(log.String()) {
				if !strings.Contains(line, "another process changed") && !strings.Contains(line, "this process differs") {
					lines = append(lines, line)
				}
			}
			if len(lines) != 1 || !strings.Contains(lines[0], "level=ERROR") || !strings.Contains(lines[0], `b18, b19 and 10 more" pools=`) || !strings.Contains(lines[0], "count=30") {
				t.Errorf("%s writes them again: logged is\n%s", again.what, strings.Join(lines, ""))
			}
			must.Equal(t, rig.Scrape(t, reg, "tundish_settings")[counted]-before, 1, "%s writes them again: losses were counted", again.what)
		}

		log.Reset()
		moved := rig.Bucket("b00", 10)
		moved.Revision = 1
		must.OK(t, ownerOf(t, conn, "another", nil, moved).JoinPools(t.Context()))
		s.Watch(t.Context())
		if strings.Contains(log.String(), "has lost data") {
			t.Errorf("a bucket that left for another pool: logged is\n%s", log.String())
		}
	})
}

// ownerOf is a dispatcher's store of buckets.
func ownerOf(t *testing.T, conn redis.UniversalClient, by string, log *slog.Logger, buckets ...shaper.Bucket) *store.Store {
	t.Helper()
	s := must.Get(store.New(store.Authoritative, conn, buckets, 0, log, nil))(t)
	s.By = by
	return s
}

// The settings of a dispatcher that runs come back after all was lost, though another process was first: a producer with an old file, or a
// dispatcher that started earlier. Of two dispatchers, the one that started last has its settings in
// force in the end, whichever comes first, and so has one of a higher revision.
func TestSettingsComeBack(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		rated := func(perSecond, revision int64) shaper.Bucket {
			b := rig.In(&shaper.Pool{Name: "p", Rate: rig.PerSecond(10 * perSecond), Revision: revision}, rig.Bucket("b", perSecond))
			b.Revision = revision
			return b
		}
		first, last := ownerOf(t, conn, "first", nil, rated(20, 0)), ownerOf(t, conn, "last", nil, rated(30, 0))
		must.OK(t, first.JoinPools(t.Context()))
		must.OK(t, last.JoinPools(t.Context()))
		k := store.TaggedKeys("p", "b")
		// looks has each dispatcher look once, as within ten seconds, and write what it is told to.
		looks := func() {
			t.Helper()
			for _, s := range []*store.Store{first, last, first} {
				for _, b := range s.Watch(t.Context()) {
					must.OK(t, s.Join(t.Context(), b))
				}
			}
		}
		inForce := func(what, rate string) {
			t.Helper()
			looks()
			got := fmt.Sprint(conn.HGet(t.Context(), k.Conf(), "rate_count").Val(), " ", conn.HGet(t.Context(), store.PoolConf("p"), "rate_count").Val())
			if want := rate + " " + rate + "0"; got != want {
				t.Errorf("%s: %s is in force, want %s", what, got, want)
			}
		}
		inForce("both started", "30")
		for what, comes := range map[string]func(){
			"an old producer": func() { mustEnqueue(t, clientWith(t, conn, rated(2000, 9)), "x") },
			"the earlier dispatcher": func() {
				first.Known("b").Configured.Store(false)
				must.OK(t, first.Join(t.Context(), first.Known("b")))
			},
		} {
			conn.FlushAll(t.Context())
			comes()
			inForce(what+" is first after all was lost", "30")
			if by := conn.HMGet(t.Context(), k.Conf(), "by", "owned").Val(); fmt.Sprint(by) != "[last 1]" {
				t.Errorf("%s: written by %v", what, by)
			}
		}
		restarted := ownerOf(t, conn, "restarted", nil, rated(40, 0))
		must.OK(t, restarted.JoinPools(t.Context()))
		inForce("an old process that restarts", "40")
		must.OK(t, last.Reconfigure([]shaper.Bucket{rated(50, 1)}))
		must.OK(t, last.JoinPools(t.Context()))
		must.OK(t, ownerOf(t, conn, "restarted again", nil, rated(40, 0)).JoinPools(t.Context()))
		inForce("a higher revision", "50")
	})
}
