package shaper

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/redistest"
)

// A limit in shadow mode refuses nobody, and what it would have refused is counted and logged;
// what an enforced limit refuses is counted under its name, too.
func TestShadowLimitIsCounted(t *testing.T) {
	t.Parallel()
	fiveAMinute := admission.Rate{Count: 5, Per: time.Minute, Unit: admission.UnitRequests}
	b := testBucket("b", 1)
	b.Limits = []admission.Limit{
		{Name: "trial", Algorithm: admission.FixedWindow, Limit: fiveAMinute, Mode: admission.Shadow},
		{Name: "real", Algorithm: admission.FixedWindow, Limit: admission.Rate{Count: 10, Per: time.Minute, Unit: admission.UnitRequests}},
	}
	mini := redistest.Miniredis(t)
	mini.SetTime(time.UnixMicro(1783228800123456)) // all of it in one window
	var text bytes.Buffer
	registry := prometheus.NewRegistry()
	client, err := newActors(ClientConfig{
		Redis: redistest.ClientOf(t, mini), Buckets: []Bucket{b}, Registerer: registry, Logger: slog.New(slog.NewTextHandler(&text, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	counted := func(limit, outcome string) float64 {
		return scrape(t, registry, "tundish_admission_limit")["tundish_admission_limit_refusals_total{bucket=b,limit="+limit+",outcome="+outcome+"}"]
	}
	if series := len(scrape(t, registry, "tundish_admission_limit")); series != 6 {
		t.Errorf("%d series before the first job", series)
	}
	would, refused := 0, 0
	for range 12 {
		receipts, err := client.Enqueue(t.Context(), Job{Bucket: "b", Payload: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
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
	if _, err := client.Enqueue(t.Context(), Job{Bucket: "b", Payload: []byte("x"), Cost: 11}); err != nil || counted("real", "impossible") != 1 {
		t.Errorf("%v impossible, %v", counted("real", "impossible"), err)
	}
}

// There is a line for each limit each 10 s, and it says how many jobs it stands for.
func TestShadowSample(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	var sample shadowLog
	log, now := slog.New(slog.NewTextHandler(&text, nil)), time.Now()
	note := func(limit string, after time.Duration) {
		sample.note(t.Context(), log, &admission.Decision{Limit: limit, WouldRefuse: true}, &Job{Bucket: "b", ID: "j"}, now.Add(after))
	}
	for i := range 100 {
		note("a", time.Duration(i)*100*time.Millisecond)
	}
	note("b", 0)
	note("a", shadowSample)
	note("a", shadowSample+1)
	var got []string
	for line := range strings.Lines(text.String()) {
		_, rest, _ := strings.Cut(line, "limit=")
		got = append(got, strings.Join(strings.Fields(rest)[:2], " "))
	}
	if want := "a would_have_refused=1|b would_have_refused=1|a would_have_refused=100"; strings.Join(got, "|") != want {
		t.Errorf("%q", got)
	}
}
