package operator_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

const (
	largeJobs = 120
	largeSize = 200 << 10
)

// large is a bucket with 120 jobs of 200 KiB; dead has them be dead letters.
func large(t *testing.T, dead bool) operator.Bucket {
	t.Helper()
	_, bucket := largeBench(t, dead)
	return bucket
}

func largeBench(t *testing.T, dead bool) (*rig.Bench, operator.Bucket) {
	t.Helper()
	s := rig.NewBench(t, rig.Bucket("b", 100))
	keys := store.BucketKeys("b")
	for i := range largeJobs {
		id := fmt.Sprintf("j%03d", i)
		receipts, err := s.Client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: id, Payload: make([]byte, largeSize)})
		if err != nil || receipts[0].Refusal != nil {
			t.Fatal(receipts, err)
		}
		if dead {
			pipe := s.Redis.Pipeline()
			pipe.LPop(t.Context(), keys.Queue(""))
			pipe.ZAdd(t.Context(), keys.Dead(), redis.Z{Member: id, Score: float64(i)})
			must.Get(pipe.Exec(t.Context()))(t)
		}
	}
	return s, s.Client.Op.Bucket("b")
}

// A list of large jobs is bounded in bytes, and goes on from its cursor until each was told once.
func TestListsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	for _, dead := range []bool{false, true} {
		all := large(t, dead)
		for _, c := range []struct {
			name    string
			bucket  operator.Bucket
			size    int // of each payload
			most    int // jobs of a page
			looked  int // that a page looks at
			another bool
		}{
			{name: "whole", bucket: all, size: largeSize, most: 5, looked: 5},
			{name: "without payloads", bucket: all.WithoutPayloads(), most: 82, looked: 82},
			{name: "none matches", bucket: all.WithoutPayloads(), looked: 82, another: true},
		} {
			seen, pages, cursor := map[string]bool{}, 0, ""
			for {
				var jobs []shaper.JobInfo
				var looked int
				var err error
				if dead {
					var filter operator.DeadFilter
					if c.another {
						filter.Text = "nothing has this"
					}
					var page operator.DeadPage
					page, err = c.bucket.Dead().Find(t.Context(), filter, cursor, 1000)
					jobs, looked, cursor = page.DeadLetters, page.Looked, page.Next
				} else {
					var filter operator.JobFilter
					if c.another {
						filter.State = shaper.StateQueued
						other := "other"
						filter.Flow = &other
					}
					var page operator.JobPage
					page, err = c.bucket.Find(t.Context(), filter, cursor, 1000)
					jobs, looked, cursor = page.Jobs, page.Looked, page.Next
				}
				if err != nil {
					t.Fatal(c.name, err)
				}
				if pages++; len(jobs) > c.most || looked > c.looked {
					t.Errorf("%s, dead %t: page %d has %d jobs of %d looked at, want at most %d of %d", c.name, dead, pages, len(jobs), looked, c.most, c.looked)
				}
				for i := range jobs {
					if seen[jobs[i].ID] || len(jobs[i].Payload) != c.size {
						t.Errorf("%s: job %s, of %d bytes", c.name, jobs[i].ID, len(jobs[i].Payload))
					}
					seen[jobs[i].ID] = true
				}
				if cursor == "" {
					break
				}
				if pages > largeJobs {
					t.Fatalf("%s: the list does not end", c.name)
				}
			}
			if want := largeJobs; !c.another && len(seen) != want || pages < 2 {
				t.Errorf("%s, dead %t: %d jobs on %d pages, want %d", c.name, dead, len(seen), pages, want)
			}
		}
	}
}

// A list by offset has as many dead letters as fit, and one that is larger than a page is told alone.
func TestListByOffsetIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	bucket := large(t, true)
	letters, err := bucket.Dead().List(t.Context(), 10, 30)
	if err != nil || len(letters) != 5 || letters[0].ID != "j109" || len(letters[4].Payload) != largeSize {
		t.Errorf("%d dead letters, %v", len(letters), err)
	}
	letters, err = bucket.WithoutPayloads().Dead().List(t.Context(), 10, 30)
	if err != nil || len(letters) != 30 || letters[29].ID != "j080" || len(letters[0].Payload) != 0 {
		t.Errorf("%d dead letters without payloads, %v", len(letters), err)
	}
}

// A change by filter looks at no more in a call than a list does, and goes on from its cursor to the end.
func TestChangesLookAtBoundedBytes(t *testing.T) {
	t.Parallel()
	s, _ := largeBench(t, true)
	matched, calls, cursor := 0, 0, ""
	for {
		change, err := s.Client.Op.As("anna").Bucket("b").Dead().RedriveFound(t.Context(), operator.DeadFilter{}, cursor, true)
		if err != nil || change.Looked > 82 {
			t.Fatalf("%+v, %v", change, err)
		}
		matched, calls = matched+change.Matched, calls+1
		if cursor = change.Next; cursor == "" || calls > largeJobs {
			break
		}
	}
	if matched != largeJobs || calls != 2 {
		t.Errorf("%d matched in %d calls", matched, calls)
	}
}
