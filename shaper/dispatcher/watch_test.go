package dispatcher

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

// What anybody changes of a bucket or a pool is told by who dispatches, once.
func TestWatch(t *testing.T) {
	t.Parallel()
	pool := shaper.Pool{Name: "p", Rate: rig.PerSecond(100)}
	w := rig.NewPoolWorld(t, rig.Pooled("a", 10, 1, pool), rig.Pooled("b", 20, 1, pool))
	var log bytes.Buffer
	d, err := New(Config{
		Redis: rig.Connect(t, w.Server.Addr()), Buckets: w.Buckets, Workers: rig.Workers(w.Buckets, rig.NewWaiting()),
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	var drains []*drain
	for _, name := range d.store.Names() {
		drains = append(drains, newDrain(d, d.store.Known(name), t.Context()))
	}
	watches := watchesOf(d.store.Log, drains)
	if len(watches) != 3 {
		t.Fatalf("%d are watched, want two buckets and their pool", len(watches))
	}
	told := func() string {
		d.watch(t.Context(), watches)
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
		if again := told(); again != "" {
			t.Errorf("%s, told twice: %q", what, again)
		}
	}
	patch := func(settings ...string) (p operator.BucketPatch) {
		t.Helper()
		for i := 0; i < len(settings); i += 2 {
			if err := p.Put(shaper.Setting(settings[i]), settings[i+1]); err != nil {
				t.Fatal(err)
			}
		}
		return p
	}
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	anna := w.Client.Op.As("anna")
	is("before it is used", "")
	do(nil, w.Client.JoinPools(t.Context()))
	is("seen for the first time", "")
	do(anna.Bucket("a").Set(t.Context(), patch("rate", "5/s", "capacity", "77")))
	do(anna.Pool("p").Set(t.Context(), patch("rate", "50/s", "max_in_flight", "9")))
	is("set", `"what is in force was changed" bucket=a changes="rate 10/s → 5/s, capacity 10000 → 77" by=anna
"what is in force was changed" pool=p changes="rate 100/s → 50/s, max_in_flight 0 → 9" by=anna`)
	do(nil, anna.Bucket("b").Pause(t.Context(), "a test"))
	is("paused", `"a bucket was paused or resumed" bucket=b before=running after="paused since `)
	do(anna.Bucket("b").Resume(t.Context()))
	is("resumed", `"a bucket was paused or resumed" bucket=b before="paused since `)
	do(anna.Bucket("a").Reset(t.Context(), shaper.SettingRate))
	is("reset", `"what is in force was changed" bucket=a changes="rate 5/s → 10/s" by="a reset"`)
	faster := w.ClientOf(rig.Pooled("b", 30, 1, pool))
	do(nil, faster.JoinPools(t.Context()))
	is("configured", `"what is in force was changed" bucket=b changes="rate 20/s → 30/s" by="a configuration"`)

	// A conf that was lost is no change, and neither is one that cannot be seen.
	do(nil, w.Server.Client().Del(t.Context(), store.TaggedKeys("p", "b").Conf()).Err())
	is("lost", "")
	do(nil, faster.Reconfigure([]shaper.Bucket{rig.Pooled("b", 30, 1, pool)}))
	do(nil, faster.JoinPools(t.Context()))
	is("written again", "")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	d.watch(ended, watches)
	is("after a look that failed", "")
}
