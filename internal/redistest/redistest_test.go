package redistest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

// abandonIn tells the test binary to start a server in that directory and to
// end without closing it.
const abandonIn = "REDISTEST_ABANDON_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(abandonIn); dir != "" {
		server, err := redistest.Run(dir)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Print(server.Addr())
		os.Exit(0)
	}
	goleak.VerifyTestMain(redistest.Main(m))
}

func TestServerEndsWithItsParent(t *testing.T) {
	t.Parallel()
	redistest.Start(t) // skips when there is no redis-server
	dir := must.Get(os.MkdirTemp("", "abandoned-"))(t)
	defer os.RemoveAll(dir)
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), abandonIn+"="+dir)
	addr, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, addr)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		conn, err := net.Dial("tcp", string(addr))
		if err != nil {
			return
		}
		conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("the server lives on")
		}
	}
}

func TestServerListensOnBothAddresses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	must.OK(t, server.Client().Set(t.Context(), "key", "value", 0).Err())
	options := must.Get(redis.ParseURL(server.URL()))(t)
	overTCP := redis.NewClient(options)
	defer overTCP.Close()
	must.Equal(t, must.Get(overTCP.Get(t.Context(), "key").Result())(t), "value", "over TCP: Get")
}

func TestServersAreApart(t *testing.T) {
	t.Parallel()
	one, two := redistest.Start(t), redistest.Start(t)
	must.OK(t, one.Client().Set(t.Context(), "key", "value", 0).Err())
	if err := two.Client().Get(t.Context(), "key").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("second server: Get = %v, want redis.Nil", err)
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want int64
	}{
		"memory only": {nil, 0},
		"append only": {[]string{"--appendonly", "yes"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, test.args...)
			client, addr := server.Client(), server.Addr()
			must.OK(t, client.Set(t.Context(), "key", "value", 0).Err())
			server.Kill()
			server.Kill() // a second time is harmless
			if err := client.Ping(t.Context()).Err(); err == nil {
				t.Error("a killed server answers")
			}
			if conn, err := net.Dial("tcp", addr); err == nil {
				conn.Close()
				t.Error("a killed server listens")
			}
			for range 2 { // from dead, then from alive
				must.OK(t, server.Restart())
				if got, err := server.Client().Exists(t.Context(), "key").Result(); err != nil || got != test.want {
					t.Errorf("after restart: Exists = %d, %v; want %d", got, err, test.want)
				}
			}
			if server.Addr() != addr {
				t.Errorf("address changed from %s to %s", addr, server.Addr())
			}
		})
	}
}

// A server that is given no directory never waits for a disk, where there is memory
// for its files: nodes of a cluster stood still for up to 47 s.
func TestFilesAreInMemory(t *testing.T) {
	t.Parallel()
	const memory = "/dev/shm"
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < 2<<30 {
		t.Skipf("%s has no room: %v", memory, err)
	}
	if dir := redistest.Start(t).Dir(); !strings.HasPrefix(dir, memory) {
		t.Errorf("the files of a server are in %s", dir)
	}
}

// While a server is down nobody else gets its port.
func TestPortStaysReserved(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	held, err := net.ListenPacket("udp", server.Addr())
	if err == nil {
		held.Close()
		t.Error("the port of a server that is down can be reserved")
	}
	if one, two := redistest.FreeAddr(t), redistest.FreeAddr(t); one == two {
		t.Errorf("%s is given twice", one)
	}
}

func TestStopAndCont(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	must.OK(t, client.Ping(t.Context()).Err())
	server.Stop()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := client.Ping(short).Err(); !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stopped: Ping = %v, want a timeout", err)
	}
	server.Cont()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("continued: Ping = %v", err)
	}
	server.Stop() // Close must cope with a stopped server
}

func TestRunReportsTheLog(t *testing.T) {
	t.Parallel()
	redistest.Start(t) // skips when there is no redis-server
	server, err := redistest.Run("", "--no-such-option", "yes")
	if err == nil {
		server.Close()
		t.Fatal("no error for an unknown option")
	}
	if !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("error does not show the server's log: %v", err)
	}
}

func TestCloseRemovesOnlyItsOwnDirectory(t *testing.T) {
	t.Parallel()
	redistest.Start(t) // skips when there is no redis-server
	given := must.Get(os.MkdirTemp("", "given-"))(t)
	defer os.RemoveAll(given)
	for _, test := range []struct {
		dir  string
		kept bool
	}{{"", false}, {given, true}} {
		server := must.Get(redistest.Run(test.dir))(t)
		if err := errors.Join(server.Close(), server.Close()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(server.Dir()); (err == nil) != test.kept {
			t.Errorf("Run(%q): directory kept = %t, want %t", test.dir, err == nil, test.kept)
		}
		if err := server.Restart(); err == nil {
			t.Error("a closed server restarts")
		}
	}
}

func TestBoth(t *testing.T) {
	t.Parallel()
	redistest.Start(t) // skips when there is no redis-server
	var names []string
	t.Run("group", func(t *testing.T) {
		redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
			names = append(names, t.Name()[strings.LastIndex(t.Name(), "/")+1:])
			must.Equal(t, must.Get(client.DBSize(t.Context()).Result())(t), 0, "DBSize =; want a fresh server")
			must.OK(t, client.Set(t.Context(), "key", "value", time.Millisecond).Err())
			awaitExpiry(t, client)
		})
	})
	must.Equal(t, strings.Join(names, " "), "redis miniredis", "ran on")
}

func awaitExpiry(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		n, err := client.Exists(ctx, "key").Result()
		if err != nil {
			t.Fatalf("the key has not expired: %v", err)
		}
		if n == 0 {
			return
		}
	}
}

// A test gets the server of the one before, without what that left, unless that has
// changed the server. It is not parallel: no other test may come between.
func TestServersAreHandedOn(t *testing.T) {
	var first string
	var left *redis.Client
	t.Run("first", func(t *testing.T) {
		server := redistest.Start(t)
		options := must.Get(redis.ParseURL(server.URL()))(t)
		options.DB, options.MaxRetries = 3, -1
		first, left = server.Addr(), redis.NewClient(options)
		for i := range 2500 {
			must.OK(t, left.Set(t.Context(), fmt.Sprint("key", i), "value", 0).Err())
		}
		must.OK(t, server.Client().Set(t.Context(), "key", "value", 0).Err())
	})
	defer left.Close()
	t.Run("second", func(t *testing.T) {
		server := redistest.Start(t)
		client := server.Client()
		if server.Addr() != first {
			t.Errorf("the server is %s, not the one of before, %s", server.Addr(), first)
		}
		keyspace, err := client.Info(t.Context(), "keyspace").Result()
		if err != nil || strings.Contains(keyspace, "db") {
			t.Errorf("left are %q, %v", keyspace, err)
		}
		if stats, err := client.Info(t.Context(), "commandstats").Result(); err != nil || strings.Contains(stats, "cmdstat_set:") {
			t.Errorf("left are %q, %v", stats, err)
		}
		if others, err := client.ClientList(t.Context()).Result(); err != nil || strings.Contains(others, "db=3") {
			t.Errorf("connected are %q, %v", others, err)
		}
		must.OK(t, client.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	})
	for name, do := range map[string]func(*redistest.Server){
		"third":  func(s *redistest.Server) { s.Kill() },
		"fourth": func(s *redistest.Server) { s.Stop() },
		"fifth":  func(*redistest.Server) {},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			if server.Addr() == first {
				t.Error("a server that the test before had changed was handed on")
			}
			do(server)
			first = server.Addr()
			if name == "fifth" {
				first = ""
			}
		})
	}
}
