package schedule_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/schedule"
)

func TestMissedFires(t *testing.T) {
	t.Parallel()
	const none, last, all = schedule.CatchUpNone, schedule.CatchUpLast, schedule.CatchUpAll
	for _, c := range []struct {
		line, due, now string
		catch          schedule.CatchUp
		fire, next     string
		missed         int
	}{
		{"0 2 * * *", "2026-01-02 02:00", "2026-01-02 01:59", last, "", "02 02:00:00", 0},
		{"0 2 * * *", "2026-01-02 02:00", "2026-01-02 02:00", none, "02 02:00:00", "03 02:00:00", 0},
		{"0 2 * * *", "2026-01-02 02:00", "2026-01-02 02:01", none, "02 02:00:00", "03 02:00:00", 0},
		{"0 2 * * *", "2026-01-02 02:00", "2026-01-02 02:01:01", none, "", "03 02:00:00", 1},
		{"0 2 * * *", "2026-01-02 02:00", "2026-01-02 03:00", last, "02 02:00:00", "03 02:00:00", 0},
		{"0 2 * * *", "2026-01-02 02:00", "2026-01-06 03:00", last, "06 02:00:00", "07 02:00:00", 4},
		{"0 2 * * *", "2026-01-02 02:00", "2026-01-06 03:00", none, "", "07 02:00:00", 5},
		{"0 2 * * *", "2026-01-02 02:00", "2026-01-06 03:00", all, "02 02:00:00", "03 02:00:00", 0},
		{"0 2 * * *", "2026-01-02 02:00", "2026-01-06 02:00:30", last, "06 02:00:00", "07 02:00:00", 4},
		{"* * * * *", "2026-01-02 02:00", "2026-01-02 04:00", all, "02 02:21:00", "02 02:22:00", 21},
		{"* * * * *", "2026-01-02 02:00", "2026-01-02 03:39", all, "02 02:00:00", "02 02:01:00", 0},
		{"* * * * *", "2026-01-02 02:00", "2026-01-02 04:00:30", none, "02 04:00:00", "02 04:01:00", 120},
		{"* * * * * *", "2026-01-02 02:00", "2026-01-02 02:00:59", none, "02 02:00:00", "02 02:00:01", 0},
		{"* * * * * *", "2026-01-02 02:00", "2026-01-02 09:00", none, "02 08:59:00", "02 08:59:01", 1000},
		{"@every 1h", "2026-01-02 02:00", "2026-01-02 05:30", last, "02 05:00:00", "02 06:00:00", 3},
	} {
		d := mustParse(t, c.line, "").Due(at(t, c.due), at(t, c.now), c.catch)
		got := []string{"", d.Next.UTC().Format("02 15:04:05")}
		if !d.Fire.IsZero() {
			got[0] = d.Fire.UTC().Format("02 15:04:05")
		}
		if want := []string{c.fire, c.next}; fmt.Sprint(got) != fmt.Sprint(want) || d.Missed != c.missed || (d.Missed > 0) != d.First.Equal(at(t, c.due)) {
			t.Errorf("%q, due %s, now %s, catch_up %s: %q, missed %d from %s; want %q, missed %d", c.line, c.due, c.now, c.catch, got, d.Missed, d.First, want, c.missed)
		}
	}
}

// Looking at any instants, however far apart, gives each fire up or enqueues it, in order, once; and what catch_up says is kept.
func TestEachFireOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom([]string{"0 2 * * *", "*/30 * * * *", "30 2 * * *", "15 1 * * *", "@every 7m", "H H * * *", "0 0 1 * *"}).Draw(t, "line")
		zone := rapid.SampledFrom([]string{"", "America/New_York", "Europe/Paris", "Australia/Lord_Howe"}).Draw(t, "zone")
		catch := rapid.SampledFrom([]schedule.CatchUp{schedule.CatchUpNone, schedule.CatchUpLast, schedule.CatchUpAll}).Draw(t, "catch_up")
		r, err := schedule.Parse(line, zone, "x")
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(rapid.Int64Range(1767225600, 1798761600).Draw(t, "start"), 0)
		due := r.Next(now)
		for range 20 {
			now = now.Add(time.Duration(rapid.Int64Range(0, 5*24*3600).Draw(t, "pause")) * time.Second)
			for !due.After(now) {
				d := r.Due(due, now, catch)
				at := due
				for range d.Missed {
					at = r.Next(at)
				}
				if d.Fire.IsZero() {
					if catch != schedule.CatchUpNone || d.Missed < 1000 && !at.Equal(d.Next) {
						t.Fatalf("nothing to fire of what was due at %s, now %s: %+v", due, now, d)
					}
				} else if d.Missed < 1000 && !at.Equal(d.Fire) || !d.Next.Equal(r.Next(d.Fire)) || d.Fire.After(now) {
					t.Fatalf("due %s, now %s: %+v", due, now, d)
				}
				if late := now.Sub(d.Fire); !d.Fire.IsZero() && late > schedule.Grace && (catch == schedule.CatchUpNone || catch == schedule.CatchUpLast && !d.Next.After(now)) {
					t.Fatalf("catch_up %s fires %s late, and the next is %s: %+v", catch, late, d.Next, d)
				}
				if !d.Next.After(due) {
					t.Fatalf("after %s comes %s", due, d.Next)
				}
				due = d.Next
			}
		}
	})
}
