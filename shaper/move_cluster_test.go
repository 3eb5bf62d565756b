//go:build soak

package shaper

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/redisconn"
)

// In a cluster, a bucket goes to the node of its pool, and back; also when whoever moves it dies.
func TestMoveInACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	conn, err := redisconn.Connect(c.URL(), redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	home := c.MasterOf(t, bucketKeys("b").body())
	pool := vendor()
	for i := 0; c.MasterOf(t, taggedKeys(pool.Name, "b").body()) == home; i++ {
		pool.Name = fmt.Sprint("vendor", i)
	}
	for kind, b := range movable() {
		t.Run(kind, func(t *testing.T) { // one after the other: they have the same names
			sent := fillAll(t, conn, b)
			was, is := in(nil, b), in(pool, b)
			before := contents(t, conn, bucketKeys("b"))
			for _, at := range []int{3, 7, 11, 1000} {
				own, err := redisconn.Connect(c.URL(), redisconn.Options{})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cut := context.WithCancel(t.Context())
				own.AddHook(&cutter{at: at, cut: cut})
				_, err = clientWith(t, own, is).Control("bert").Move(ctx, "b", MoveOptions{})
				cut()
				_ = own.Close()
				if (err == nil) != (at == 1000) {
					t.Fatalf("cut at %d: %v", at, err)
				}
			}
			wantMoved(t, conn, is, bucketKeys("b"), before, sent)
			if err := clientWith(t, conn, is).Control("anna").Pause(t.Context(), "b", "back"); err != nil {
				t.Fatal(err)
			}
			before = contents(t, conn, taggedKeys(pool.Name, "b"))
			if _, err := clientWith(t, conn, was).Control("bert").Move(t.Context(), "b", MoveOptions{}); err != nil {
				t.Fatal(err)
			}
			wantSame(t, "back again", contents(t, conn, bucketKeys("b")), before)
			wantLeft(t, conn, taggedKeys(pool.Name, "b"))
			for _, node := range c.Nodes {
				_ = node.Client().FlushAll(t.Context()) // replicas refuse it
			}
		})
	}
}

// A large bucket: no script takes more of Redis than it may, but for stalls, and progress is told. The many small
// lists of flows are copied as well.
func TestMoveOfALargeBucket(t *testing.T) {
	t.Parallel()
	const jobs, flows, atMost = 100_000, 2_000, 5 * time.Millisecond // of a script
	for kind, b := range map[string]Bucket{"plain": testBucket("b", 1), "flows": flowing("b", FlowKeyJob)} {
		t.Run(kind, func(t *testing.T) { // one after the other: they are measured
			server := redistest.Start(t)
			conn := server.Client()
			b.Capacity = 2 * jobs
			client := clientWith(t, conn, b)
			for from := 0; from < jobs; from += 2000 {
				batch := make([]Job, 2000)
				for i := range batch {
					batch[i] = Job{Bucket: "b", ID: fmt.Sprint("j", from+i), Payload: []byte(strings.Repeat("x", 200)), Flow: fmt.Sprint("f", (from+i)%flows)}
				}
				if _, err := client.Enqueue(t.Context(), batch...); err != nil {
					t.Fatal(err)
				}
			}
			if err := client.Control("anna").Pause(t.Context(), "b", ""); err != nil {
				t.Fatal(err)
			}
			for name, value := range map[string]string{"slowlog-log-slower-than": "1000", "slowlog-max-len": "10000"} {
				if err := conn.ConfigSet(t.Context(), name, value).Err(); err != nil {
					t.Fatal(err)
				}
			}
			began, told, last := time.Now(), 0, MoveProgress{}
			moved, err := clientWith(t, conn, in(vendor(), b)).Control("anna").Move(t.Context(), "b", MoveOptions{Progress: func(p MoveProgress) {
				if p.Entries < last.Entries {
					t.Errorf("after %+v came %+v", last, p)
				}
				told, last = told+1, p
			}})
			if err != nil || moved.Jobs != jobs {
				t.Fatalf("%+v, %v", moved, err)
			}
			if told < 100 || last.Entries < 2*jobs || last.Total < last.Entries*9/10 || last.Total > last.Entries*11/10 {
				t.Errorf("told %d times, last %+v", told, last)
			}
			t.Logf("%d entries in %s", moved.Entries, time.Since(began).Round(time.Millisecond))
			wantLeft(t, conn, bucketKeys("b"))
			k := taggedKeys("vendor", "b")
			if n := conn.HLen(t.Context(), k.body()).Val(); n != jobs {
				t.Errorf("%d jobs", n)
			}
			places := conn.LLen(t.Context(), k.queue("")).Val()
			for i := range flows {
				places += conn.LLen(t.Context(), k.queue(fmt.Sprint("f", i))).Val()
			}
			if places != jobs {
				t.Errorf("%d in lists", places)
			}
			slow := map[string][]time.Duration{}
			for _, entry := range slowLog(t, conn) {
				slow[entry.name] = append(slow[entry.name], entry.took)
			}
			for _, name := range slices.Sorted(maps.Keys(slow)) {
				slices.Sort(slow[name])
				t.Logf("%-12s %d runs took a millisecond or more, the longest %v", name, len(slow[name]), slow[name][len(slow[name])-1])
				// The log cannot tell a stall of the machine from work: but those are few.
				over, _ := slices.BinarySearch(slow[name], atMost)
				if long := slow[name][over:]; strings.HasPrefix(name, "move") && len(long) > told/20 {
					t.Errorf("%s took too long: %v", name, long)
				}
			}
		})
	}
}

type slowEntry struct {
	name string
	took time.Duration
}

func slowLog(t *testing.T, conn *redis.Client) (entries []slowEntry) {
	t.Helper()
	names := map[string]string{}
	for _, script := range lua.All() {
		names[script.SHA()] = script.Name()
	}
	log, err := conn.SlowLogGet(t.Context(), 10_000).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range log {
		name := entry.Args[0]
		if len(entry.Args) > 1 && names[entry.Args[1]] != "" {
			name = names[entry.Args[1]]
		}
		entries = append(entries, slowEntry{name, entry.Duration})
	}
	return entries
}
