package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// MasterName is the name of the master for the sentinels of a [Trio].
const MasterName = "mymaster"

// DownAfter is how long a master of a [Trio] or [Cluster] is silent until it counts as down: longer than a busy machine delays its replies.
const DownAfter = 2 * time.Second

// Trio is a master with two replicas and three sentinels.
type Trio struct {
	Servers   []*Server
	Sentinels []*Server
}

// StartSentinel starts a [Trio] and returns when both replicas have their
// master's data and the sentinels know of each other.
func StartSentinel(t testing.TB, args ...string) *Trio {
	t.Helper()
	trio := &Trio{}
	args = append([]string{"--repl-diskless-sync-delay", "0", "--repl-timeout", "5"}, args...)
	trio.Servers = append(trio.Servers, Start(t, args...))
	host, port := trio.Servers[0].hostPort()
	for range 2 {
		trio.Servers = append(trio.Servers, Start(t, append(args, "--replicaof", host+" "+port)...))
	}
	for range 3 {
		trio.Sentinels = append(trio.Sentinels, startSentinel(t, host, port))
	}
	trio.AwaitReady(t)
	return trio
}

// AwaitReady waits until one of the servers that run is the master, the others
// have its data, and all sentinels know that, so that the master may be killed.
func (trio *Trio) AwaitReady(t testing.TB) {
	t.Helper()
	awaitReady(t, "the replicas are linked and the sentinels know each other", func(ctx context.Context) error {
		master := ""
		for _, s := range trio.Servers {
			switch {
			case !s.running():
			case s.role(ctx) != roleMaster:
				if err := s.linked(ctx); err != nil {
					return err
				}
			case master != "":
				return fmt.Errorf("both %s and %s are masters", master, s.Addr())
			default:
				master = s.Addr()
			}
		}
		for _, s := range trio.Sentinels {
			known, err := s.ask(ctx, "SENTINEL", "MASTER", MasterName)
			if err != nil {
				return err
			}
			got := fmt.Sprint(pair(known, "ip"), ":", pair(known, "port"), " ", pair(known, "num-slaves"), " ", pair(known, "num-other-sentinels"), " ", pair(known, "flags"))
			if got != master+" 2 2 master" {
				return fmt.Errorf("master, replicas, other sentinels, flags: %s", got)
			}
		}
		return nil
	})
}

// startSentinel starts one; it keeps its state in its configuration file.
func startSentinel(t testing.TB, host, port string) *Server {
	t.Helper()
	dir, err := tempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 2\nsentinel down-after-milliseconds %[1]s %[4]d\n"+
		"sentinel failover-timeout %[1]s 5000\nsentinel parallel-syncs %[1]s 2\n", MasterName, host, port, DownAfter.Milliseconds())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return startConfigured(t, file, "--sentinel")
}

// URL returns the address of the trio as redis+sentinel://…
func (trio *Trio) URL() string {
	return "redis+sentinel://" + strings.Join(addrs(trio.Sentinels), ",") + "/" + MasterName
}

// Master returns the server that is the master by a majority of the sentinels.
func (trio *Trio) Master(t testing.TB) *Server {
	t.Helper()
	var found *Server
	awaitReady(t, "the sentinels agree on a master", func(ctx context.Context) error {
		votes := map[string]int{}
		for _, s := range trio.Sentinels {
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			if answer, err := s.ask(short, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName); err == nil && len(answer) == 2 {
				votes[answer[0]+":"+answer[1]]++
			}
			cancel()
		}
		for _, s := range trio.Servers {
			if votes[s.Addr()] >= 2 {
				found = s
				return nil
			}
		}
		return fmt.Errorf("they say %v", votes)
	})
	return found
}

// AwaitFailover waits until another server than old is the master and accepts writes, and returns it.
func (trio *Trio) AwaitFailover(t testing.TB, old *Server) *Server {
	t.Helper()
	var found *Server
	awaitReady(t, "there is a new master", func(ctx context.Context) error {
		for _, s := range trio.Servers {
			if s != old && s.role(ctx) == roleMaster {
				found = s
				return nil
			}
		}
		return fmt.Errorf("all but %s are replicas", old.Addr())
	})
	return found
}

const roleMaster = "master"

func (s *Server) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process != nil
}

// role returns the role of the server, "" if it does not respond.
func (s *Server) role(ctx context.Context) string {
	answer, err := s.ask(ctx, "ROLE")
	if err != nil || len(answer) == 0 {
		return ""
	}
	return answer[0]
}

// linked returns nil if the server is a replica that has its master's data.
func (s *Server) linked(ctx context.Context) error {
	info, err := s.admin().Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, "master_link_status:up") {
		return fmt.Errorf("replica %s: its link is not up", s.Addr())
	}
	return nil
}

// ask returns the reply to a command as texts; the texts of a nested array follow one after the other.
func (s *Server) ask(ctx context.Context, words ...any) ([]string, error) {
	answer, err := s.admin().Do(ctx, words...).Result()
	return texts(answer), err
}

func texts(answer any) []string {
	switch a := answer.(type) {
	case nil:
		return nil
	case []any:
		var all []string
		for _, item := range a {
			all = append(all, texts(item)...)
		}
		return all
	case map[any]any:
		var all []string
		for key, value := range a {
			all = append(all, fmt.Sprint(key), fmt.Sprint(value))
		}
		return all
	default:
		return []string{fmt.Sprint(a)}
	}
}

// pair is the value after a name.
func pair(list []string, name string) string {
	for i := 0; i+1 < len(list); i += 2 {
		if list[i] == name {
			return list[i+1]
		}
	}
	return ""
}

// admin is the harness's own client, which Close closes.
func (s *Server) admin() *redis.Client {
	s.mu.Lock()
	known := s.own
	s.mu.Unlock()
	if known != nil {
		return known
	}
	client := s.Client()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own = client
	return client
}

func (s *Server) hostPort() (host, port string) { return "127.0.0.1", strconv.Itoa(s.port) }

func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr()
	}
	return list
}

// awaitReady polls until try returns nil.
func awaitReady(t testing.TB, what string, try func(ctx context.Context) error) {
	t.Helper()
	const limit = time.Minute // machines are busy
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("redistest: not within %s: %s: %v", limit, what, err)
		}
	}
}
