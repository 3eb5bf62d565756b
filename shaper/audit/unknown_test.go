package audit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper/audit"
)

// Operations that are refused remove no record of one that did not end, of any author, also where these fill their class, and the share of an author. An
// author that has more of those in flight loses none of others.
func TestUnknownOutlivesRefusals(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		const share, most = 20 << 10, 44 << 10
		l := audit.NewLog(client, 0).WithBounds(share, most)
		for i := range 120 {
			if err := l.Begin(t.Context(), by(fmt.Sprint("key ", i%2), "a", strings.Repeat("x", 300))); err != nil { // its process died
				t.Fatal(err)
			}
		}
		unknown := func() (ids map[string]bool) {
			ids = map[string]bool{}
			for _, r := range records(t, l, "", 1000) {
				if r.Outcome == audit.Begun {
					ids[r.ID] = true
				}
			}
			return ids
		}
		for i := range 2 { // the newest one of each author counts for its share when the author comes again
			write(t, l, refusal(fmt.Sprint("key ", i), i), audit.Refused)
		}
		before := unknown()
		if len(before) < 30 {
			t.Fatalf("%d records did not end", len(before))
		}
		for i := range 60 {
			write(t, l, refusal(fmt.Sprint("key ", i%4), i), []audit.Outcome{audit.Refused, audit.Nothing}[i%2])
		}
		var flying []*audit.Record
		for i := range 20 {
			r := refusal("key 7", i)
			if err := l.Begin(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			flying = append(flying, r)
		}
		for _, r := range flying {
			r.Outcome = audit.Refused
			if err := l.End(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		after := unknown()
		lost := 0
		for id := range before {
			if !after[id] {
				lost++
			}
		}
		if lost > 0 || len(after) != len(before) {
			t.Errorf("%d of %d records of operations that did not end are gone; %d are there", lost, len(before), len(after))
		}
		wantAccounts(t, client, "changes", share, most)
	})
}
