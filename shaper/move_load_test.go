//go:build soak

package shaper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/redistest"
)

// TestMoveUnderLoad: producers and dispatchers with the configuration of before go on all the time, and
// those with the new one begin before the bucket is there. No job is lost, none is delivered twice, and
// none is let in where nobody looks.
func TestMoveUnderLoad(t *testing.T) {
	t.Parallel()
	for kind, b := range movable() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			b.Limits = nil
			is := in(vendor(), b)
			var history checker.History
			var mu sync.Mutex
			delivered := map[string]bool{}
			worker := WorkerFunc(func(_ context.Context, a *Attempt) Outcome {
				history.Delivered(a.ID, a.Number, time.Now())
				mu.Lock()
				defer mu.Unlock()
				delivered[a.ID] = true
				return Done(200)
			})
			put(t, clientWith(t, server.Client(), b), &b, Job{ID: "later", Delay: time.Hour}) // without jobs it would move by itself
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			for _, own := range []Bucket{b, is} {
				for range 2 {
					d, err := NewDispatcher(DispatcherConfig{Redis: connect(t, server.Addr()), Buckets: []Bucket{own}, Workers: map[string]Worker{"test": worker}})
					if err != nil {
						t.Fatal(err)
					}
					running.Go(func() { _ = d.Run(ctx) })
				}
			}
			more, end := context.WithCancel(t.Context())
			var admitted, refusedOld sync.Map
			var producing sync.WaitGroup
			for n, own := range []Bucket{b, b, is} {
				client := clientWith(t, connect(t, server.Addr()), own)
				producing.Go(func() {
					for i := 0; more.Err() == nil; i++ {
						id := fmt.Sprintf("j%d-%d", n, i)
						history.Unknown(id)
						receipts, err := client.Enqueue(t.Context(), Job{Bucket: "b", ID: id, Flow: fmt.Sprint(i % 5), Group: fmt.Sprint(i % 2), Payload: []byte("x")})
						switch {
						case err == nil && receipts[0].Refusal == nil:
							history.Admitted(id, time.Now())
							admitted.Store(id, true)
						case errors.Is(err, ErrMoving), errors.Is(err, ErrTagChanged):
							refusedOld.Store(n, true)
						case err != nil:
							t.Errorf("%s: %v", id, err)
						}
					}
				})
			}
			conn := server.Client()
			control := clientWith(t, conn, is).Control("anna")
			until(t, "jobs leave", func() bool { mu.Lock(); defer mu.Unlock(); return len(delivered) > 50 })
			if err := control.Pause(t.Context(), "b", ""); err != nil {
				t.Fatal(err)
			}
			if _, err := control.Move(t.Context(), "b", MoveOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := control.Resume(t.Context(), "b"); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			so := len(delivered)
			mu.Unlock()
			until(t, "jobs leave again", func() bool { mu.Lock(); defer mu.Unlock(); return len(delivered) > so+50 })
			end()
			producing.Wait()
			until(t, "all have left", func() bool { return conn.HLen(t.Context(), taggedKeys("vendor", "b").body()).Val() == 1 })
			stop()
			running.Wait()
			result := history.Check()
			if result.Err() != nil || result.Extra != 0 {
				t.Errorf("%v: %s", result.Err(), result)
			}
			for n := range 3 {
				if _, ok := refusedOld.Load(n); !ok {
					t.Errorf("producer %d was never refused", n)
				}
			}
			wantLeft(t, conn, bucketKeys("b"))
		})
	}
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited too long until %s", what)
		}
	}
}

// A process with the configuration of before that starts, or goes on, after the move is told; it neither
// takes the bucket back nor lets jobs in where it was, also if there is nothing in it any more.
func TestOldConfigurationAfterAMove(t *testing.T) {
	t.Parallel()
	conn := redistest.Start(t).Client()
	b := testBucket("b", 100)
	is := in(vendor(), b)
	used := clientWith(t, conn, b)
	put(t, used, &b, named("j", 1)...)
	if err := used.Control("anna").Pause(t.Context(), "b", ""); err != nil {
		t.Fatal(err)
	}
	control := clientWith(t, conn, is).Control("anna")
	if _, err := control.Move(t.Context(), "b", MoveOptions{}); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		for _, old := range []*Client{used, clientWith(t, conn, b)} {
			_, err := old.Enqueue(t.Context(), Job{Bucket: "b", Payload: []byte("x")})
			if !errors.Is(err, ErrTagChanged) || !strings.Contains(err.Error(), `moved from the tag "b" to "vendor"`) || !strings.Contains(err.Error(), "by anna") {
				t.Errorf("enqueue with the old configuration: %v", err)
			}
			if round == 0 {
				if info, err := old.Job(t.Context(), "b", "j0"); err != nil || info.State != StateQueued {
					t.Errorf("%+v, %v", info, err)
				}
				if infos, err := old.BucketInfos(t.Context()); err != nil || !infos[0].Elsewhere || infos[0].Waiting != 1 || infos[0].Pool == nil || infos[0].Pool.Name != "vendor" {
					t.Errorf("%+v, %v", infos, err)
				}
			}
			// What an operator says holds where the bucket is.
			if err := old.Control("bert").Pause(t.Context(), "b", ""); err != nil {
				t.Error(err)
			}
		}
		if _, err := clientWith(t, conn, is).Cancel(t.Context(), "b", "j0"); err != nil {
			t.Fatal(err)
		}
	}
	wantLeft(t, conn, bucketKeys("b"))
	// A failover that loses the new tag is put right.
	conn.HSet(t.Context(), tagsKey, "b", "b")
	if _, err := clientWith(t, conn, is).Cancel(t.Context(), "b", "j0"); !errors.Is(err, ErrTagChanged) {
		t.Errorf("used while its tag is lost: %v", err)
	}
	if moved, err := clientWith(t, conn, is).Control("anna").Move(t.Context(), "b", MoveOptions{}); err != nil || !moved.Already {
		t.Errorf("%+v, %v", moved, err)
	}
	if state, err := clientWith(t, conn, is).Cancel(t.Context(), "b", "j0"); err != nil || state != StateCancelled {
		t.Errorf("%s, %v", state, err)
	}
	// Asked to, it goes back, and on to another pool.
	for _, there := range []*Pool{nil, {Name: "other", Rate: perSecond(1)}, vendor()} {
		own := in(there, b)
		if moved, err := clientWith(t, conn, own).Control("anna").Move(t.Context(), "b", MoveOptions{}); err != nil || moved.To != own.tag() {
			t.Errorf("%+v, %v", moved, err)
		}
		put(t, clientWith(t, conn, own), &own, Job{ID: "on-" + own.tag()})
	}
	if n := conn.HLen(t.Context(), taggedKeys("vendor", "b").body()).Val(); n != 3 {
		t.Errorf("it has %d jobs", n)
	}
}

// An id that was settled before a bucket without jobs changed its tag by itself is still known.
func TestSettledIDsGoWithAnEmptyBucket(t *testing.T) {
	t.Parallel()
	conn := redistest.Start(t).Client()
	b := testBucket("b", 100)
	job := put(t, clientWith(t, conn, b), &b, named("done", 1)...)[0]
	work(t, conn, b, 1)
	for _, pool := range []*Pool{vendor(), nil, vendor()} {
		receipts, err := clientWith(t, conn, in(pool, b)).Enqueue(t.Context(), job)
		if err != nil || !receipts[0].Duplicate || receipts[0].State != StateDone {
			t.Errorf("%+v, %v", receipts, err)
		}
	}
	// Many ids are more than a call has time for.
	conn.HSet(t.Context(), taggedKeys("vendor", "b").seen(), manyFields(moveAlone+1)...)
	if _, err := clientWith(t, conn, b).Enqueue(t.Context(), job); !errors.Is(err, ErrTagChanged) || !strings.Contains(err.Error(), "dispatcher bucket move b") {
		t.Errorf("with many ids: %v", err)
	}
}

func manyFields(n int) (pairs []any) {
	for i := range n {
		pairs = append(pairs, fmt.Sprint("id", i), "x")
	}
	return pairs
}

// A mover that stood still, while others completed its move, moved the bucket on, or gave the move up, changes nothing
// when it goes on: not even where there is nothing in the bucket but its settings.
func TestLateMoverChangesNothing(t *testing.T) {
	t.Parallel()
	conn := redistest.Start(t).Client()
	b := testBucket("b", 100)
	is, other := in(vendor(), b), in(&Pool{Name: "other", Rate: perSecond(1)}, b)
	move := func(own Bucket) {
		t.Helper()
		if _, err := clientWith(t, conn, own).Control("anna").Move(t.Context(), "b", MoveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, jobs := range []int{0, 3} {
		for steps := range 5 {
			for what, overtake := range map[string]func() (lives Bucket){
				"completed":    func() Bucket { move(is); return is },
				"and back":     func() Bucket { move(is); move(b); return b },
				"and on":       func() Bucket { move(is); move(other); return other },
				"and on, back": func() Bucket { move(is); move(other); move(is); return is },
				"given up": func() Bucket {
					if _, err := clientWith(t, conn).Control("anna").AbortMove(t.Context(), "b"); err != nil {
						move(is) // it was too late for that
						return is
					}
					if conn.HGet(t.Context(), tagsKey, "b").Val() == is.tag() {
						move(is)
						return is
					}
					return b
				},
			} {
				conn.FlushAll(t.Context())
				put(t, clientWith(t, conn, b), &b, named("j", jobs)...)
				if err := clientWith(t, conn, b).Control("anna").Pause(t.Context(), "b", "x"); err != nil {
					t.Fatal(err)
				}
				late := newMover(clientWith(t, conn, is).store, &is, "bert", "")
				all := []func() error{
					func() error { return late.freeze(t.Context(), "b") },
					func() error { _, err := late.prepare(t.Context(), "b"); return err },
					func() error { return late.copyAll(t.Context(), "b") },
					func() error { return late.commit(t.Context(), "b") },
					func() error { return late.finish(t.Context(), "b") },
				}
				for i, step := range all[:steps] {
					if err := step(); err != nil {
						t.Fatalf("step %d: %v", i, err)
					}
				}
				lives := overtake()
				before, tag := contents(t, conn, taggedKeys(lives.tag(), "b")), conn.HGet(t.Context(), tagsKey, "b").Val()
				if steps > 0 {
					for _, step := range all[steps:] {
						_ = step() // it may find out, or not
					}
				}
				name := fmt.Sprintf("%d jobs, late after %d steps, %s", jobs, steps, what)
				wantSame(t, name, contents(t, conn, taggedKeys(lives.tag(), "b")), before)
				if is := conn.HGet(t.Context(), tagsKey, "b").Val(); is != tag || tag != lives.tag() {
					t.Errorf("%s: its tag is %q, before %q", name, is, tag)
				}
				move(lives) // there is nothing to do, and nothing in the way of the next one
				for _, own := range []Bucket{in(&Pool{Name: "third", Rate: perSecond(1)}, b), is, b} {
					move(own)
				}
				if n := len(contents(t, conn, bucketKeys("b"))); n != len(before) {
					t.Errorf("%s: %d keys, want %d", name, n, len(before))
				}
			}
		}
	}
}

// A bucket without jobs goes to and fro by itself while processes of two configurations use it. Once an operator
// has moved it, it stays.
func TestMoveEndsToAndFro(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := server.Client()
	b := testBucket("b", 100)
	is := in(vendor(), b)
	ctx, stop := context.WithCancel(t.Context())
	var using sync.WaitGroup
	var toAndFro atomic.Int64
	for i, own := range []Bucket{b, is, b, is} {
		mine := connect(t, server.Addr())
		using.Go(func() {
			for ctx.Err() == nil {
				_, err := clientWith(t, mine, own).Cancel(ctx, "b", "nosuch")
				switch {
				case errors.Is(err, ErrNotFound):
					toAndFro.Add(1)
				case !errors.Is(err, ErrTagChanged) && !errors.Is(err, ErrMoving) && !errors.Is(err, errNotConfigured) && ctx.Err() == nil:
					t.Errorf("%d: %v", i, err)
				}
			}
		})
	}
	until(t, "it goes to and fro", func() bool { return toAndFro.Load() > 50 })
	control := clientWith(t, conn, is).Control("anna")
	until(t, "it is paused", func() bool { return control.Pause(t.Context(), "b", "it is moved") == nil })
	until(t, "it is moved", func() bool { _, err := control.Move(t.Context(), "b", MoveOptions{}); return err == nil })
	seen := toAndFro.Load()
	until(t, "it is used", func() bool { return toAndFro.Load() > seen+50 })
	for range 3 {
		if _, err := clientWith(t, conn, b).Cancel(t.Context(), "b", "nosuch"); !errors.Is(err, ErrTagChanged) {
			t.Errorf("with the configuration of before: %v", err)
		}
		if state, err := clientWith(t, conn, is).Cancel(t.Context(), "b", "nosuch"); !errors.Is(err, ErrNotFound) {
			t.Errorf("with the new one: %s, %v", state, err)
		}
	}
	stop()
	using.Wait()
	infos, err := clientWith(t, conn, is).BucketInfos(t.Context())
	if err != nil || !infos[0].Configured || infos[0].Pause == nil || infos[0].Pause.By != "anna" {
		t.Errorf("%+v, %v", infos, err)
	}
	wantLeft(t, conn, bucketKeys("b"))
}
