package test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// mountedSecret is a file in a volume of Kubernetes: a link through ..data to a folder, which another one replaces at once.
type mountedSecret struct {
	t    *testing.T
	dir  string
	made int
}

func mountSecret(t *testing.T, text string) *mountedSecret {
	t.Helper()
	m := &mountedSecret{t: t, dir: t.TempDir()}
	m.swap(text)
	if err := os.Symlink(filepath.Join("..data", "secret"), m.path()); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *mountedSecret) path() string { return filepath.Join(m.dir, "secret") }

func (m *mountedSecret) swap(text string) {
	m.made++
	folder, link, data := fmt.Sprintf("..%d", m.made), filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")
	before, _ := os.Readlink(data)
	for _, err := range []error{
		os.Mkdir(filepath.Join(m.dir, folder), 0o700),
		os.WriteFile(filepath.Join(m.dir, folder, "secret"), []byte(text), 0o600),
		os.Symlink(folder, link),
		os.Rename(link, data),
	} {
		if err != nil {
			m.t.Error(err)
		}
	}
	if before != "" {
		os.RemoveAll(filepath.Join(m.dir, before))
	}
}

// TestBearerFileSwapped: a file with a token is replaced as Kubernetes does it, and the API refuses the old token from then on. Nobody sends a signal. No
// job spends its only attempt.
func TestBearerFileSwapped(t *testing.T) {
	harness.BesideOthers(t)
	const rate, jobs, before = 100, 400, 150
	secret := mountSecret(t, "token-1")
	var mu sync.Mutex
	valid, old := "token-1", 0
	accepted := map[string]int{}
	s := start(t, redistest.Start(t), harness.Plan{
		Rate: rate, Dispatchers: 1, Retry: "max_attempts = 1", API: fmt.Sprintf("auth.bearer = %q", "file:"+secret.path()),
		Respond: func(w http.ResponseWriter, r *http.Request, id string, _ int) {
			mu.Lock()
			defer mu.Unlock()
			if r.Header.Get("Authorization") != "Bearer "+valid {
				old++
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			if accepted[id]++; len(accepted) == before {
				secret.swap("token-2")
				valid = "token-2"
			}
		},
	})
	s.PostAs("bearer", jobs, `,"path":"x"`)
	s.awaitDone(2 * jobs / rate * time.Second)
	harness.Report(t, rate, s.History.Check())
	mu.Lock()
	defer mu.Unlock()
	dead := s.Inspector.ZCard(t.Context(), s.Key("dead")).Val()
	t.Logf("%d requests had the old token after the swap; %d dead letters", old, dead)
	if dead > 0 || len(accepted) != jobs {
		t.Errorf("%d of %d jobs accepted, %d dead letters; want all, and none", len(accepted), jobs, dead)
	}
	if old > rate/5 { //nolint:mnd // what is claimed ahead
		t.Errorf("%d requests had the old token", old)
	}
}

// TestRedisPasswordChanges: the password of Redis changes under load, and all connections are cut. Producer and dispatcher read the new one from
// its file, without a signal. No admitted job is lost, and a client that tries again after 503 gets all its jobs in.
func TestRedisPasswordChanges(t *testing.T) {
	for name, c := range map[string]struct {
		user    string  // of the URL
		begin   []any   // the command that sets the old password
		changes [][]any // that make the new one valid, the old one not, and cut all connections
	}{
		"requirepass": {
			begin:   []any{"CONFIG", "SET", "requirepass", "old"},
			changes: [][]any{{"CONFIG", "SET", "requirepass", "new"}, {"CLIENT", "KILL", "TYPE", "pubsub"}, {"CLIENT", "KILL", "TYPE", "normal"}},
		},
		"user": {
			user:    "tundish@",
			begin:   []any{"ACL", "SETUSER", "tundish", "on", ">old", "~*", "&*", "+@all"},
			changes: [][]any{{"ACL", "SETUSER", "tundish", ">new", "<old"}, {"CLIENT", "KILL", "USER", "tundish"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			harness.BesideOthers(t)
			server := redistest.Start(t, "--maxclients", "1000") // a server of its own
			inspect := func(password string) *redis.Client {
				client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket(), Password: password, DisableIdentity: true})
				t.Cleanup(func() { _ = client.Close() })
				return client
			}
			if err := inspect("").Do(t.Context(), c.begin...).Err(); err != nil {
				t.Fatal(err)
			}
			old, now := "", ""
			if c.user == "" {
				old, now = "old", "new"
			}
			secret := mountSecret(t, "old")
			s := start(t, server, harness.Plan{
				Rate: 100, Dispatchers: 1, Lease: 5 * time.Second,
				RedisURL: "redis://" + c.user + server.Addr(), Redis: fmt.Sprintf("password = %q", "file:"+secret.path()),
			})
			s.Inspector = inspect(old)
			s.Post("before", 300)
			harness.Await(t, 10*time.Second, "jobs arrive", func() bool { return s.History.Check().Delivered > 50 })

			operator := s.Inspector.Conn()
			defer operator.Close()
			for _, command := range c.changes {
				if err := operator.Do(t.Context(), command...).Err(); err != nil {
					t.Fatalf("%v: %v", command, err)
				}
			}
			s.Inspector = inspect(now)
			statuses := map[int]int{}
			harness.Await(t, 10*time.Second, "the producer notices", func() bool {
				status := s.Send("during")
				statuses[status]++
				return status == http.StatusServiceUnavailable
			})
			secret.swap("new")
			for i := range 100 {
				harness.Await(t, 20*time.Second, "a job is admitted", func() bool {
					status := s.Send(fmt.Sprintf("after-%d", i))
					statuses[status]++
					return status == http.StatusAccepted
				})
			}
			r := s.AwaitDelivered(20 * time.Second)
			harness.Await(t, 20*time.Second, "all jobs are done", func() bool { return s.Unfinished() == 0 })
			t.Logf("%s; answers after the change: %v", r, statuses)
			if dead := s.Inspector.ZCard(t.Context(), s.Key("dead")).Val(); dead > 0 || r.Repeated > 0 {
				t.Errorf("%d dead letters, %d attempts sent twice", dead, r.Repeated)
			}
			for status := range statuses {
				if status != http.StatusAccepted && status != http.StatusServiceUnavailable && status != http.StatusOK {
					t.Errorf("the producer answered %d: %v", status, statuses)
				}
			}
		})
	}
}
