package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

// An empty bucket joins a pool, goes to another one and leaves it, with all that operators have said.
func TestEmptyBucketChangesItsPool(t *testing.T) {
	t.Parallel()
	for kind, b := range changeable() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
				commanded(t, conn, b)
				settings := settingsAt(t, conn, "b")
				for _, pool := range []*shaper.Pool{rig.PoolNamed("vendor"), rig.PoolNamed("other"), nil, rig.PoolNamed("vendor")} {
					own := rig.In(pool, b)
					client := mustJoin(t, conn, own)
					mustEnqueue(t, client, "j")
					mustCancel(t, client, "j")
					what := "in " + store.PoolText(store.TagOf(&own), "b")
					count := conn.HGet(t.Context(), store.TagsKey, "b"+store.GenerationSuffix).Val()
					settings["pace"] = settingsAt(t, conn, store.TagOf(&own))["pace"] // flows have a clock there
					if pace, ok := settings["pace"].(map[string]string); !ok || pace["slot"] != "1783228800123456" {
						t.Errorf("%s: the pace is %v", what, settings["pace"])
					}
					wantLives(t, what, conn, own, settings)
					if mustJoin(t, conn, own); conn.HGet(t.Context(), store.TagsKey, "b"+store.GenerationSuffix).Val() != count {
						t.Errorf("%s: it changed again", what)
					}
					infos, err := client.Op.BucketInfos(t.Context())
					if err != nil || infos[0].Elsewhere || infos[0].Pause == nil || infos[0].Pause.By != "anna" || infos[0].Capacity != 4321 {
						t.Errorf("%s: %+v, %v", what, infos, err)
					}
				}
				if known, err := clientWith(t, conn).Op.KnownBuckets(t.Context()); err != nil || fmt.Sprint(known) != "[b]" {
					t.Errorf("known are %v, %v", known, err)
				}
				if pools, err := clientWith(t, conn).Op.KnownPools(t.Context()); err != nil || fmt.Sprint(pools) != "[vendor]" {
					t.Errorf("pools are %v, %v", pools, err)
				}
			})
		})
	}
}

// More settings than one script copies.
func TestManySettingsGoWithABucket(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		b := changeable()["flows"]
		commanded(t, conn, b)
		fields, times := []any{}, []any{}
		for i := range 5*store.CopiedAtOnce + 1 {
			fields, times = append(fields, fmt.Sprint("flow", i), "0 0 0 0 0 2 "), append(times, i)
		}
		k := store.BucketKeys("b")
		conn.HSet(t.Context(), k.FlowSettings(), fields...)
		conn.RPush(t.Context(), k.Departed(), times...)
		settings := settingsAt(t, conn, "b")
		mustJoin(t, conn, rig.In(rig.PoolNamed("vendor"), b))
		after := settingsAt(t, conn, "vendor")
		if a, b := fmt.Sprint(settings["flow settings"], settings["departures"]), fmt.Sprint(after["flow settings"], after["departures"]); a != b {
			t.Errorf("before\n%s\nafter\n%s", a, b)
		}
	})
}

// A Redis without memory is no reason to leave a bucket between two pools.
func TestPoolChangeOnAFullServer(t *testing.T) {
	t.Parallel()
	conn := redistest.Start(t).Client()
	b := changeable()["groups"]
	commanded(t, conn, b)
	settings := settingsAt(t, conn, "b")
	must.OK(t, conn.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	if err := conn.Set(t.Context(), "x", "x", 0).Err(); !redis.HasErrorPrefix(err, "OOM") {
		t.Fatalf("it is not full: %v", err)
	}
	mustJoin(t, conn, rig.In(rig.PoolNamed("vendor"), b))
	wantLives(t, "full", conn, rig.In(rig.PoolNamed("vendor"), b), settings)
}

// remember writes an id as if its job was settled, and when its dedupe window ends.
func remember(t *testing.T, conn redis.UniversalClient, k store.Keys, id string, ends time.Time) {
	t.Helper()
	conn.HSet(t.Context(), k.Seen(), id, fmt.Sprintf("AAAAAAAAAAA6%d", ends.UnixMicro()))
	conn.RPush(t.Context(), k.SeenWindow(), id)
}

// In a cluster, a bucket that is not empty keeps its pool, and the error says what it holds and how to go on.
func TestBucketThatIsNotEmptyKeepsItsPoolInACluster(t *testing.T) {
	t.Parallel()
	conn := redistest.StartCluster(t).Client(t)
	b := changeable()["plain"]
	used := commanded(t, conn, b)
	k := store.BucketKeys("b")
	settings := settingsAt(t, conn, "b")
	joins := rig.In(rig.PoolNamed("acme"), b)
	now := conn.Time(t.Context()).Val()
	hold := func(jobs, dead, leases, ids int) {
		t.Helper()
		conn.Del(t.Context(), k.Body(), k.Dead(), k.Leases(), k.Seen(), k.SeenWindow(), k.SeenMinute())
		for i := range jobs + dead + leases {
			conn.HSet(t.Context(), k.Body(), fmt.Sprint("j", i), "x")
		}
		for i := range dead {
			conn.ZAdd(t.Context(), k.Dead(), redis.Z{Member: fmt.Sprint("j", i)})
		}
		for i := range leases {
			conn.ZAdd(t.Context(), k.Leases(), redis.Z{Member: fmt.Sprint("j", dead+i)})
		}
		for i := range ids {
			remember(t, conn, k, fmt.Sprint("s", i), now.Add(24*time.Hour-time.Duration(ids-1-i)*time.Minute))
		}
	}
	const ways = ", and in a Redis Cluster a bucket changes its pool while it is empty: let it drain, or point producers at a new bucket in the pool"
	for text, held := range map[string][4]int{
		"it holds 12 jobs, 3 dead letters, 4 leases and 7 remembered ids (the last ends in 24h)" + ways: {12, 3, 4, 7},
		"it holds 1 job" + ways: {1, 0, 0, 0}, "it holds 1 dead letter" + ways: {0, 1, 0, 0},
		"it holds 2 leases" + ways: {0, 0, 2, 0}, "it holds 1 remembered id (the last ends in 24h)" + ways: {0, 0, 0, 1},
	} {
		hold(held[0], held[1], held[2], held[3])
		client := clientWith(t, conn, joins)
		for what, err := range map[string]error{"start": client.JoinPools(t.Context()), "check": used.CheckPools(t.Context(), []shaper.Bucket{joins})} {
			if !errors.Is(err, shaper.ErrTagChanged) || !strings.HasSuffix(err.Error(), `bucket "b" cannot join pool "acme": `+text) {
				t.Errorf("%s: %v, want %s", what, err, text)
			}
		}
		must.Equal(t, cmp.Diff(settings, settingsAt(t, conn, "b")), "", "%s", text)
		if infos, err := client.Op.BucketInfos(t.Context()); err != nil || !infos[0].Elsewhere || infos[0].Dead != int64(held[1]) || infos[0].Pool != nil {
			t.Errorf("%+v, %v", infos, err)
		}
	}
	hold(0, 0, 0, 0)
	remember(t, conn, k, "over", now.Add(-time.Minute))
	if err := used.CheckPools(t.Context(), []shaper.Bucket{joins}); err != nil {
		t.Errorf("empty: %v", err)
	}
	client := mustJoin(t, conn, joins)
	mustEnqueue(t, client, "j")
	for text, own := range map[string]shaper.Bucket{
		`cannot leave pool "acme": it holds 1 job`:                  b,
		`cannot go from pool "acme" to pool "vendor": it holds 1 j`: rig.In(rig.PoolNamed("vendor"), b),
	} {
		if err := clientWith(t, conn, own).JoinPools(t.Context()); !errors.Is(err, shaper.ErrTagChanged) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %s", err, text)
		}
	}
	// Jobs that lie where no dispatcher looks, as after a failover, are not mixed up with others.
	mustCancel(t, client, "j")
	conn.HSet(t.Context(), k.Body(), "stray", "x")
	if err := clientWith(t, conn, b).JoinPools(t.Context()); err == nil || !strings.Contains(err.Error(), "1 of its jobs are kept where no dispatcher looks for them") {
		t.Errorf("onto jobs: %v", err)
	}
	mustEnqueue(t, client, "goes-on")
}

// Of configurations with the same revision, the dispatcher that started last wins an empty bucket. A higher revision wins, and a lower
// one is refused. Producers and operators go to where the bucket is.
func TestConfigurationsThatDisagree(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		b := changeable()["plain"]
		is := rig.In(rig.PoolNamed("vendor"), b)
		owner := func(own shaper.Bucket) *store.Store {
			t.Helper()
			s := must.Get(store.New(store.Authoritative, conn, []shaper.Bucket{own}, 0, nil, nil))(t)
			return s
		}
		alone, pooled := clientWith(t, conn, b), clientWith(t, conn, is)
		lives := func(what, tag string) {
			t.Helper()
			for _, client := range []*rig.Actors{alone, pooled, clientWith(t, conn, b), clientWith(t, conn, is)} {
				mustEnqueue(t, client, "j")
				if n := conn.HLen(t.Context(), store.TaggedKeys(tag, "b").Body()).Val(); n != 1 {
					t.Errorf("%s: the job is not in %s", what, store.PoolText(tag, "b"))
				}
				mustCancel(t, client, "j")
			}
		}
		first, second := owner(b), owner(is)
		must.OK(t, first.JoinPools(t.Context()))
		lives("the first dispatcher", "b")
		must.OK(t, second.JoinPools(t.Context()))
		lives("the second one, started later", "vendor")
		for range 2 { // it does not take the bucket back
			first.Known("b").Configured.Store(false)
			if err := first.Join(t.Context(), first.Known("b")); !errors.Is(err, shaper.ErrTagChanged) || !strings.Contains(err.Error(),
				`bucket "b" is in pool "vendor", but this configuration has it in no pool: use the current configuration, or reload or restart this process, which moves the bucket`) {
				t.Errorf("the first dispatcher, which runs: %v", err)
			}
		}
		// An operator with another configuration is obeyed where the bucket lives.
		must.OK(t, clientWith(t, conn, b).Op.As("bert").Bucket("b").Pause(t.Context(), ""))
		if infos, err := pooled.Op.BucketInfos(t.Context()); err != nil || infos[0].Pause == nil {
			t.Errorf("%+v, %v", infos, err)
		}
		must.OK(t, owner(b).JoinPools(t.Context()))
		lives("the first dispatcher, restarted", "b")
		newer := is
		newer.Revision = 1
		must.OK(t, second.Reconfigure([]shaper.Bucket{newer}))
		must.OK(t, second.JoinPools(t.Context()))
		lives("a higher revision", "vendor")
		if err := owner(b).JoinPools(t.Context()); !errors.Is(err, shaper.ErrTagChanged) || !strings.Contains(err.Error(),
			`cannot leave pool "vendor": a configuration of revision 1 is in force, and this process has revision 0`) {
			t.Errorf("a lower revision: %v", err)
		}
		lives("a lower revision", "vendor")
	})
}

// A process dies at any round trip of a change, before Redis sees it or with its reply lost. Others find the bucket in
// one place, with all its settings, whichever configuration they have.
func TestPoolChangeIsInterruptedAnywhere(t *testing.T) {
	t.Parallel()
	for kind, b := range changeable() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			conn := server.Client()
			is, other := rig.In(rig.PoolNamed("vendor"), b), rig.In(rig.PoolNamed("other"), b)
			died := errors.New("the process dies")
			for at, trips := 1, 2; at < trips; at++ {
				for _, replied := range []bool{false, true} {
					for who, goOn := range map[string]func(running *rig.Actors) shaper.Bucket{
						"the same configuration": func(*rig.Actors) shaper.Bucket { mustJoin(t, conn, is); return is },
						"a third configuration":  func(*rig.Actors) shaper.Bucket { mustJoin(t, conn, other); return other },
						"the old configuration":  func(*rig.Actors) shaper.Bucket { mustJoin(t, conn, b); return b },
						"a process that runs": func(running *rig.Actors) shaper.Bucket {
							mustEnqueue(t, running, "x") // wherever the bucket is
							mustJoin(t, conn, is)        // with the job
							mustCancel(t, running, "x")
							return is
						},
					} {
						what := fmt.Sprintf("trip %d, replied %t, %s", at, replied, who)
						conn.FlushAll(t.Context())
						running := commanded(t, conn, b)
						settings := settingsAt(t, conn, "b")
						late := rig.Connect(t, server.Addr())
						hook := &rig.TripHook{At: at, Do: func(trip func() error) error {
							if replied {
								_ = trip()
							}
							return died
						}}
						late.AddHook(hook)
						if err := clientWith(t, late, is).JoinPools(t.Context()); (err == nil) != (int(hook.Seen.Load()) < at) {
							t.Fatalf("%s: %v", what, err)
						}
						trips = max(trips, int(hook.Seen.Load())+2)
						if at > int(hook.Seen.Load()) {
							trips = at
						}
						_ = late.Close()
						lives := goOn(running)
						client := clientWith(t, conn, lives)
						mustEnqueue(t, client, "j")
						mustCancel(t, client, "j")
						settings["pace"] = settingsAt(t, conn, store.TagOf(&lives))["pace"]
						wantLives(t, what, conn, lives, settings)
					}
				}
			}
		})
	}
}

// A process stands still at any round trip of a change, while others complete it and go on. When it goes on, it may bring the bucket to its
// pool, as any process that comes last, and changes nothing else.
func TestLateProcessChangesNothingElse(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := server.Client()
	b := changeable()["flows"]
	is, other := rig.In(rig.PoolNamed("vendor"), b), rig.In(rig.PoolNamed("other"), b)
	for at, ended := 1, false; !ended; at++ {
		for what, way := range map[string][]shaper.Bucket{"completed": {is}, "and back": {is, b}, "and on": {is, other}, "and on, and there again": {is, other, is}, "elsewhere, and back": {other, b}} {
			what = fmt.Sprintf("trip %d, %s", at, what)
			conn.FlushAll(t.Context())
			commanded(t, conn, b)
			lives := way[len(way)-1]
			var settings map[string]any
			own := rig.Connect(t, server.Addr())
			hook := &rig.TripHook{At: at, Do: func(trip func() error) error {
				var client *rig.Actors
				for _, step := range way {
					client = mustJoin(t, conn, step)
				}
				var patch operator.BucketPatch
				if err := patch.Put(shaper.SettingCapacity, "999"); err != nil {
					t.Error(err)
				}
				if _, err := client.Op.As("carl").Bucket("b").Set(t.Context(), patch); err != nil {
					t.Error(err)
				}
				mustEnqueue(t, client, "j")
				settings = settingsAt(t, conn, store.TagOf(&lives))
				return trip()
			}}
			own.AddHook(hook)
			err := clientWith(t, own, is).JoinPools(t.Context())
			_ = own.Close()
			if ended = int(hook.Seen.Load()) < at; ended {
				break
			}
			if err != nil && !errors.Is(err, shaper.ErrTagChanged) && !errors.Is(err, store.ErrOvertaken) {
				t.Errorf("%s: %v", what, err)
			}
			if info, err := clientWith(t, conn, lives).Job(t.Context(), "b", "j"); err != nil || info.State != shaper.StateQueued {
				t.Errorf("%s: %+v, %v", what, info, err)
			}
			mustJoin(t, conn, lives)
			wantLives(t, what, conn, lives, settings)
		}
	}
}
