package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A server takes longer to start than most tests run. So in a package whose TestMain uses [Main], tests reuse servers: at any time a server belongs to
// one test, and the data of the previous test is removed. There are as many as tests run at the same time.
//
// Prefixes of keys would not keep tests apart: some names are the same for all programs of a server (tundish:buckets, the channel tundish:wake), and
// tests check all keys, at memory, and at what commands were called.
var shared struct {
	sync.Mutex
	on   bool
	idle []*Server
}

// Main is m, whose tests hand servers on, for goleak.VerifyTestMain. They end with
// the tests.
func Main(m *testing.M) interface{ Run() int } { return sharing{m} }

type sharing struct{ m *testing.M }

func (s sharing) Run() int {
	shared.Lock()
	shared.on = true
	shared.Unlock()
	code := s.m.Run()
	shared.Lock()
	defer shared.Unlock()
	for _, server := range shared.idle {
		if err := server.Close(); err != nil {
			fmt.Println(err)
			code = max(code, 1)
		}
	}
	shared.idle = nil
	return code
}

// takeShared is a server that is idle, the last that became so; nil for none.
func takeShared() *Server {
	shared.Lock()
	defer shared.Unlock()
	n := len(shared.idle)
	if n == 0 {
		return nil
	}
	server := shared.idle[n-1]
	shared.idle = shared.idle[:n-1]
	return server
}

// handOn keeps a server for the next test, if it is as good as new.
func (s *Server) handOn(t testing.TB) {
	shared.Lock()
	on := shared.on
	shared.Unlock()
	if !on || t.Failed() || s.handled() || s.clean() != nil {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	shared.Lock()
	defer shared.Unlock()
	shared.idle = append(shared.idle, s)
}

// handled reports whether the test has killed or stopped the process.
func (s *Server) handled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signalled || s.closed
}

// lasting are the commands whose effect [Server.clean] does not undo. A loaded library of functions stays: it has one name for each text, and the next
// test would load it again. A test of libraries removes the ones that it loaded.
var lasting = []string{
	"acl", "bgrewriteaof", "bgsave", "client|no-evict", "client|pause", "cluster", "config|rewrite", "config|set", "debug", "failover",
	"function|delete", "function|flush", "function|restore", "replicaof", "save", "shutdown", "slaveof", "swapdb",
}

var errLasting = errors.New("the test has changed the server")

// clean removes what a test left behind: connections, keys, scripts, statistics.
func (s *Server) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	s.mu.Lock()
	for _, client := range s.clients {
		_ = client.Close() // the only error is that the test closed it before
	}
	s.clients, s.own = nil, nil
	s.mu.Unlock()
	client := newClient("unix", s.Socket())
	defer client.Close()
	conn := client.Conn()
	defer conn.Close()
	stats, err := conn.Info(ctx, "commandstats").Result()
	if err != nil {
		return err
	}
	for _, line := range strings.Split(stats, "\n") {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		group, _, _ := strings.Cut(name, "|")
		if slices.Contains(lasting, name) || slices.Contains(lasting, group) {
			return errLasting
		}
	}
	for _, kind := range []string{"normal", "pubsub"} {
		if err := conn.ClientKillByFilter(ctx, "TYPE", kind).Err(); err != nil {
			return err
		}
	}
	if err := removeKeys(ctx, conn); err != nil {
		return err
	}
	return errors.Join(conn.ScriptFlush(ctx).Err(), conn.ConfigResetStat(ctx).Err(), conn.Do(ctx, "SLOWLOG", "RESET").Err())
}

// removeKeys removes the keys of all databases.
func removeKeys(ctx context.Context, conn *redis.Conn) error {
	keyspace, err := conn.Info(ctx, "keyspace").Result()
	if err != nil {
		return err
	}
	for _, line := range strings.Split(keyspace, "\n") {
		var db int
		if n, _ := fmt.Sscanf(line, "db%d:", &db); n == 0 {
			continue
		}
		if err := conn.Select(ctx, db).Err(); err != nil {
			return err
		}
		for names := conn.Scan(ctx, 0, "", 1000).Iterator(); ; {
			var some []string
			for len(some) < 1000 && names.Next(ctx) {
				some = append(some, names.Val())
			}
			if err := names.Err(); err != nil {
				return err
			}
			if len(some) == 0 {
				break
			}
			if err := conn.Unlink(ctx, some...).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}
