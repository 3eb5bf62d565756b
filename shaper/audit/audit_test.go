package audit_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/audit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }

func mini(t *testing.T, server *miniredis.Miniredis) redis.UniversalClient {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func pause(bucket, reason string) *audit.Record {
	return &audit.Record{Author: "key ops", Process: "dispatcher on a", Request: "r1", Operation: "pauseBucket", Object: map[string]string{"bucket": bucket}, Reason: reason}
}

func records(t *testing.T, l *audit.Log, bucket string, limit int) (all []audit.Record) {
	t.Helper()
	for cursor := ""; ; {
		page, next, err := l.Records(t.Context(), bucket, cursor, limit)
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, page...); next == "" {
			return all
		}
		cursor = next
	}
}

// A record is there once its operation begins, says so until it ends, and is one however often it is written.
func TestRecord(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		l := audit.NewLog(client, 0)
		r := pause("a", "the receiver is down")
		for range 2 {
			if err := l.Begin(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		got := records(t, l, "a", 10)
		if len(got) != 1 || got[0].Outcome != audit.Begun || got[0].Reason != r.Reason || got[0].ID != r.ID {
			t.Fatalf("it has begun: %+v", got)
		}
		r.Outcome, r.Count, r.Changes = audit.Done, 7, []shaper.Change{{Setting: "rate", Before: "1/s", After: "2/s"}}
		for range 2 { // its reply was lost
			if err := l.End(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		head, text, _ := strings.Cut(client.HGet(t.Context(), "tundish:{fleet}:changes:texts", r.ID).Val(), "\n")
		client.HSet(t.Context(), "tundish:{fleet}:changes:texts", r.ID, head+" newer\n"+text) // as a newer program may write
		if err := l.End(t.Context(), r); err != nil {                                         // its reply was lost
			t.Fatal(err)
		}
		write(t, l, pause("c", ""), audit.Done)
		if len(records(t, l, "c", 10)) != 1 {
			t.Error("a record is missing")
		}
		got = append(records(t, l, "", 10)[1:], records(t, l, "a", 10)...)
		for _, one := range got {
			if one.Outcome != audit.Done || one.Count != 7 || !slices.Equal(one.Changes, r.Changes) || !one.At.Equal(r.At) || one.Author != "key ops" {
				t.Errorf("it has ended: %+v", one)
			}
		}
		if len(got) != 2 || len(records(t, l, "b", 10)) != 0 {
			t.Errorf("%d records", len(got))
		}
	})
}

// All pages have all records once, the newest first, also where several begin in one microsecond.
func TestPages(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	l := audit.NewLog(mini(t, server), 0)
	now := time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	for i := range 50 {
		server.SetTime(now.Add(time.Duration(i/7) * time.Microsecond))
		r := pause(fmt.Sprint("b", i%2), fmt.Sprint(i))
		if i%5 == 0 {
			r.Author = "key rare of acme"
		}
		if err := l.Begin(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []int{1, 3, 7, 49, 50, 1000} {
		for bucket, want := range map[string]int{"": 50, "b0": 25} {
			got, seen := records(t, l, bucket, limit), map[string]bool{}
			for i, r := range got {
				seen[r.Reason] = true
				if i > 0 && r.At.After(got[i-1].At) {
					t.Errorf("%d records a page: %s comes after %s", limit, r.At, got[i-1].At)
				}
			}
			if len(got) != want || len(seen) != want {
				t.Errorf("%d records a page of %q: %d, %d of them different, want %d", limit, bucket, len(got), len(seen), want)
			}
		}
	}
	for _, limit := range []int{1, 3, 5, 1000} {
		seen, cursor := map[string]bool{}, ""
		for {
			page, next, err := l.Find(t.Context(), audit.Filter{Bucket: "b0", Author: "rare"}, cursor, limit)
			if err != nil || len(page) > limit {
				t.Fatal(page, err)
			}
			for _, r := range page {
				seen[r.Reason] = r.Author == "key rare of acme"
			}
			if cursor = next; next == "" {
				break
			}
		}
		if fmt.Sprint(seen) != "map[0:true 10:true 20:true 30:true 40:true]" {
			t.Errorf("%d records of an author a page: %v", limit, seen)
		}
	}
	for _, cursor := range []string{"x", "-", "1", "-1-a", "1e9-a", "+inf-a"} {
		if _, _, err := l.Records(t.Context(), "", cursor, 1); err != audit.ErrCursor { //nolint:errorlint // as documented
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}

// However long the texts are that an operator gives, a record is bounded, and still UTF-8.
func TestLongTexts(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	l := audit.NewLog(client, 0)
	r := pause("a", strings.Repeat("ä", 10_000))
	r.Detail, r.Object["flow"] = r.Reason, r.Reason
	r.Asked = map[string]any{}
	for i := range 1000 {
		r.Asked[fmt.Sprint(i, r.Reason)] = strings.Repeat("x", 10_000)
		r.Changes = append(r.Changes, shaper.Change{Setting: "rate", Before: r.Reason, After: r.Reason})
	}
	r.Asked["0"] = make([]string, 1000)
	if err := l.Begin(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	text := client.HGet(t.Context(), "tundish:{fleet}:changes:texts", r.ID).Val()
	if len(text) > 9<<10 || strings.Contains(text, `�`) {
		t.Errorf("%d bytes", len(text))
	}
	if got := records(t, l, "a", 1); len(got) != 1 || !strings.HasSuffix(got[0].Reason, "ä…") || len(got[0].Asked) == 0 || got[0].Asked["0"] == nil {
		t.Errorf("%+v", got)
	}
}

// A name that no bucket can have makes no key of its own.
func TestImpossibleBucket(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	l := audit.NewLog(client, 0)
	if err := l.Begin(t.Context(), pause(strings.Repeat("x", 100_000), "")); err != nil {
		t.Fatal(err)
	}
	for _, key := range client.Keys(t.Context(), "tundish:{fleet}:*").Val() {
		if len(key) > 100 {
			t.Errorf("a key of %d bytes", len(key))
		}
	}
	if got := records(t, l, "", 10); len(got) != 1 {
		t.Errorf("%d records", len(got))
	}
}

// Without Redis nothing begins, and it is told soon.
func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	l := audit.NewLog(client, time.Second)
	if err := l.Begin(context.Background(), pause("a", "")); err == nil || !strings.Contains(err.Error(), "write the record of pauseBucket") {
		t.Error(err)
	}
	if _, _, err := l.Records(context.Background(), "", "", 1); err == nil {
		t.Error("there are records")
	}
}
