//go:build soak

package shaper

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/redistest"
)

// frozen is a bucket that was filled and that a move has frozen, which then died.
func frozen(t *testing.T, conn redis.UniversalClient, b Bucket, to *Pool) {
	t.Helper()
	own := in(to, b)
	m := newMover(clientWith(t, conn, own).store, &own, "bert", "")
	if err := m.freeze(t.Context(), b.tag()); err != nil {
		t.Fatal(err)
	}
}

// TestFrozenBucketDoesNothing: nothing comes in, nothing goes out, nothing is changed; it can be looked at.
func TestFrozenBucketDoesNothing(t *testing.T) {
	t.Parallel()
	for kind, b := range movable() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
				fillAll(t, conn, b)
				used := clientWith(t, conn, b) // which has found it configured
				if _, err := used.Cancel(t.Context(), "b", "gone0"); err != nil {
					t.Fatal(err)
				}
				frozen(t, conn, b, vendor())
				before := contents(t, conn, taggedKeys("b", "b"))
				var patch BucketPatch
				if err := patch.Put(SettingBurst, "2"); err != nil {
					t.Fatal(err)
				}
				for who, client := range map[string]*Client{"one that has used it": used, "a new one": clientWith(t, conn, b), "a stranger": clientWith(t, conn)} {
					control := client.Control("carl")
					does := map[string]func() error{
						"pause":  func() error { return control.Pause(t.Context(), "b", "") },
						"resume": func() error { _, err := control.Resume(t.Context(), "b"); return err },
						"reset":  func() error { _, err := control.Reset(t.Context(), "b"); return err },
						"set":    func() error { _, err := control.Set(t.Context(), "b", patch); return err },
						"purge":  func() error { _, err := control.Purge(t.Context(), "b", PurgeOptions{}); return err },
						"enqueue": func() error {
							_, err := client.Enqueue(t.Context(), Job{Bucket: "b", Flow: "f", Group: "g", Payload: []byte("x"), Identity: admission.Identity{Caller: "anna"}})
							return err
						},
						"cancel":  func() error { _, err := client.Cancel(t.Context(), "b", "wait1"); return err },
						"drop":    func() error { _, err := client.DropDead(t.Context(), "b", "dead1"); return err },
						"redrive": func() error { _, err := client.Redrive(t.Context(), "b", "dead1"); return err },
						"override limit": func() error {
							return client.OverrideLimit(t.Context(), "per-caller", admission.Patch{Burst: new(int64(7))})
						},
					}
					if b.Flow != nil && b.Group == nil {
						does["pause flow"] = func() error { return control.PauseFlow(t.Context(), "b", "flow1", "") }
					}
					for what, do := range does {
						if who == "a stranger" && (what == "enqueue" || what == "cancel" || what == "drop" || what == "redrive" || what == "override limit") {
							continue // it knows no such bucket
						}
						err := do()
						if err != nil && !errors.Is(err, ErrMoving) && what == "override limit" {
							err = do() // the first one finds out that the settings are gone
						}
						if !errors.Is(err, ErrMoving) || !strings.Contains(err.Error(), `from the tag "b" to "vendor" since`) {
							t.Errorf("%s, %s: %v", who, what, err)
						}
					}
					if info, err := client.Job(t.Context(), "b", "wait1"); err != nil || info.State != StateQueued {
						t.Errorf("%s: %+v, %v", who, info, err)
					}
					infos, err := client.BucketInfos(t.Context(), "b")
					if err != nil || infos[0].Moving == nil || infos[0].Moving.To != "vendor" || infos[0].Moving.By != "bert" || infos[0].Dead != 4 || infos[0].Pause == nil {
						t.Errorf("%s: %+v, %v", who, infos, err)
					}
				}
				d, err := NewDispatcher(DispatcherConfig{Redis: conn, Buckets: []Bucket{b}, Workers: map[string]Worker{"test": WorkerFunc(func(context.Context, *Attempt) Outcome { return Done(200) })}})
				if err != nil {
					t.Fatal(err)
				}
				drain := newDrain(d, d.store.buckets["b"], t.Context())
				drain.configured.Store(true) // it was, when it began
				if _, err := drain.claim(t.Context(), "claim", 10); !errors.Is(err, ErrMoving) {
					t.Errorf("claim: %v", err)
				}
				if err := drain.sweep(t.Context(), &sweepWatch{}, 0, true); err != nil {
					t.Errorf("sweep: %v", err)
				}
				if err := drain.takeBack(t.Context(), mending{}, []string{"wait1", "retry1"}, []string{pathOf(b.parted(), "group1", "flow1")}, &mended{}); err != nil {
					t.Errorf("take back: %v", err)
				}
				wantSame(t, "contents", contents(t, conn, taggedKeys("b", "b")), before)
				// The other side is told too, and that it is not there yet.
				if _, err := clientWith(t, conn, in(vendor(), b)).Enqueue(t.Context(), Job{Bucket: "b", Flow: "f", Group: "g", Payload: []byte("x"), Identity: admission.Identity{Caller: "anna"}}); !errors.Is(err, ErrMoving) {
					t.Errorf("enqueue where it comes to: %v", err)
				}
				if was, err := clientWith(t, conn).Control("carl").AbortMove(t.Context(), "b"); !was || err != nil {
					t.Errorf("given up: %t, %v", was, err)
				}
				if _, err := used.Control("carl").Resume(t.Context(), "b"); err != nil {
					t.Error(err)
				}
				work(t, conn, b, waitingJobs)
			})
		})
	}
}

// A move waits for jobs in flight, and takes those along whose leases have run out.
func TestMoveAndLeases(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := server.Client()
	b := testBucket("b", 100)
	client := clientWith(t, conn, b)
	put(t, client, &b, named("j", 1)...)
	d, err := NewDispatcher(DispatcherConfig{Redis: conn, Buckets: []Bucket{b}, Lease: 2 * time.Second,
		Workers: map[string]Worker{"test": WorkerFunc(func(context.Context, *Attempt) Outcome { return Done(200) })}})
	if err != nil {
		t.Fatal(err)
	}
	// What a process does that dies after its claim.
	life, kill := context.WithCancel(t.Context())
	drain := newDrain(d, d.store.buckets["b"], life)
	kill()
	for conn.ZCard(t.Context(), bucketKeys("b").leases()).Val() == 0 {
		_, _ = drain.claim(t.Context(), "claim", 1)
	}
	if err := client.Control("anna").Pause(t.Context(), "b", ""); err != nil {
		t.Fatal(err)
	}
	is := in(vendor(), b)
	control := clientWith(t, conn, is).Control("anna")
	if _, err := control.Move(t.Context(), "b", MoveOptions{Patience: time.Millisecond}); err == nil || !strings.Contains(err.Error(), "1 of its jobs are still in flight") {
		t.Errorf("with a job in flight: %v", err)
	}
	waited := false
	if _, err := control.Move(t.Context(), "b", MoveOptions{Progress: func(p MoveProgress) { waited = waited || p.Step == MoveWaits && p.InFlight == 1 }}); err != nil || !waited {
		t.Errorf("waited: %t, %v", waited, err)
	}
	if _, err := control.Resume(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if got := work(t, conn, is, 1); got[0] != "j0" {
		t.Errorf("delivered %v", got)
	}
}

// A server that has no memory for a second copy leaves the bucket as it was.
func TestMoveOnAFullServer(t *testing.T) {
	t.Parallel()
	conn := redistest.Start(t).Client()
	b := testBucket("b", 1000)
	client := clientWith(t, conn, b)
	put(t, client, &b, named("j", 500)...)
	if err := client.Control("anna").Pause(t.Context(), "b", ""); err != nil {
		t.Fatal(err)
	}
	before := contents(t, conn, bucketKeys("b"))
	if err := conn.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(1<<20)).Err(); err != nil {
		t.Fatal(err)
	}
	var failed *MoveError
	_, err := clientWith(t, conn, in(vendor(), b)).Control("anna").Move(t.Context(), "b", MoveOptions{})
	if !errors.As(err, &failed) || failed.Frozen || !strings.Contains(err.Error(), "no memory for a second copy") {
		t.Errorf("%v", err)
	}
	if err := conn.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	wantSame(t, "contents", contents(t, conn, bucketKeys("b")), before)
	wantLeft(t, conn, taggedKeys("vendor", "b"))
	put(t, client, &b, Job{ID: "more"})
}

// Several who move the same bucket at the same time do one move.
func TestMoveBySeveral(t *testing.T) {
	t.Parallel()
	for kind, b := range movable() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			conn := server.Client()
			sent := fillAll(t, conn, b)
			before := contents(t, conn, bucketKeys("b"))
			var all sync.WaitGroup
			for range 4 {
				client := clientWith(t, connect(t, server.Addr()), in(vendor(), b))
				all.Go(func() {
					if _, err := client.Control("bert").Move(t.Context(), "b", MoveOptions{}); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			wantMoved(t, conn, in(vendor(), b), bucketKeys("b"), before, sent)
		})
	}
}

// dawdler stands still for a while at some of its round trips, so that others overtake it.
type dawdler struct{ longest time.Duration }

func (d dawdler) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d dawdler) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { d.dawdle(ctx); return next(ctx, cmd) }
}

func (d dawdler) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { d.dawdle(ctx); return next(ctx, cmds) }
}

func (d dawdler) dawdle(ctx context.Context) {
	if rand.N(4) == 0 {
		sleep(ctx, rand.N(d.longest))
	}
}

// Some move a bucket while others give that up, to and fro, and all dawdle: whoever wins, it has what it
// had, at one place.
func TestMoveAndAbortAtTheSameTime(t *testing.T) {
	t.Parallel()
	for kind, b := range movable() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			conn := server.Client()
			slow := func() redis.UniversalClient {
				own := connect(t, server.Addr())
				own.AddHook(dawdler{20 * time.Millisecond})
				return own
			}
			sent := fillAll(t, conn, b)
			before := contents(t, conn, bucketKeys("b"))
			was, is := in(nil, b), in(vendor(), b)
			var ended, stopped atomic.Int64
			first, second, third, fourth := slow(), slow(), slow(), slow()
			for range 12 {
				var all sync.WaitGroup
				for _, own := range []redis.UniversalClient{first, second} {
					all.Go(func() {
						for range 3 {
							if _, err := clientWith(t, own, is).Control("bert").Move(t.Context(), "b", MoveOptions{}); err == nil {
								ended.Add(1)
							}
						}
					})
				}
				for _, own := range []redis.UniversalClient{third, fourth} {
					all.Go(func() {
						for range 3 {
							if gone, err := clientWith(t, own).Control("carl").AbortMove(t.Context(), "b"); gone && err == nil {
								stopped.Add(1)
							}
						}
					})
				}
				all.Wait()
				if _, err := clientWith(t, conn, is).Control("dora").Move(t.Context(), "b", MoveOptions{}); err != nil {
					t.Fatal(err)
				}
				wantSame(t, "contents", contents(t, conn, taggedKeys(is.tag(), "b")), before)
				wantLeft(t, conn, taggedKeys(was.tag(), "b"))
				was, is = is, was
			}
			t.Logf("%d moves, %d given up", ended.Load(), stopped.Load())
			if ended.Load() == 0 {
				t.Error("none was moved")
			}
			wantMoved(t, conn, was, taggedKeys(is.tag(), "b"), before, sent)
		})
	}
}
