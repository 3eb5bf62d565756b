//go:build soak

package shaper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/redistest"
)

// movable is a bucket of each kind, in no pool.
func movable() map[string]Bucket {
	plain, flows, groups := testBucket("b", 1000), flowing("b", FlowKeyJob), grouped("b", 1000)
	all := map[string]Bucket{"plain": plain, "flows": flows, "groups": groups}
	for kind, b := range all {
		b.Rate = perSecond(1000)
		b.Quotas = []admission.Rate{{Count: 5000, Per: time.Hour, Unit: admission.UnitRequests}}
		b.Limits = []admission.Limit{{Name: "per-caller", Per: []string{admission.PerCaller}, Limit: admission.Rate{Count: 1000, Per: time.Hour, Unit: admission.UnitRequests}}}
		if b.Flow != nil {
			own := *b.Flow
			own.Quotas = b.Quotas
			b.Flow = &own
		}
		all[kind] = b
	}
	return all
}

func vendor() *Pool { return &Pool{Name: "vendor", Rate: perSecond(500), MaxInFlight: 100} }

// in is the bucket in a pool, or in none.
func in(pool *Pool, b Bucket) Bucket {
	b.Pool = pool
	return b
}

func clientWith(t *testing.T, conn redis.UniversalClient, buckets ...Bucket) *Client {
	t.Helper()
	client, err := NewClient(ClientConfig{Redis: conn, Buckets: buckets})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// work runs a dispatcher of a bucket until as many jobs have an outcome as it is told, by the beginning of their ids.
func work(t *testing.T, conn redis.UniversalClient, b Bucket, jobs int) (delivered []string) {
	t.Helper()
	all := make(chan string, jobs)
	worker := WorkerFunc(func(_ context.Context, a *Attempt) Outcome {
		defer func() { all <- a.ID }()
		switch {
		case strings.HasPrefix(a.ID, "dead"):
			return Dead("gone", "")
		case strings.HasPrefix(a.ID, "retry"):
			again := Retry("busy", "")
			again.RetryAfter = time.Hour
			return again
		}
		return Done(200)
	})
	d, err := NewDispatcher(DispatcherConfig{Redis: conn, Buckets: []Bucket{b}, Workers: map[string]Worker{"test": worker}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	for range jobs {
		select {
		case id := <-all:
			delivered = append(delivered, id)
		case <-ctx.Done():
			t.Fatalf("only %v", delivered)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return delivered
}

func put(t *testing.T, client *Client, b *Bucket, jobs ...Job) (sent []Job) {
	t.Helper()
	for i, job := range jobs {
		job.Bucket, job.Payload, job.Identity.Caller = b.Name, []byte(job.ID), "anna"
		if b.Flow != nil {
			job.Flow = fmt.Sprint("flow", i%3)
		}
		if b.Group != nil {
			job.Group = fmt.Sprint("group", i%2)
		}
		if receipts, err := client.Enqueue(t.Context(), job); err != nil || receipts[0].Refusal != nil {
			t.Fatalf("enqueue %s: %+v, %v", job.ID, receipts, err)
		}
		sent = append(sent, job)
	}
	return sent
}

func named(prefix string, n int) (jobs []Job) {
	for i := range n {
		jobs = append(jobs, Job{ID: fmt.Sprint(prefix, i)})
	}
	return jobs
}

// waitingJobs are those of a bucket that was filled which leave once it is resumed.
const waitingJobs = 12

// fillAll puts into a bucket whatever it can hold, and pauses it.
func fillAll(t *testing.T, conn redis.UniversalClient, b Bucket) (sent []Job) {
	t.Helper()
	client := clientWith(t, conn, b)
	control := client.Control("anna")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	sent = put(t, client, &b, slices.Concat(named("done", 4), named("dead", 4), named("retry", 4))...)
	work(t, conn, b, 12)
	var patch BucketPatch
	must(patch.Put(SettingCapacity, "4321"))
	_, err := control.Set(t.Context(), b.Name, patch)
	must(err)
	if b.Flow != nil {
		var own FlowPatch
		must(own.Put(FlowWeight, "3"))
		if b.Group != nil {
			_, err = control.SetGroup(t.Context(), b.Name, "group1", own)
			must(err)
			control = control.InGroup("group1")
		}
		_, err = control.SetFlow(t.Context(), b.Name, "flow1", own)
		must(err)
	}
	must(client.OverrideLimit(t.Context(), "per-caller", admission.Patch{Burst: new(int64(77))}))
	must(client.Control("anna").Pause(t.Context(), b.Name, "it is moved"))
	jobs := slices.Concat(named("gone", 3), named("wait", waitingJobs), named("later", 3))
	for i := range jobs {
		jobs[i].Priority = Priorities()[i%len(Priorities())]
		if strings.HasPrefix(jobs[i].ID, "later") {
			jobs[i].Delay = time.Hour
		}
	}
	sent = append(sent, put(t, client, &b, jobs...)...)
	for _, job := range named("gone", 3) {
		if state, err := client.Cancel(t.Context(), b.Name, job.ID); err != nil || state != StateCancelled {
			t.Fatal(state, err)
		}
	}
	return sent
}

// contents is all that is under the keys of a bucket, by the end of their names.
func contents(t *testing.T, conn redis.UniversalClient, k keys) map[string]any {
	t.Helper()
	found := map[string]any{}
	visit := func(ctx context.Context, conn redis.Cmdable) {
		names, err := conn.Keys(ctx, k.prefix+"*").Result()
		if err != nil {
			t.Error(err)
		}
		for _, name := range names {
			var value any
			switch kind := conn.Type(ctx, name).Val(); kind {
			case "hash":
				value = conn.HGetAll(ctx, name).Val()
			case "list":
				value = conn.LRange(ctx, name, 0, -1).Val()
			case "zset":
				value = conn.ZRangeWithScores(ctx, name, 0, -1).Val()
			default:
				value = conn.Get(ctx, name).Val()
			}
			if strings.HasPrefix(strings.TrimPrefix(name, k.prefix), "departed") || strings.Contains(name, ":limit:") || strings.Contains(name, ":limit_keys:") {
				if ttl := conn.PTTL(ctx, name).Val(); ttl <= 0 {
					t.Errorf("%s does not expire", name)
				}
			}
			if fields, ok := value.(map[string]string); ok {
				delete(fields, "moved") // who moved it, and when
			}
			found[strings.TrimPrefix(name, k.prefix)] = value
		}
	}
	if cluster, ok := conn.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(t.Context(), k.body())
		if err != nil {
			t.Fatal(err)
		}
		visit(t.Context(), master)
	} else {
		visit(t.Context(), conn)
	}
	delete(found, "standbys") // which expires by itself
	delete(found, "sent_away")
	return found
}

// jobsOf is what is told of jobs, but for when they are expected to leave.
func jobsOf(t *testing.T, client *Client) map[string]JobInfo {
	t.Helper()
	infos := map[string]JobInfo{}
	for _, id := range []string{"done0", "dead1", "retry2", "gone0", "wait3", "wait11", "later1"} {
		info, err := client.Job(t.Context(), "b", id)
		if err != nil {
			t.Errorf("%s: %v", id, err)
		}
		info.OfPool, info.NextSlot = nil, time.Time{}
		infos[id] = info
	}
	return infos
}

func wantSame(t *testing.T, what string, got, want map[string]any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-before +after):\n%s", what, diff)
	}
}

// wantLeft fails unless nothing but the mark of the move is under a tag.
func wantLeft(t *testing.T, conn redis.UniversalClient, k keys) {
	t.Helper()
	left := contents(t, conn, k)
	if names := slices.Collect(maps.Keys(left)); len(names) > 1 || len(names) == 1 && names[0] != "move" {
		t.Errorf("under %s there are still %v", k.prefix, names)
	}
}

// wantMoved fails unless a bucket that was filled has all of that, at its new tag, answers as
// before, and sends what waits once it is resumed.
func wantMoved(t *testing.T, conn redis.UniversalClient, b Bucket, from keys, before map[string]any, sent []Job) {
	t.Helper()
	client := clientWith(t, conn, b)
	wantSame(t, "contents", contents(t, conn, taggedKeys(b.tag(), b.Name)), before)
	wantLeft(t, conn, from)
	if tag := conn.HGet(t.Context(), tagsKey, b.Name).Val(); tag != b.tag() {
		t.Errorf("its tag is %q", tag)
	}
	if from.pool != "" && conn.HExists(t.Context(), poolBuckets(from.pool), b.Name).Val() {
		t.Errorf("pool %q still has it", from.pool)
	}
	for _, job := range sent {
		if receipts, err := client.Enqueue(t.Context(), job); err != nil || receipts[0].State == "" || receipts[0].Duplicate == slices.Contains(undelivered, receipts[0].State) {
			t.Errorf("%s again: %+v, %v", job.ID, receipts, err)
		}
	}
	infos, err := client.BucketInfos(t.Context())
	if err != nil || infos[0].Pause == nil || infos[0].Pause.By != "anna" || infos[0].Capacity != 4321 || len(infos[0].Pins) != 1 || infos[0].Dead != 4 || infos[0].Elsewhere {
		t.Errorf("%+v, %v", infos, err)
	}
	if _, err := client.Control("anna").Resume(t.Context(), b.Name); err != nil {
		t.Fatal(err)
	}
	delivered := work(t, conn, b, waitingJobs)
	slices.Sort(delivered)
	var want []string
	for _, job := range named("wait", waitingJobs) {
		want = append(want, job.ID)
	}
	slices.Sort(want)
	if !slices.Equal(delivered, want) {
		t.Errorf("delivered %v, want %v", delivered, want)
	}
}

// A bucket that joins a pool, or leaves one, has there all that it had.
func TestMoveBringsAll(t *testing.T) {
	t.Parallel()
	for kind, b := range movable() {
		for name, pools := range map[string][2]*Pool{"into a pool": {nil, vendor()}, "out of it": {vendor(), nil}} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
					was, is := in(pools[0], b), in(pools[1], b)
					sent := fillAll(t, conn, was)
					from := taggedKeys(was.tag(), "b")
					before := contents(t, conn, from)
					jobs := jobsOf(t, clientWith(t, conn, was))
					var steps []MoveStep
					moved, err := clientWith(t, conn, is).Control("bert").Move(t.Context(), "b", MoveOptions{Progress: func(p MoveProgress) {
						if !slices.Contains(steps, p.Step) {
							steps = append(steps, p.Step)
						}
					}})
					if err != nil || moved.From != was.tag() || moved.To != is.tag() || moved.Jobs != 23 || moved.Entries < 60 || moved.Already {
						t.Fatalf("%+v, %v", moved, err)
					}
					if !slices.Equal(steps, []MoveStep{MoveCopies, MoveRemoves}) {
						t.Errorf("its steps were %v", steps)
					}
					if diff := cmp.Diff(jobs, jobsOf(t, clientWith(t, conn, is))); diff != "" {
						t.Errorf("jobs (-before +after):\n%s", diff)
					}
					wantMoved(t, conn, is, from, before, sent)
					again, err := clientWith(t, conn, is).Control("bert").Move(t.Context(), "b", MoveOptions{})
					if err != nil || !again.Already {
						t.Errorf("again: %+v, %v", again, err)
					}
				})
			})
		}
	}
}

// Only a bucket that is configured here, known to Redis and paused is moved.
func TestMoveRefuses(t *testing.T) {
	t.Parallel()
	conn := redistest.Start(t).Client()
	b := testBucket("b", 100)
	control := clientWith(t, conn, in(vendor(), b)).Control("anna")
	move := func(name string, want error, text string) {
		t.Helper()
		if _, err := control.Move(t.Context(), name, MoveOptions{}); !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
			t.Errorf("move %s: %v", name, err)
		}
	}
	move("other", ErrUnknownBucket, "only one that is configured is moved")
	move("b", ErrUnknownBucket, "Redis knows none")
	put(t, clientWith(t, conn, b), &b, named("j", 1)...)
	move("b", ErrNotPaused, "dispatcher bucket pause b")
	if was, err := control.AbortMove(t.Context(), "b"); was || err != nil {
		t.Errorf("given up without a move: %t, %v", was, err)
	}
	if _, err := control.AbortMove(t.Context(), "other"); !errors.Is(err, ErrUnknownBucket) {
		t.Errorf("given up of none: %v", err)
	}
	// Jobs that lie where nobody looks for them are not mixed up with others.
	conn.HSet(t.Context(), taggedKeys("vendor", "b").body(), "stray", "x")
	if err := control.Pause(t.Context(), "b", ""); err != nil { // also with the new configuration
		t.Fatal(err)
	}
	var failed *MoveError
	if _, err := control.Move(t.Context(), "b", MoveOptions{}); !errors.As(err, &failed) || failed.Frozen || !strings.Contains(err.Error(), "1 jobs are kept with the tag \"vendor\"") {
		t.Errorf("moved onto jobs: %v", err)
	}
	put(t, clientWith(t, conn, b), &b, Job{ID: "goes-on"})
	if !conn.HExists(t.Context(), taggedKeys("vendor", "b").body(), "stray").Val() {
		t.Error("it is lost")
	}
}

// A configuration with which the bucket could not be used where it comes to does not bring it there.
func TestMoveByAnotherConfiguration(t *testing.T) {
	t.Parallel()
	conn := redistest.Start(t).Client()
	b := testBucket("b", 100)
	b.Revision = 5
	put(t, clientWith(t, conn, b), &b, named("j", 1)...)
	if err := clientWith(t, conn, b).Control("anna").Pause(t.Context(), "b", ""); err != nil {
		t.Fatal(err)
	}
	older, parted := in(vendor(), b), in(vendor(), flowing("b", FlowKeyJob))
	older.Revision, parted.Revision = 4, 5
	for text, own := range map[string]Bucket{"of revision 5 is in force, and this one is of revision 4": older, "it was used without flows, and is configured with flows": parted} {
		var failed *MoveError
		if _, err := clientWith(t, conn, own).Control("anna").Move(t.Context(), "b", MoveOptions{}); !errors.As(err, &failed) || failed.Frozen || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	// Nor does it by itself when there are no jobs.
	if _, err := clientWith(t, conn, b).Cancel(t.Context(), "b", "j0"); err != nil {
		t.Fatal(err)
	}
	if _, err := clientWith(t, conn, older).Enqueue(t.Context(), Job{Bucket: "b", Payload: []byte("x")}); !errors.Is(err, ErrTagChanged) || !strings.Contains(err.Error(), "of revision 5") {
		t.Errorf("an older configuration took the bucket: %v", err)
	}
}
