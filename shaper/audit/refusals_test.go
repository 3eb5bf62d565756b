package audit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper/audit"
)

// refusal is a refused operation of an object that the client made up.
func refusal(author string, i int) *audit.Record {
	r := by(author, fmt.Sprint("u", i), "")
	r.NoBucket, r.Operation = true, "releaseFlow"
	r.Object["group"] = fmt.Sprint("h1-", i, "-") + strings.Repeat("\x01", 480)
	r.Object["flow"] = r.Object["group"]
	r.Detail = "invalid: flow " + r.Object["flow"]
	return r
}

// counted returns how many operations the records of an author count that changed nothing, in how many records.
func counted(all []audit.Record, author string) (times int64, records int) {
	for i := range all {
		if r := &all[i]; r.Author == author && (r.Outcome == audit.Refused || r.Outcome == audit.Nothing) {
			times += max(r.Times, 1)
			records++
		}
	}
	return times, records
}

// A key whose requests are refused, each of another object, does not erase what it has changed. The refusals of an hour have one record.
func TestRefusalsKeepTrail(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		const share, most, often = 60 << 10, 400 << 10, 120
		l := audit.NewLog(client, 0).WithBounds(share, most)
		pause := by("key victim", "b", "the trail")
		write(t, l, pause, audit.Done)
		for i := range often {
			write(t, l, refusal("key victim", i), audit.Refused)
		}
		all := records(t, l, "", 1000)
		if oldest := all[len(all)-1]; oldest.ID != pause.ID || oldest.Outcome != audit.Done {
			t.Errorf("the oldest of %d records is %s %s, want the pause", len(all), oldest.Operation, oldest.Outcome)
		}
		if times, n := counted(all, "key victim"); times != often || n > 2 { // 2: an hour began meanwhile
			t.Errorf("%d records count %d refusals, want 1 of %d", n, times, often)
		}
		for id, text := range client.HGetAll(t.Context(), "tundish:{fleet}:changes:texts").Val() {
			if len(text) > 3<<10 {
				t.Errorf("record %s has %d bytes", id, len(text))
			}
		}
		wantAccounts(t, client, "changes", share, most)
	})
}

// A key whose requests are refused removes no records of other authors at the bound of all records.
func TestRefusalsKeepOthers(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		const share, most, often = 20 << 10, 160 << 10, 30
		l := audit.NewLog(client, 0).WithBounds(share, most)
		for i := range 8 * often {
			r := refusal(fmt.Sprint("key h", i%8), i)
			r.Address = fmt.Sprint("2001:db8::", i)
			write(t, l, r, audit.Refused)
		}
		others := func() (n int) {
			for i := range 8 {
				_, records := counted(records(t, l, "", 1000), fmt.Sprint("key h", i))
				n += records
			}
			return n
		}
		before := others()
		for i := range often {
			write(t, l, refusal("key ops", i), audit.Refused)
		}
		if after := others(); after < before-2 { // for the record of these, and of the hour that began meanwhile
			t.Errorf("%d of %d records of others are there", after, before)
		}
		wantAccounts(t, client, "changes", share, most)
	})
}

// Operations that are refused or change nothing remove no record of a change, of one that failed, or of one that did not end, of any author: however
// many they are, at the bound of an author and at the bound of all.
func TestChangesOutliveRefusals(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		const share, most = 20 << 10, 36 << 10
		l := audit.NewLog(client, 0).WithBounds(share, most)
		for i := range 150 {
			r := by(fmt.Sprint("key ", i%3), "a", strings.Repeat("x", 300))
			if i%3 == 2 {
				if err := l.Begin(t.Context(), r); err != nil { // its process died
					t.Fatal(err)
				}
				continue
			}
			write(t, l, r, []audit.Outcome{audit.Done, audit.Failed}[i%2])
		}
		kept := map[string]audit.Outcome{}
		for _, r := range records(t, l, "", 1000) {
			kept[r.ID] = r.Outcome
		}
		for i := range 200 {
			r := refusal(fmt.Sprint("key ", i%5), i)
			r.Address = fmt.Sprint("2001:db8::", i) // each has a record of its own
			outcome := []audit.Outcome{audit.Refused, audit.Nothing}[i%2]
			if i%5 == 2 { // its begin would take the share of those that did not end
				r.Author = "key 0"
			}
			write(t, l, r, outcome)
		}
		there := map[string]audit.Outcome{}
		for _, r := range records(t, l, "", 1000) {
			there[r.ID] = r.Outcome
		}
		for id, outcome := range kept {
			if there[id] != outcome {
				t.Errorf("a record that was %s is %q", outcome, there[id])
			}
		}
		wantAccounts(t, client, "changes", share, most)
	})
}

// The end of a refused operation that is sent twice counts once.
func TestRefusalSentTwice(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		l := audit.NewLog(client, 0)
		for i := range 3 {
			r := refusal("key ops", i)
			if err := l.Begin(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			r.Outcome = audit.Refused
			again := *r
			for _, one := range []*audit.Record{r, &again} {
				if err := l.End(t.Context(), one); err != nil {
					t.Fatal(err)
				}
			}
		}
		if times, n := counted(records(t, l, "", 10), "key ops"); times != 3 || n > 2 {
			t.Errorf("%d records count %d refusals, want 3", n, times)
		}
	})
}

// One hour of refusals from however many addresses takes a bounded part of their author's share: what it was refused before stays. 550 addresses erased it.
func TestRefusalsOfManyAddresses(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	l := audit.NewLog(mini(t, server), 0).WithBounds(60<<10, 400<<10)
	now := time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	server.SetTime(now)
	first := refusal("key ops", 0)
	write(t, l, first, audit.Refused)
	server.SetTime(now.Add(time.Hour))
	const often = 150
	for i := range often {
		r := refusal("key ops", i)
		r.Address = fmt.Sprint("2001:db8::", i)
		if err := l.Begin(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		r.Outcome = []audit.Outcome{audit.Refused, audit.Nothing}[i%2]
		again := *r // its reply was lost
		for _, one := range []*audit.Record{r, &again} {
			if err := l.End(t.Context(), one); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := records(t, l, "", 1000)
	times, n := counted(all, "key ops")
	if times != often+1 || n > 1+20+2 || all[len(all)-1].ID != first.ID {
		t.Errorf("%d records count %d operations, want %d; the oldest is %s", n, times, often+1, all[len(all)-1].ID)
	}
}
