//go:build soak

package shaper

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/redistest"
)

// cutter ends a process at one of its round trips: before Redis sees it, or with its reply lost.
type cutter struct {
	at      int
	replied bool
	cut     context.CancelFunc
	seen    atomic.Int64 // in a cluster, two nodes are asked at the same time
}

func (c *cutter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *cutter) trip(do func() error, fail func(error)) error {
	seen := int(c.seen.Add(1))
	if seen < c.at {
		return do()
	}
	if seen == c.at && c.replied {
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
					if int(c.seen.Load()) < at { // it ended before
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
						t.Fatalf("cut at %d, then %v", at, err)
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
				if int(c.seen.Load()) < at {
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
				// Once it is decided, whoever looks for the bucket there completes what is left to do for him.
				if conn.HGet(t.Context(), tagsKey, "b").Val() == "vendor" {
					if state, err := clientWith(t, conn, is).Cancel(t.Context(), "b", "gone0"); err != nil || state != StateCancelled {
						t.Errorf("cut at %d: it is not used: %s, %v", at, state, err)
					}
				}
			}
			wantMoved(t, conn, is, taggedKeys("b", "b"), before, sent)
		})
	}
}
