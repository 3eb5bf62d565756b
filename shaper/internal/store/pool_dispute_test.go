package store_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Processes of several configurations start, use the bucket and end, all at the same time. No job is let in where
// those that let it in do not find it.
func TestProcessesThatDisagreeLoseNoJob(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := server.Client()
	for kind, b := range changeable() {
		conn.FlushAll(t.Context())
		commanded(t, conn, b)
		ways := []shaper.Bucket{b, rig.In(rig.PoolNamed("vendor"), b), rig.In(rig.PoolNamed("other"), b)}
		rounds, used := 8, [3]atomic.Int64{}
		if redistest.Soak {
			rounds = 100
		}
		var all sync.WaitGroup
		for n := range 6 {
			own := ways[n%3]
			all.Go(func() {
				mine := rig.Connect(t, server.Addr())
				mine.AddHook(dawdler{})
				for i := range rounds {
					client, err := rig.NewActors(producer.Config{Redis: mine, Buckets: []shaper.Bucket{own}, Timeout: time.Minute})
					if err != nil {
						t.Error(err)
						return
					}
					id := fmt.Sprintf("j%d-%d", n, i)
					receipts, err := client.Enqueue(t.Context(), jobOf(id))
					if err != nil {
						if !errors.Is(err, shaper.ErrTagChanged) && !errors.Is(err, store.ErrOvertaken) && !errors.Is(err, store.ErrNotConfigured) {
							t.Errorf("%s: %v", id, err)
						}
						continue
					}
					if refusal := receipts[0].Refusal; refusal != nil {
						if refusal.Reason != shaper.ReasonLimit { // on a fast machine they pass the limit
							t.Errorf("%s: %+v", id, refusal)
						}
						continue
					}
					used[n%3].Add(1)
					must.Equal(t, must.Get(client.Cancel(t.Context(), "b", id))(t), shaper.StateCancelled, "%s was let in, and is not found", id)
				}
			})
		}
		all.Wait()
		t.Logf("%s: let in %d, %d and %d", kind, used[0].Load(), used[1].Load(), used[2].Load())
		for _, own := range ways {
			client := mustJoin(t, conn, own)
			for _, tag := range []string{"b", "vendor", "other"} {
				must.Equal(t, conn.HLen(t.Context(), store.TaggedKeys(tag, "b").Body()).Val(), 0, "%s: jobs are left under the tag %q", kind, tag)
			}
			if infos, err := client.Op.BucketInfos(t.Context()); err != nil || infos[0].Pause == nil || infos[0].Capacity != 4321 {
				t.Errorf("%s: %+v, %v", kind, infos, err)
			}
		}
	}
}

// A failover that loses the write of the index is put right by the next process, whichever configuration it has.
func TestLostWriteOfTheIndex(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		b := changeable()["flows"]
		is := rig.In(rig.PoolNamed("vendor"), b)
		for what, find := range map[string]func() error{
			"the configuration of now":    func() error { return clientWith(t, conn, is).JoinPools(t.Context()) },
			"the configuration of before": func() error { return clientWith(t, conn, b).JoinPools(t.Context()) },
			"a use":                       func() error { _, err := clientWith(t, conn, b).Cancel(t.Context(), "b", "unknown"); return err },
		} {
			conn.FlushAll(t.Context())
			commanded(t, conn, b)
			client := mustJoin(t, conn, is)
			mustEnqueue(t, client, "j")
			settings := settingsAt(t, conn, "vendor")
			for _, lost := range []string{"as before", "nothing"} {
				conn.Del(t.Context(), store.TagsKey)
				if lost == "as before" {
					conn.HSet(t.Context(), store.TagsKey, "b", "b")
				}
				if err := find(); err != nil && !errors.Is(err, shaper.ErrTagChanged) && !errors.Is(err, shaper.ErrNotFound) {
					t.Errorf("%s: %v", what, err)
				}
				if info, err := mustJoin(t, conn, is).Job(t.Context(), "b", "j"); err != nil || info.State != shaper.StateQueued {
					t.Errorf("%s, the index says %s: %+v, %v", what, lost, info, err)
				}
				wantLives(t, what, conn, is, settings)
			}
		}
	})
}
