package audit_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper/audit"
)

// write writes the record of an operation that has ended.
func write(t *testing.T, l *audit.Log, r *audit.Record, outcome audit.Outcome) {
	t.Helper()
	if err := l.Begin(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	r.Outcome = outcome
	if err := l.End(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func by(author, bucket, reason string) *audit.Record {
	r := pause(bucket, reason)
	r.Author = author
	return r
}

// classes are those of records, in the order of their numbers.
var classes = []string{"begun", "changed", "nothing"}

// wantAccounts checks that what the log counts is what it holds, and nothing else is left of records that are gone.
func wantAccounts(t *testing.T, client redis.UniversalClient, book string, share, most int64) {
	t.Helper()
	const entries = 512
	texts := client.HGetAll(t.Context(), "tundish:{fleet}:"+book+":texts").Val()
	for class, name := range classes {
		total, held := int64(0), map[string]int64{}
		for id, text := range texts {
			if slices.Contains(classes, id) || strings.Fields(text)[2] != fmt.Sprint(class) {
				continue
			}
			n := int64(len(text) + entries)
			held[strings.Fields(text)[3]] += n
			total += n
		}
		share, most := share, most
		if class == 0 { // what has begun removes nothing by itself
			most += share
			share += 4 << 10
		}
		if got := cmp.Or(texts[name], "0"); got != fmt.Sprint(total) || total > most {
			t.Errorf("class %s: %s bytes are counted of %d, and %d are the bound", name, got, total, most)
		}
		for _, z := range client.ZRangeWithScores(t.Context(), "tundish:{fleet}:"+book+":"+name, 0, -1).Val() {
			author := fmt.Sprint(z.Member)
			if int64(z.Score) != held[author] || held[author] > share {
				t.Errorf("class %s: author %s has %d bytes, counted %.0f, and the share is %d", name, author, held[author], z.Score, share)
			}
			delete(held, author)
		}
		if len(held) > 0 {
			t.Errorf("class %s: authors that are not counted: %v", name, held)
		}
	}
	for _, entry := range client.ZRange(t.Context(), "tundish:{fleet}:"+book+":lists", 0, -1).Val() {
		if _, isThere := texts[strings.Fields(entry)[2]]; !isThere {
			t.Errorf("the entry %q is of no record", entry)
		}
	}
}

// Whatever others do, and however often, the record of a purge stays.
func TestOthersRemoveNoRecord(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		const share, most = 40 << 10, 160 << 10
		l := audit.NewLog(client, 0).WithBounds(share, most)
		purge := by("key root", "a", "the truth")
		purge.Operation, purge.Count = "purgeBucket", 7
		write(t, l, purge, audit.Done)
		random := rand.New(rand.NewPCG(1, 2))
		for i := range 800 {
			author := fmt.Sprint("key ", random.IntN(12))
			r := by(author, fmt.Sprint("b", random.IntN(3)), strings.Repeat("x", random.IntN(3000)))
			r.Object["flow"] = fmt.Sprint(i)
			outcome := []audit.Outcome{audit.Done, audit.Nothing, audit.Refused, audit.Failed}[random.IntN(4)]
			if random.IntN(10) == 0 {
				err := l.Begin(t.Context(), r) // its process died
				if err != nil {
					t.Fatal(err)
				}
				continue
			}
			write(t, l, r, outcome)
		}
		wantAccounts(t, client, "changes", share, most)
		for _, bucket := range []string{"", "a"} {
			all := records(t, l, bucket, 1000)
			if oldest := all[len(all)-1]; oldest.Operation != "purgeBucket" || oldest.Count != 7 {
				t.Errorf("of bucket %q the oldest of %d is %+v", bucket, len(all), oldest)
			}
		}
	})
}

// An author's own records replace its oldest ones.
func TestShare(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	const share = 20 << 10
	l := audit.NewLog(client, 0).WithBounds(share, 100<<10)
	for i := range 100 {
		write(t, l, by("key ops", "a", fmt.Sprint(i)), audit.Done)
	}
	got := records(t, l, "a", 1000)
	if len(got) < 15 || len(got) > 40 || got[0].Reason != "99" {
		t.Errorf("%d records, the newest %q", len(got), got[0].Reason)
	}
	for i, r := range got {
		if r.Reason != fmt.Sprint(99-i) {
			t.Errorf("record %d is %q", i, r.Reason)
		}
	}
	wantAccounts(t, client, "changes", share, share)
}

// What changed nothing is counted in one record for each hour, and so are logins. What changed something never is.
func TestEqualOperations(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := mini(t, server)
	l := audit.NewLog(client, 0)
	now := time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	const often = 1020
	for range often {
		now = now.Add(time.Second)
		server.SetTime(now)
		write(t, l, by("key ops", "a", ""), audit.Nothing)
	}
	for i := range 3 {
		write(t, l, by("key ops", "a", fmt.Sprint(i)), audit.Done)
	}
	write(t, l, by("key ops", "b", ""), audit.Nothing)
	write(t, l, by("key other", "a", ""), audit.Nothing)
	got := records(t, l, "", 100)
	if len(got) != 6 {
		t.Fatalf("%d records: %+v", len(got), got)
	}
	if same := got[5]; same.Times != often || same.Outcome != audit.Nothing || !same.At.Equal(now.Add(-(often-1)*time.Second)) || !same.Last.Equal(now) {
		t.Errorf("%+v", same)
	}
	server.SetTime(now.Add(time.Hour))
	write(t, l, by("key ops", "a", ""), audit.Nothing)
	if got := records(t, l, "", 100); len(got) != 7 || got[0].Times != 0 || !got[0].Last.IsZero() {
		t.Errorf("in the next hour: %+v", got[0])
	}
	for i := range 4000 {
		login := &audit.Record{Author: "key ops", Address: fmt.Sprint("192.0.2.", i%2), Operation: "login"}
		write(t, l.Logins(), login, audit.Done)
	}
	if got := records(t, l.Logins(), "", 100); len(got) != 2 || got[0].Times != 2000 || got[1].Times != 2000 {
		t.Errorf("logins: %+v", got)
	}
	if got := records(t, l, "", 100); len(got) != 7 {
		t.Errorf("%d records beside the logins", len(got))
	}
	wantAccounts(t, client, "changes", audit.ShareOfChanges, audit.MostOfChanges)
	wantAccounts(t, client, "logins", audit.ShareOfLogins, audit.MostOfLogins)
}

// Records go after 90 days, whoever wrote them.
func TestAge(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := mini(t, server)
	l := audit.NewLog(client, 0)
	now := time.Date(2026, 8, 1, 9, 0, 0, 0, time.UTC)
	for i := range 300 {
		server.SetTime(now.Add(time.Duration(i) * time.Second))
		write(t, l, by(fmt.Sprint("key ", i%7), "a", fmt.Sprint(i)), audit.Done)
	}
	now = now.Add(91 * 24 * time.Hour)
	for i := range 4 { // each call removes 100
		server.SetTime(now.Add(time.Duration(i) * time.Second))
		write(t, l, by("key later", "b", fmt.Sprint(i)), audit.Done)
	}
	if got := records(t, l, "", 1000); len(got) != 4 {
		t.Errorf("%d records after 91 days", len(got))
	}
	wantAccounts(t, client, "changes", audit.ShareOfChanges, audit.MostOfChanges)
}

// A Redis that evicts one of the keys alone refuses no operation.
func TestEvictedKeys(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	for _, key := range append([]string{"lists", "texts"}, classes...) {
		l := audit.NewLog(client, 0).WithBounds(10<<10, 20<<10)
		for i := range 100 {
			if i == 50 {
				client.Del(t.Context(), "tundish:{fleet}:changes:"+key)
			}
			write(t, l, by(fmt.Sprint("key ", i%5), "a", strings.Repeat("x", 300)), audit.Done)
		}
		if got := records(t, l, "", 100); len(got) < 10 {
			t.Errorf("without %s: %d records", key, len(got))
		}
	}
}

// A bucket that does not exist has no list, and a name that no bucket can have reads none.
func TestBucketsThatDoNotExist(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	l := audit.NewLog(client, 0)
	r := by("key ops", "nosuch", "")
	r.NoBucket = true
	write(t, l, r, audit.Refused)
	write(t, l, by("key ops", "a", ""), audit.Done)
	if got := records(t, l, "nosuch", 10); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	entry := client.ZRange(t.Context(), "tundish:{fleet}:changes:lists", -1, -1).Val()[0]
	began := strings.Fields(entry)[1]
	for _, bucket := range []string{"a " + began, "a 0", "a!", ""} {
		if got := records(t, l, bucket, 10); bucket != "" && len(got) != 0 {
			t.Errorf("bucket %q has %+v", bucket, got)
		}
	}
}
