package shaper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/redistest"
)

// cutter ends a process at one of its round trips: before Redis sees it, or with its reply lost.
type cutter struct {
	at, seen int
	replied  bool
	cut      context.CancelFunc
}

func (c *cutter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *cutter) trip(do func() error, fail func(error)) error {
	c.seen++
	if c.seen < c.at {
		return do()
	}
	if c.seen == c.at && c.replied {
		_ = do() // nobody hears of it
	}
	c.cut()
	fail(context.Canceled)
	return context.Canceled
}

func (c *cutter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return c.trip(func() error { return next(ctx, cmd) }, cmd.SetErr)
	}
}

func (c *cutter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return c.trip(func() error { return next(ctx, cmds) }, func(err error) {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		})
	}
}

// TestMoveIsCutAnywhere: whoever moves a bucket dies at any of its round trips. Moved again,
// it has all that it had; or the move is given up, and it is as it was.
func TestMoveIsCutAnywhere(t *testing.T) {
	t.Parallel()
	for kind, b := range movable() {
		for _, replied := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, " replied=", replied), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				conn := server.Client()
				sent := fillAll(t, conn, b)
				was, is := in(nil, b), in(vendor(), b)
				from := taggedKeys(was.tag(), "b")
				before := contents(t, conn, from)
				cuts, given := 0, 0
				for at := 1; ; at++ {
					ctx, cut := context.WithCancel(t.Context())
					c := &cutter{at: at, replied: replied, cut: cut}
					own := connect(t, server.Addr())
					own.AddHook(c)
					_, err := clientWith(t, own, is).Control("bert").Move(ctx, "b", MoveOptions{})
					cut()
					if c.seen < at { // it ended before
						if err != nil {
							t.Fatal(err)
						}
						break
					}
					cuts++
					if err == nil {
						t.Fatalf("cut at %d, and no error", at)
					}
					control := clientWith(t, conn, is).Control("carl")
					// In turns it is given up, if that is possible, and moved after all.
					if _, abortErr := control.AbortMove(t.Context(), "b"); abortErr == nil && conn.HGet(t.Context(), tagsKey, "b").Val() == was.tag() {
						given++
						wantSame(t, fmt.Sprint("given up, cut at ", at), contents(t, conn, from), before)
						wantLeft(t, conn, taggedKeys(is.tag(), "b"))
						continue
					}
					if _, err := control.Move(t.Context(), "b", MoveOptions{}); err != nil {
						t.Fatalf("cut at %d: %v, then %v", at, c.seen, err)
					}
					wantSame(t, fmt.Sprint("moved, cut at ", at), contents(t, conn, taggedKeys(is.tag(), "b")), before)
					wantLeft(t, conn, from)
					was, is = is, was
					from = taggedKeys(was.tag(), "b")
				}
				t.Logf("%d cuts, %d given up", cuts, given)
				if given == 0 || given == cuts {
					t.Error("not both were tried")
				}
				wantMoved(t, conn, is, from, before, sent)
			})
		}
	}
}

// The same, and each time it is moved again by another one, without giving it up.
func TestMoveGoesOn(t *testing.T) {
	t.Parallel()
	for kind, b := range movable() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			conn := server.Client()
			sent := fillAll(t, conn, b)
			is := in(vendor(), b)
			before := contents(t, conn, taggedKeys("b", "b"))
			for at := 1; ; at++ {
				ctx, cut := context.WithCancel(t.Context())
				c := &cutter{at: at, replied: at%2 == 0, cut: cut}
				own := connect(t, server.Addr())
				own.AddHook(c)
				_, err := clientWith(t, own, is).Control("bert").Move(ctx, "b", MoveOptions{})
				cut()
				if c.seen < at {
					if err != nil {
						t.Fatal(err)
					}
					break
				}
				// Nobody lets anything in or out meanwhile, and who finds it there takes it as it is.
				_, was := clientWith(t, conn, b).Enqueue(t.Context(), Job{Bucket: "b", ID: "x", Flow: "f", Group: "g", Payload: []byte("x"), Identity: admission.Identity{Caller: "anna"}})
				if was == nil && conn.Exists(t.Context(), taggedKeys("b", "b").move()).Val() == 1 {
					t.Errorf("cut at %d: a job got in", at)
				}
				if was == nil {
					if state, err := clientWith(t, conn, b).Cancel(t.Context(), "b", "x"); err != nil || state != StateCancelled {
						t.Fatal(state, err)
					}
					before = contents(t, conn, taggedKeys("b", "b"))
				}
			}
			wantMoved(t, conn, is, taggedKeys("b", "b"), before, sent)
		})
	}
}

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
						"cancel":    func() error { _, err := client.Cancel(t.Context(), "b", "wait1"); return err },
						"drop":      func() error { _, err := client.DropDead(t.Context(), "b", "dead1"); return err },
						"redrive":   func() error { _, err := client.Redrive(t.Context(), "b", "dead1"); return err },
						"pin limit": func() error { return client.PinLimit(t.Context(), "per-caller", admission.Patch{Burst: new(int64(7))}) },
					}
					if b.Flow != nil && b.Group == nil {
						does["pause flow"] = func() error { return control.PauseFlow(t.Context(), "b", "flow1", "") }
					}
					for what, do := range does {
						if who == "a stranger" && (what == "enqueue" || what == "cancel" || what == "drop" || what == "redrive" || what == "pin limit") {
							continue // it knows no such bucket
						}
						err := do()
						if err != nil && !errors.Is(err, ErrMoving) && what == "pin limit" {
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
	for late := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(late) {
			t.Fatalf("waited too long until %s", what)
		}
		time.Sleep(time.Millisecond)
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
