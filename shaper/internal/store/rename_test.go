package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// called is a bucket under another name. first is its first name, "" if the configuration does not say it.
func called(b shaper.Bucket, name, first string) shaper.Bucket {
	b.Name, b.RenamedFrom = name, first
	return b
}

// wantIn enqueues a job into a bucket by one of its names, and fails unless the receipt is as wanted.
func wantIn(t *testing.T, client *rig.Actors, bucket, id, receiptOf string, duplicate bool) {
	t.Helper()
	job := jobOf(id)
	job.Bucket = bucket
	receipts, err := client.Enqueue(t.Context(), job)
	if err != nil || receipts[0].Refusal != nil {
		t.Fatalf("enqueue %s into %s: %+v, %v", id, bucket, receipts, err)
	}
	if r := receipts[0]; r.Bucket != receiptOf || r.Duplicate != duplicate {
		t.Errorf("enqueue %s into %s: bucket %q, duplicate %t; want %q, %t", id, bucket, r.Bucket, r.Duplicate, receiptOf, duplicate)
	}
}

func wantKnown(t *testing.T, what string, client *rig.Actors, want string) {
	t.Helper()
	known, err := client.Op.KnownBuckets(t.Context())
	if err != nil || fmt.Sprint(known) != want {
		t.Errorf("%s: known are %v, %v; want %s", what, known, err, want)
	}
	homes, err := client.Op.Schedules(t.Context())
	if err != nil || len(homes) > 0 {
		t.Errorf("%s: schedules %v, %v", what, homes, err)
	}
}

// Processes with either name of a renamed bucket have the same jobs and remembered ids, whichever process came first, and whatever its
// configuration says of the other name. Each process lists the bucket once.
func TestRenamedBucketKeepsItsJobs(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		b := changeable()["flows"]
		renamed := called(b, "n", "b")
		before := mustJoin(t, conn, b)
		wantIn(t, before, "b", "1", "b", false)
		wantIn(t, clientWith(t, conn, renamed), "n", "1", "n", true) // a producer comes before the dispatcher
		if infos, err := clientWith(t, conn, renamed).Op.BucketInfos(t.Context()); err != nil || infos[0].EffectiveName != "b" || infos[0].FirstName != "b" || infos[0].Elsewhere {
			t.Errorf("before its dispatcher: %+v, %v", infos, err)
		}
		after := mustJoin(t, conn, renamed)
		wantIn(t, after, "n", "2", "n", false)
		wantIn(t, after, "b", "2", "n", true)
		wantIn(t, before, "b", "2", "b", true)
		wantIn(t, clientWith(t, conn, shaper.Bucket{Name: "n"}), "n", "2", "n", true)
		wantIn(t, clientWith(t, conn, called(b, "n", "")), "n", "2", "n", true)
		if n := conn.HLen(t.Context(), store.BucketKeys("b").Body()).Val(); n != 2 {
			t.Errorf("the bucket has %d jobs, want 2", n)
		}
		wantKnown(t, "with the new name", after, "[n]")
		wantKnown(t, "with the first name", before, "[b]")
		wantKnown(t, "without a configuration", clientWith(t, conn), "[n]")
		if infos, err := clientWith(t, conn).Op.BucketInfos(t.Context(), "n"); err != nil || infos[0].Unfinished != 2 || infos[0].EffectiveName != "n" {
			t.Errorf("without a configuration: %+v, %v", infos, err)
		}
		if _, isCluster := conn.(*redis.ClusterClient); !isCluster {
			pooled := mustJoin(t, conn, rig.In(rig.PoolNamed("vendor"), renamed))
			wantIn(t, before, "b", "2", "b", true)
			wantIn(t, pooled, "n", "2", "n", true)
			if details, err := pooled.Op.PoolDetails(t.Context(), "vendor"); err != nil || len(details[0].Buckets) != 1 || details[0].Buckets[0].Name != "n" {
				t.Errorf("the pool: %+v, %v", details, err)
			}
			if n := conn.HLen(t.Context(), store.TaggedKeys("vendor", "b").Body()).Val(); n != 2 {
				t.Errorf("in the pool the bucket has %d jobs, want 2", n)
			}
			b = rig.In(rig.PoolNamed("vendor"), b)
		}
		mustJoin(t, conn, b) // the configuration goes back to the first name
		wantKnown(t, "with the first name again", clientWith(t, conn), "[b]")
	})
}

// A configuration that would give the jobs of a renamed bucket to nobody, or to another bucket, is refused, and says what to do.
func TestRenamesThatAreRefused(t *testing.T) {
	t.Parallel()
	conn := redistest.Start(t).Client()
	b := changeable()["plain"]
	mustJoin(t, conn, b)
	mustJoin(t, conn, called(b, "n", "b"))
	mustJoin(t, conn, called(b, "other", ""))
	for what, c := range map[string]struct {
		bucket shaper.Bucket
		want   string
	}{
		"without the first name":     {called(b, "n", ""), `bucket "n" was renamed, and its jobs have its first name "b" in Redis: set renamed_from = "b"`},
		"from a later name":          {called(b, "m", "n"), `first name "b" in Redis: set renamed_from = "b"`},
		"to a name that was there":   {called(b, "other", "b"), `Redis has had another bucket "other" before: choose another name`},
		"to the name of another one": {called(b, "n", "other"), `Redis has had another bucket "n" before: choose another name`},
	} {
		client := clientWith(t, conn, c.bucket)
		err, checked := client.JoinPools(t.Context()), client.CheckPools(t.Context(), []shaper.Bucket{c.bucket})
		if err == nil || !strings.Contains(err.Error(), c.want) || checked == nil || !strings.Contains(checked.Error(), c.want) {
			t.Errorf("%s: %v; checked: %v; want %s", what, err, checked, c.want)
		}
	}
	if n := conn.HLen(t.Context(), store.TagsKey).Val(); n != 3 {
		t.Errorf("the index has %d entries, want 3: %v", n, conn.HGetAll(t.Context(), store.TagsKey).Val())
	}
	two := []shaper.Bucket{called(b, "x", "b"), b}
	if _, err := store.New(store.ReadOnly, conn, two, 0, nil, nil); err == nil || !strings.Contains(err.Error(), `is the first name of bucket "x"`) {
		t.Errorf("two buckets with the same jobs: %v", err)
	}
}

// A server without memory refuses the new name in the index. The bucket is drained all the same.
func TestRenameOnAFullServer(t *testing.T) {
	t.Parallel()
	conn := redistest.Start(t).Client()
	b := changeable()["plain"]
	mustEnqueue(t, mustJoin(t, conn, b), "j")
	conn.ConfigSet(t.Context(), "maxmemory", "1mb")
	mustJoin(t, conn, called(b, "n", "b"))
	if name := conn.HGet(t.Context(), store.BucketKeys("b").Conf(), "name").Val(); name != "n" {
		t.Errorf("the settings have the name %q", name)
	}
	conn.ConfigSet(t.Context(), "maxmemory", "0")
	mustJoin(t, conn, called(b, "n", "b"))
	if entry := conn.HGet(t.Context(), store.TagsKey, "n").Val(); entry != "=b" {
		t.Errorf("the index has %q of the new name", entry)
	}
}
