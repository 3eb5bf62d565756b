package audit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper/audit"
)

// carry writes the record of a part that shows a token. A negative count is of a part whose process died.
func carry(t *testing.T, l *audit.Log, r *audit.Record, token string, count int64) *audit.Record {
	t.Helper()
	r.Operation = "redriveDead"
	r.InParts(token)
	for range 2 { // its reply was lost
		if err := l.Begin(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if r.Outcome, r.Count = audit.Done, count; count == 0 {
		r.Outcome = audit.Nothing
	}
	for range 2 {
		if count < 0 {
			continue
		}
		if err := l.End(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// A change that is made in several requests has one record, which begins with the first and counts what all have changed.
func TestParts(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		l := audit.NewLog(client, 0)
		first := carry(t, l, pause("a", "x"), "", 200)
		second := carry(t, l, pause("a", "x"), first.Token(), 30)
		if got := records(t, l, "", 10); len(got) != 1 || got[0].Count != 230 || !got[0].At.Equal(first.At) || second.ID != first.ID {
			t.Errorf("%+v", got)
		}
		carry(t, l, pause("a", "x"), second.Token(), 0)
		if got := records(t, l, "a", 10); len(got) != 1 || got[0].Count != 230 || got[0].Outcome != audit.Done {
			t.Errorf("the last part found nothing: %+v", got)
		}
		carry(t, l, pause("a", "x"), second.Token(), -1) // its process died
		if got := records(t, l, "", 10); len(got) != 1 || got[0].Count != 230 || got[0].Outcome != audit.Begun {
			t.Errorf("%+v", got)
		}
	})
}

// No request joins a record by what a client can choose, and none changes what a record says.
func TestForgedParts(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	l := audit.NewLog(client, 0)
	first := carry(t, l, pause("a", "the truth"), "", 200)
	id, _, _ := strings.Cut(first.Token(), ".")
	equal := pause("a", "x")
	equal.Outcome = audit.Nothing
	if err := l.Begin(t.Context(), equal); err != nil {
		t.Fatal(err)
	}
	equal.Outcome = audit.Nothing
	if err := l.End(t.Context(), equal); err != nil { // counts in a record without a token
		t.Fatal(err)
	}
	known := len(records(t, l, "", 100))
	forge := func(name, token string, change func(r *audit.Record)) {
		r := pause("a", "the truth")
		change(r)
		if carry(t, l, r, token, 1); len(records(t, l, "", 100)) != known+1 {
			t.Errorf("%s joins a record: %+v", name, records(t, l, "", 100))
		}
		known++
	}
	as := func(*audit.Record) {}
	forge("a reused request id", "", as)
	forge("the id of the record", id+".", as)
	forge("the id alone", id, as)
	forge("another secret", id+".AAAAAAAAAAAAAAAAAAAAAAAAAA", as)
	forge("a record without a token", equal.ID+".-", as)
	forge("the empty record", ".", as)
	forge("a long token", first.Token()+strings.Repeat("x", 1000), as)
	forge("another author", first.Token(), func(r *audit.Record) { r.Author = "key other" })
	forge("another author of one share", first.Token(), func(r *audit.Record) { r.Author, r.Share = "key other", "key ops" })
	forge("another address", first.Token(), func(r *audit.Record) { r.Address = "192.0.2.1" })
	forge("another bucket", first.Token(), func(r *audit.Record) { r.Object = map[string]string{"bucket": "b"} })
	forge("another reason", first.Token(), func(r *audit.Record) { r.Reason = "a lie" })
	forge("another request id", first.Token(), func(r *audit.Record) { r.Request = "r2" })
	forge("other ids", first.Token(), func(r *audit.Record) { r.Asked = map[string]any{"ids": []string{"victim"}} })
	for _, r := range records(t, l, "", 100) {
		if r.ID == first.ID && (r.Count != 200 || r.Reason != "the truth" || r.Author != "key ops" || r.Outcome != audit.Done) {
			t.Errorf("the record is another one now: %+v", r)
		}
	}
}

// A token is good for ten minutes after the last part, so that no later change hides under an earlier time.
func TestTokensEnd(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	l := audit.NewLog(mini(t, server), 0)
	now := time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	r := pause("a", "")
	for i, want := range []int{1, 1, 1, 2} {
		server.SetTime(now)
		r = carry(t, l, pause("a", ""), r.Token(), 1)
		if got := len(records(t, l, "", 10)); got != want {
			t.Errorf("%d records after part %d, want %d", got, i+1, want)
		}
		now = now.Add(9 * time.Minute)
		if i == 2 {
			now = now.Add(2 * time.Minute)
		}
	}
	// Nor is an operation longer than a day: its record goes 90 days after the first part.
	first := now
	for now.Sub(first) < 25*time.Hour {
		server.SetTime(now)
		last := now
		r = carry(t, l, pause("a", ""), r.Token(), 1)
		now = now.Add(9 * time.Minute)
		if got := records(t, l, "", 10)[0]; last.Sub(got.At) > 24*time.Hour || last.Sub(got.At) > time.Minute && !got.Last.Equal(last) {
			t.Fatalf("a part at %s is in a record of %s, the last of which was at %s", last, got.At, got.Last)
		}
	}
}

// A part makes the record that it joins as new as itself: so many operations as the share has room for have to follow before it goes. An author so hid
// a second redrive, which joined its oldest record, behind one more operation.
func TestAPartRenewsItsRecord(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		const share = 20 << 10
		l := audit.NewLog(client, 0).WithBounds(share, 100<<10)
		first := carry(t, l, pause("a", "x"), "", 1)
		fill := func(n int) {
			for range n {
				write(t, l, by("key ops", "a", "filler"), audit.Done)
			}
		}
		fill(18)
		if second := carry(t, l, pause("a", "x"), first.Token(), 7); second.ID != first.ID {
			t.Fatal("the part has a record of its own")
		}
		fill(12)
		all := records(t, l, "", 1000)
		if oldest := all[len(all)-1]; oldest.ID != first.ID || oldest.Count != 8 || len(all) == 31 {
			t.Errorf("12 operations after its last part the oldest of %d records is %s of %d", len(all), oldest.Operation, oldest.Count)
		}
		wantAccounts(t, client, "changes", share, 100<<10)
	})
}
