package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// staysBehind are keys that do not go with a bucket, by what keys.go adds to the prefix, and why.
var staysBehind = map[string]string{
	"settings":    "goes as parked_settings",
	"claims":      "replies for leases, of which a bucket that moves has none",
	"differing":   "of processes whose configuration differs, for a minute",
	"limit:":      "what limits have counted begins again",
	"limit_keys:": "what limits have counted begins again",
}

// contents are the keys of a place by their last parts, as Redis dumps them.
func contents(t *testing.T, conn redis.UniversalClient, tag string) map[string]string {
	t.Helper()
	prefix, found := store.TaggedKeys(tag, "b").Prefix, map[string]string{}
	for _, key := range conn.Keys(t.Context(), prefix+"*").Val() {
		name := key[len(prefix):]
		if first, _, isLonger := strings.Cut(name, ":"); staysBehind[first] != "" || isLonger && staysBehind[first+":"] != "" {
			continue
		}
		dump := must.Get(conn.Dump(t.Context(), key).Result())(t)
		found[name] = dump
	}
	return found
}

// ownedKeys are the keys of a bucket that keys.go makes, or that the header of a script names, without the prefix. A key that ends with a
// colon has more behind it.
func ownedKeys(t *testing.T) []string {
	t.Helper()
	source := must.Get(os.ReadFile("keys.go"))(t)
	var names []string
	for _, found := range regexp.MustCompile(`k\.Prefix ?\+ ?"([^"]+)"`).FindAllStringSubmatch(string(source), -1) {
		names = append(names, found[1])
	}
	for _, script := range lua.All() {
		for _, name := range script.FixedKeys() {
			if !strings.HasPrefix(name, "tundish:") && !strings.HasPrefix(name, "p:") && name != lua.TurnQueue {
				name, _, _ = strings.Cut(name, "<")
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Each key that a bucket can have goes with it, or is listed above. A new key in keys.go or in a script's header fails this test until
// [store.Keys] names it among those of an empty bucket.
func TestEveryKeyGoesWithABucket(t *testing.T) {
	t.Parallel()
	conn := redistest.Start(t).Client()
	b := changeable()["groups"]
	b.DedupeWindow = time.Hour
	client := mustJoin(t, conn, b)
	mustEnqueue(t, client, "j")
	k := store.BucketKeys("b").As(2)
	flows := conn.HKeys(t.Context(), k.Flows()).Val()
	must.Be(t, len(flows), 1, "flows %q", flows)
	group, _, _ := codec.SplitPath(flows[0])
	more := map[string][]string{ // what stands behind the keys that end with a colon
		"q:": {"high:" + flows[0], "normal:" + flows[0], "low:" + flows[0]}, "later:": {flows[0]}, "departed:": {flows[0]}, "departed_group:": {group}, "due:": {"", group},
		"use:": {time.Now().UTC().Format("20060102")}, "purged:": {"high:", "normal:"}, "purged_later:": {""},
	}
	wants := 0
	for _, name := range ownedKeys(t) {
		if staysBehind[name] != "" {
			continue
		}
		ends := []string{""}
		if strings.HasSuffix(name, ":") {
			if ends = more[name]; ends == nil {
				t.Errorf("keys.go makes %q and more: this test does not know what", name)
			}
		}
		for _, end := range ends {
			wants++
			switch key := k.Prefix + name + end; {
			case conn.Exists(t.Context(), key).Val() > 0:
			case key == k.SeenWindow() || key == k.SeenMinute(): // those that the scripts of a change read have their types
				conn.RPush(t.Context(), key, "other")
			case key == k.Dead() || key == k.DueGroups() || key == k.ScheduleDue() || key == k.Leases():
				conn.ZAdd(t.Context(), key, redis.Z{Member: "made"})
			default:
				conn.HSet(t.Context(), key, "made", "by hand")
			}
		}
	}
	conn.Del(t.Context(), k.ParkedSettings())
	before := contents(t, conn, "b")
	must.Equal(t, len(before), wants-1, "keys")
	mustJoin(t, conn, rig.In(rig.PoolNamed("vendor"), b))
	if left := contents(t, conn, "b"); len(left) != 0 {
		t.Errorf("left are %q", slices.Sorted(maps.Keys(left)))
	}
	after := contents(t, conn, "vendor")
	for name, dump := range before {
		if after[name] != dump && !strings.HasPrefix(name, "schedule") { // those of the configuration are defined again
			t.Errorf("%s did not go with the bucket, or has changed", name)
		}
	}
}

// A dispatcher with the old configuration asks for flows while the bucket moves: that makes a pace at the old place. It does not replace
// the pace that has moved, with the last slot and the overrides of the bucket's downstream, when another process completes the move.
func TestRemnantReplacesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := server.Client()
	b := changeable()["groups"]
	old, now := store.BucketKeys("b").As(2), store.TaggedKeys("vendor", "b")
	died := errors.New("the process dies")
	for at, ended := 1, false; !ended; at++ {
		conn.FlushAll(t.Context())
		loaded(t, conn, b)
		late := rig.Connect(t, server.Addr())
		hook := &rig.TripHook{At: at, Do: func(func() error) error { return died }}
		late.AddHook(hook)
		_ = clientWith(t, late, rig.In(rig.PoolNamed("vendor"), b)).JoinPools(t.Context())
		_ = late.Close()
		ended = int(hook.Seen.Load()) < at
		if conn.Exists(t.Context(), now.Pace()).Val() == 0 {
			continue // nothing has moved
		}
		must.Get(lua.ReserveFlows.Run(t.Context(), conn, nil, []string{old.Pace(), old.DueOfGroup("g")}, 1, 0, 0, 0))(t)
		mustJoin(t, conn, rig.In(rig.PoolNamed("vendor"), b))
		must.Equal(t, conn.HGet(t.Context(), now.Pace(), "slot").Val(), loadedSlot, "trip %d: the last slot became", at)
	}
}

// A client that knows only the name of a bucket completes its move, and enqueues.
func TestClientThatKnowsTheNameCompletesAMove(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := server.Client()
	b := changeable()["plain"]
	died := errors.New("the process dies")
	for at, ended := 1, false; !ended; at++ {
		conn.FlushAll(t.Context())
		loaded(t, conn, b)
		late := rig.Connect(t, server.Addr())
		hook := &rig.TripHook{At: at, Do: func(func() error) error { return died }}
		late.AddHook(hook)
		_ = clientWith(t, late, rig.In(rig.PoolNamed("vendor"), b)).JoinPools(t.Context())
		_ = late.Close()
		ended = int(hook.Seen.Load()) < at
		named := clientWith(t, conn, shaper.Bucket{Name: "b"})
		if _, err := named.Enqueue(t.Context(), jobOf("named")); errors.Is(err, shaper.ErrUnknownBucket) {
			t.Errorf("trip %d: %v", at, err)
		}
		mustCancel(t, mustJoin(t, conn, b), "waits")
	}
}

// loadedSlot is the last slot of a loaded bucket, microseconds.
const loadedSlot = "1783228800123456"

// loaded gives a bucket jobs in each state, and remembered ids.
func loaded(t *testing.T, conn redis.UniversalClient, b shaper.Bucket) *rig.Actors {
	t.Helper()
	client := mustJoin(t, conn, b)
	for _, id := range []string{"waits", "over"} {
		mustEnqueue(t, client, id)
	}
	delayed := jobOf("later")
	delayed.Delay = time.Hour
	first := jobOf("first")
	first.Priority = shaper.PriorityHigh
	if receipts, err := client.Enqueue(t.Context(), delayed, first); err != nil || receipts[0].Refusal != nil || receipts[1].Refusal != nil {
		t.Fatal(receipts, err)
	}
	mustCancel(t, client, "over")
	k := store.TaggedKeys(store.TagOf(&b), "b")
	must.OK(t, conn.HSet(t.Context(), k.Pace(), "slot", loadedSlot).Err())
	return client
}

// wantLoaded fails unless the jobs of loaded are there once, and their ids are refused or known.
func wantLoaded(t *testing.T, what string, client *rig.Actors) {
	t.Helper()
	for id, want := range map[string]shaper.State{"waits": shaper.StateQueued, "later": shaper.StateScheduled, "first": shaper.StateQueued, "over": shaper.StateCancelled} {
		if info, err := client.Job(t.Context(), "b", id); err != nil || info.State != want {
			t.Errorf("%s: %s is %s, %v, want %s", what, id, info.State, err, want)
		}
		if receipts, err := client.Enqueue(t.Context(), jobOf(id)); err != nil || !receipts[0].Duplicate && receipts[0].Refusal == nil {
			t.Errorf("%s: %s is admitted again: %+v, %v", what, id, receipts, err)
		}
	}
	infos, err := client.Op.BucketInfos(t.Context())
	if err != nil || infos[0].Unfinished+infos[0].Scheduled != 3 || infos[0].Elsewhere {
		t.Errorf("%s: %+v, %v", what, infos, err)
	}
}

// A bucket with jobs and remembered ids joins a pool, goes to another one and leaves it. A process dies at any round trip of that, before Redis
// sees it or with its reply lost. The next one, whichever configuration it has, finds each job once and each id remembered.
func TestBucketWithJobsChangesItsPool(t *testing.T) {
	t.Parallel()
	for kind, b := range changeable() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b.DedupeWindow = time.Hour
			server := redistest.Start(t)
			conn := server.Client()
			is, other := rig.In(rig.PoolNamed("vendor"), b), rig.In(rig.PoolNamed("other"), b)
			loaded(t, conn, b)
			before := contents(t, conn, "b")
			for _, own := range []shaper.Bucket{is, other, b, is} {
				mustJoin(t, conn, own)
				if diff := cmp.Diff(before, contents(t, conn, store.TagOf(&own))); diff != "" {
					t.Errorf("in %s (-before +after):\n%s", store.TagOf(&own), diff)
				}
			}
			died := errors.New("the process dies")
			for at, ended := 1, false; !ended; at++ {
				for _, replied := range []bool{false, true} {
					for _, lives := range []shaper.Bucket{is, other, b} {
						what := fmt.Sprintf("trip %d, replied %t, then in %s", at, replied, store.TagOf(&lives))
						conn.FlushAll(t.Context())
						running := loaded(t, conn, b)
						late := rig.Connect(t, server.Addr())
						hook := &rig.TripHook{At: at, Do: func(trip func() error) error {
							if replied {
								_ = trip()
							}
							return died
						}}
						late.AddHook(hook)
						_ = clientWith(t, late, is).JoinPools(t.Context())
						_ = late.Close()
						ended = int(hook.Seen.Load()) < at
						mustEnqueue(t, running, "meanwhile") // a producer that knows the bucket where it was
						wantLives := mustJoin(t, conn, lives)
						mustCancel(t, wantLives, "meanwhile")
						wantLoaded(t, what, wantLives)
						must.Equal(t, conn.HGet(t.Context(), store.TagsKey, "b").Val(), store.TagOf(&lives), "%s: the bucket has the tag", what)
					}
				}
			}
		})
	}
}

// A delivery under way keeps a bucket, which sends nothing meanwhile. When it has ended, the bucket moves and goes on at once. A hold that
// answers asked for goes with it.
func TestDeliveryKeepsABucket(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		b := changeable()["plain"]
		b.DedupeWindow = time.Hour
		client := mustJoin(t, conn, b)
		k, is := store.BucketKeys("b"), rig.In(rig.PoolNamed("vendor"), b)
		mustEnqueue(t, client, "j")
		now := conn.Time(t.Context()).Val()
		conn.HSet(t.Context(), k.Pace(), "lease", (30 * time.Second).Microseconds())
		refuse := func(what string, left time.Duration) {
			t.Helper()
			conn.ZAdd(t.Context(), k.Leases(), redis.Z{Member: "j", Score: float64(now.Add(left).UnixMicro())})
			if err := clientWith(t, conn, is).JoinPools(t.Context()); !errors.Is(err, shaper.ErrMoves) || errors.Is(err, shaper.ErrTagChanged) ||
				!strings.Contains(err.Error(), "1 delivery under way keeps") {
				t.Errorf("%s: %v", what, err)
			}
			if till := conn.HGet(t.Context(), k.Pace(), "down").Val(); till == "" {
				t.Errorf("%s: nothing holds the bucket", what)
			}
		}
		refuse("a lease", time.Hour)
		refuse("one that a dispatcher may still extend", -5*time.Second)
		if infos, err := client.Op.BucketInfos(t.Context()); err != nil || infos[0].Downstream == nil || infos[0].Downstream.Reason != "moves" {
			t.Errorf("%+v, %v", infos[0].Downstream, err)
		}
		conn.ZAdd(t.Context(), k.Leases(), redis.Z{Member: "j", Score: float64(now.Add(-12 * time.Second).UnixMicro())})
		mustJoin(t, conn, is)
		to := store.TaggedKeys("vendor", "b")
		must.Equal(t, conn.HGet(t.Context(), to.Pace(), "down").Val(), "", "it is still held")
		must.Equal(t, conn.ZCard(t.Context(), to.Leases()).Val(), 1, "leases moved, want the one that ran out")
		conn.Del(t.Context(), to.Leases())
		asked := stored.Downstream{Till: now.Add(time.Hour).UnixMicro(), ChangedAt: now.UnixMicro(), Reason: "http_429"}.String()
		conn.HSet(t.Context(), to.Pace(), "down", asked)
		mustJoin(t, conn, b)
		must.Equal(t, conn.HGet(context.WithoutCancel(t.Context()), k.Pace(), "down").Val(), asked, "the hold that a 429 asked for became")
	})
}
