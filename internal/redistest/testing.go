package redistest

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Start is [Run] for tests: the server has a temporary directory and ends with the test. Without args, in a package whose TestMain uses [Main], it may
// be the server of a previous test, without keys, and ends with the last test. Without a redis-server the test fails if the environment has CI set, and
// is skipped otherwise.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartWith(t, nil, args...)
}

// StartWith is [Start] of a server that has env, such as "LD_PRELOAD=x.so", in
// its environment.
func StartWith(t testing.TB, env []string, args ...string) *Server {
	t.Helper()
	return started(t, &Server{env: env, args: args})
}

// startConfigured is [Start] of a server that reads and writes a configuration
// file.
func startConfigured(t testing.TB, file string, args ...string) *Server {
	t.Helper()
	return started(t, &Server{config: file, args: args})
}

func started(t testing.TB, s *Server) *Server {
	t.Helper()
	plain := len(s.args)+len(s.env) == 0 && s.config == ""
	if plain {
		if server := takeShared(); server != nil {
			t.Cleanup(func() { server.handOn(t) })
			return server
		}
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("redistest: %v", err)
		}
		t.Skip("redistest: this test needs redis-server, which `make test` installs (or: apt-get install redis-server)")
	}
	server, err := run(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if plain {
			server.handOn(t)
		} else if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// FreeAddr returns a loopback address for a program to listen on. No other test
// gets it until the test ends, however often that program restarts.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(reserveFor(t)))
}

func reserveFor(t testing.TB) int {
	t.Helper()
	port, held, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() })
	return port
}

// Miniredis starts a miniredis on a loopback port, with time that passes for
// keys that expire. It ends with the test.
func Miniredis(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	mini := miniredis.RunT(t)
	mini.ClockTTL(true)
	return mini
}

// ClientOf returns a client of a miniredis, with the patience of one of
// [Server.Client], that ends with the test.
func ClientOf(t testing.TB, mini *miniredis.Miniredis) *redis.Client {
	t.Helper()
	client := newClient("tcp", mini.Addr())
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Both runs test twice, each on a fresh server: as "redis" on a real one and
// as "miniredis" on the embedded one.
func Both(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		test(t, Start(t).Client())
	})
	t.Run("miniredis", func(t *testing.T) {
		test(t, ClientOf(t, Miniredis(t)))
	})
}
