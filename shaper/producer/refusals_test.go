package producer_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Who is refused in a batch is told a time that holds after all of it: jobs behind
// it that cost less may have spent what it waits for. A process that remembers a
// refusal forgets it when the same caller gets in with less.
func TestRetryAfterOfMixedCosts(t *testing.T) {
	t.Parallel()
	for _, algorithm := range admission.Algorithms() {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			b := rig.Bucket("mixed", 1000)
			b.Limits = []admission.Limit{
				{Name: "l", Algorithm: algorithm, Per: []string{admission.PerCaller}, Limit: rig.Rate("20/24h")},
				{Name: "all", Algorithm: admission.TokenBucket, Limit: rig.Rate("100/h"), Burst: 100_000},
			}
			both := rig.Clients(t, 2, b)
			random := rand.New(rand.NewPCG(1, 2))
			refused := 0
			for batch := range 30 {
				var jobs []shaper.Job
				for range 2 + random.IntN(8) {
					jobs = append(jobs, shaper.Job{
						Bucket: "mixed", Payload: []byte("x"), Cost: 1 + random.Int64N(12),
						Identity: admission.Identity{Caller: fmt.Sprint("c", batch/3)},
					})
				}
				receipts := must.Get(both[0].Enqueue(t.Context(), jobs...))(t)
				for i, told := range receipts {
					if told.Refusal == nil {
						continue
					}
					refused++
					// Another process knows of no refusals, and asks. A refusal spends nothing.
					now, err := both[1].Enqueue(t.Context(), jobs[i])
					if err != nil || now[0].Refusal == nil || now[0].Refusal.RetryAfter > told.Refusal.RetryAfter {
						t.Errorf("batch %d, job %d of cost %d: told %+v, and then %+v, %v", batch, i, jobs[i].Cost, told.Refusal, now[0].Refusal, err)
					}
					for n, d := range told.Decisions {
						if later := now[0].Decisions[n]; later.Remaining < d.Remaining {
							t.Errorf("batch %d, job %d: %+v, and then %+v", batch, i, d, later)
						}
					}
				}
			}
			t.Logf("%d refused", refused)
		})
	}
}

// The limits of a bucket have no more keys than they may have, however many
// processes enqueue at once; callers above share one.
func TestMaxKeysOfABucket(t *testing.T) {
	t.Parallel()
	const most, callers = 20, 200
	b := rig.Bucket("keys", 1)
	b.Capacity = 10_000
	b.Limits = []admission.Limit{
		{Name: "all", Limit: rig.Rate("100000/h"), MaxKeys: 1},
		{Name: "l", Algorithm: admission.SlidingWindowLog, Per: []string{admission.PerCaller}, Limit: rig.Rate("5/24h"), MaxKeys: most},
	}
	registry := prometheus.NewRegistry()
	server := redistest.Start(t)
	var in, own, above atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		c := must.Get(rig.NewActors(producer.Config{Redis: rig.Connect(t, server.Addr()), Buckets: []shaper.Bucket{b}, Registerer: registry}))(t)
		t.Cleanup(c.Close)
		for worker := range 4 {
			all.Go(func() {
				for i := worker; i < callers; i += 4 {
					receipts, err := c.Enqueue(t.Context(), shaper.Job{Bucket: "keys", Payload: []byte("x"), Identity: admission.Identity{Caller: fmt.Sprint("c", i)}})
					if err != nil {
						t.Error(err)
						return
					}
					r := receipts[0]
					if r.Refusal == nil {
						in.Add(1)
					}
					switch d := r.Decisions[1]; {
					case d.Overflow && d.Source == admission.FromStore:
						above.Add(1)
					case !d.Overflow && r.Refusal == nil && !r.Decisions[0].Overflow:
						own.Add(1)
					}
				}
			})
		}
	}
	all.Wait()
	if in.Load() != 4*most+5 || own.Load() != 4*most {
		t.Errorf("%d got in, %d by keys of their own; want %d and %d", in.Load(), own.Load(), 4*most+5, 4*most)
	}
	must.Equal(t, len(server.Client().Keys(t.Context(), "tundish:{keys}:b:keys:limit:l:*").Val()), most+1, "keys, want %d and the shared one", most)
	if n := rig.Scrape(t, registry, "tundish_admission_overflow")["tundish_admission_overflow_total{bucket=keys,limit=l}"]; int64(n) != above.Load() || n == 0 {
		t.Errorf("the metric says %.0f, want %d", n, above.Load())
	}
}

// A caller that is known to be out of quota is refused without a call of Redis, as Redis would
// refuse him; a job that may be there already is asked about all the same.
func TestKnownRefusals(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("hot", 1000)
	b.Limits = []admission.Limit{
		{Name: "l", Per: []string{admission.PerCaller}, Algorithm: admission.FixedWindow, Limit: rig.Rate("5/744h"), Tiers: map[string]admission.Rate{"pro": rig.Rate("9/744h")}},
		{Name: "all", Limit: rig.Rate("1000/s")},
	}
	w := rig.NewWorld(t, b)
	named, unnamed := rig.Caller("ada"), rig.Caller("ada")
	unnamed.ID = rig.Generated
	named.ID = "named"
	rig.Admitted(t, w.Client, 1, named)
	in, asked := rig.Admitted(t, w.Client, 5, unnamed)
	if in != 4 {
		t.Fatal(in)
	}
	scripts := func() (n int64) {
		info := must.Get(w.Server.Client().Info(t.Context(), "commandstats").Result())(t)
		for line := range strings.Lines(info) {
			_, _ = fmt.Sscanf(line, "cmdstat_fcall:calls=%d", &n)
		}
		return n
	}
	before, began, fromMemory := scripts(), time.Now(), 0
	for range 100 {
		in, last := rig.Admitted(t, w.Client, 3, unnamed)
		if last.Decisions[0].Source == admission.FromMemory {
			fromMemory++
		}
		if in != 0 || last.Refusal.Reason != shaper.ReasonLimit || len(last.Decisions) != 2 ||
			last.Refusal.RetryAfter > asked.Refusal.RetryAfter || last.ID == asked.ID {
			t.Fatalf("%+v %+v, when asked %+v", last, last.Refusal, asked.Refusal)
		}
	}
	seconds := int(time.Since(began).Seconds()) // for so long a refusal is remembered
	if n := scripts() - before; n > int64(2+seconds) || fromMemory < 98-seconds {
		t.Errorf("%d scriptCalls in %d s, and %d of 100 answers from memory", n, seconds, fromMemory)
	}
	if in, last := rig.Admitted(t, w.Client, 1, named); in != 1 || !last.Duplicate {
		t.Errorf("a job that is there: %+v", last)
	}
	if in, _ := rig.Admitted(t, w.Client, 1, rig.Caller("bob")); in != 1 {
		t.Error("another caller is refused")
	}
	pro := unnamed
	pro.Identity.Tier = "pro"
	if in, _ := rig.Admitted(t, w.Client, 1, pro); in != 1 {
		t.Error("another tier is refused")
	}
	more := rig.Rate("10/744h")
	must.OK(t, w.Client.OverrideLimit(t.Context(), "l", admission.Patch{Limit: &more}))
	if in, _ := rig.Admitted(t, w.Client, 1, unnamed); in != 1 {
		t.Error("refused after the limit was raised here")
	}
}

// A limit in shadow mode refuses nobody, and what it would have refused is counted and logged;
// what an enforced limit refuses is counted under its name, too.
func TestShadowLimitIsCounted(t *testing.T) {
	t.Parallel()
	fiveAMinute := admission.Rate{Count: 5, Per: time.Minute, Unit: admission.UnitRequests}
	b := rig.Bucket("b", 1)
	b.Limits = []admission.Limit{
		{Name: "trial", Algorithm: admission.FixedWindow, Limit: fiveAMinute, Mode: admission.Shadow},
		{Name: "real", Algorithm: admission.FixedWindow, Limit: admission.Rate{Count: 10, Per: time.Minute, Unit: admission.UnitRequests}},
	}
	mini := redistest.Miniredis(t)
	mini.SetTime(time.UnixMicro(1783228800123456)) // all of it in one window
	var text bytes.Buffer
	registry := prometheus.NewRegistry()
	client := must.Get(rig.NewActors(producer.Config{
		Redis: redistest.ClientOf(t, mini), Buckets: []shaper.Bucket{b}, Registerer: registry, Logger: slog.New(slog.NewTextHandler(&text, nil)),
	}))(t)
	counted := func(limit, outcome string) float64 {
		return rig.Scrape(t, registry, "tundish_admission_limit")["tundish_admission_limit_refusals_total{bucket=b,limit="+limit+",outcome="+outcome+"}"]
	}
	must.Equal(t, len(rig.Scrape(t, registry, "tundish_admission_limit")), 6, "series before the first job")
	would, refused := 0, 0
	for range 12 {
		receipts := must.Get(client.Enqueue(t.Context(), shaper.Job{Bucket: "b", Payload: []byte("x")}))(t)
		if receipts[0].Refusal != nil {
			refused++
		}
		for _, d := range receipts[0].Decisions {
			if d.WouldRefuse {
				would++
			}
		}
	}
	if would != 7 || refused != 2 || counted("trial", "shadow_refused") != 7 || counted("real", "refused") != 2 || counted("trial", "refused") != 0 {
		t.Errorf("%d would have been refused and %d were; counted %v and %v", would, refused, counted("trial", "shadow_refused"), counted("real", "refused"))
	}
	if n := strings.Count(text.String(), "a limit in shadow mode would have refused"); n != 1 || !strings.Contains(text.String(), "limit=trial would_have_refused=1 such_as=") {
		t.Errorf("%d lines: %s", n, &text)
	}
	if _, err := client.Enqueue(t.Context(), shaper.Job{Bucket: "b", Payload: []byte("x"), Cost: 11}); err != nil || counted("real", "impossible") != 1 {
		t.Errorf("%v impossible, %v", counted("real", "impossible"), err)
	}
}
