package test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestAsynqReload gives a bucket another Redis of asynq while tasks wait in the one before. Their leases are kept, they are still
// looked after, and each job runs once.
func TestAsynqReload(t *testing.T) {
	t.Parallel()
	const lease, each = 2 * time.Second, 20
	before, after := redistest.Start(t), redistest.Start(t)
	s := start(t, redistest.Start(t), harness.Plan{Rate: 200, Dispatchers: 1, Lease: lease, Asynq: harness.AsynqKeys(before.URL())})
	pending := func(tasks *redistest.Server) int64 {
		return tasks.Client().LLen(t.Context(), "asynq:{"+harness.AsynqQueue+"}:pending").Val()
	}
	s.Post("before", each)
	harness.Await(t, 20*time.Second, "tasks wait before the reload", func() bool { return pending(before) == each })

	path := filepath.Join(filepath.Dir(s.Config), "dispatcher0.toml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), before.URL(), after.URL())), 0o600); err != nil {
		t.Fatal(err)
	}
	d := s.Dispatchers[0]
	d.Signal(t, syscall.SIGHUP)
	harness.Await(t, 20*time.Second, "the dispatcher reloads", func() bool { return strings.Contains(d.Output.String(), "configuration reloaded") })
	s.Post("after", each)
	harness.Await(t, 20*time.Second, "tasks wait in the other Redis", func() bool { return pending(after) == each })
	began := time.Now()
	harness.Await(t, time.Minute, "three leases have passed", func() bool { return time.Since(began) > 3*lease })
	if n := pending(before) + pending(after); n != 2*each {
		t.Errorf("%d tasks wait, want %d: a lease was lost", n, 2*each)
	}

	// A task of before the reload that somebody deletes is noticed.
	const deleted = "before-0"
	key := "asynq:{" + harness.AsynqQueue + "}:"
	ids := before.Client().LRange(t.Context(), key+"pending", 0, -1).Val()
	for _, id := range ids {
		if strings.HasPrefix(id, deleted+".") {
			before.Client().LRem(t.Context(), key+"pending", 1, id)
			before.Client().Del(t.Context(), key+"t:"+id)
		}
	}
	harness.Await(t, 20*time.Second, "the job without a task is dead", func() bool {
		return s.Inspector.ZScore(t.Context(), s.Key("dead"), deleted).Err() == nil
	})
	s.History.Dead(deleted)

	for _, tasks := range []*redistest.Server{before, after} {
		harness.StartAsynq(t, harness.AsynqPlan{Tasks: tasks.URL(), Tundish: s.Redis.URL(), Receiver: s.Receiver.URL, Workers: 20})
	}
	harness.Await(t, 20*time.Second, "all others have run", func() bool { return s.Unfinished() == 1 })
	if r := s.History.Check(); r.Err() != nil || r.Extra > 0 || r.Delivered != 2*each-1 {
		t.Errorf("%s; %v", r, r.Err())
	}
	if out := d.Output.String(); strings.Contains(out, "swept") {
		t.Errorf("leases were taken back:\n%s", out)
	}
}
