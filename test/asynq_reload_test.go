package test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// TestAsynqReload gives a bucket another Redis of asynq while tasks wait in the one before. Their leases are kept, they are still
// looked after, and each job runs once.
func TestAsynqReload(t *testing.T) {
	t.Parallel()
	const lease, each = 2 * time.Second, 20
	before, after := redistest.Start(t), redistest.Start(t)
	s := start(t, redistest.Start(t), plan{rate: 200, dispatchers: 1, lease: lease, asynq: asynqKeys(before.URL())})
	pending := func(tasks *redistest.Server) int64 {
		return tasks.Client().LLen(t.Context(), "asynq:{"+asynqQueue+"}:pending").Val()
	}
	s.post("before", each)
	await(t, 20*time.Second, "tasks wait before the reload", func() bool { return pending(before) == each })

	path := filepath.Join(filepath.Dir(s.config), "dispatcher0.toml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), before.URL(), after.URL())), 0o600); err != nil {
		t.Fatal(err)
	}
	d := s.dispatchers[0]
	d.signal(t, syscall.SIGHUP)
	await(t, 20*time.Second, "the dispatcher reloads", func() bool { return strings.Contains(d.output.String(), "configuration reloaded") })
	s.post("after", each)
	await(t, 20*time.Second, "tasks wait in the other Redis", func() bool { return pending(after) == each })
	began := time.Now()
	await(t, time.Minute, "three leases have passed", func() bool { return time.Since(began) > 3*lease })
	if n := pending(before) + pending(after); n != 2*each {
		t.Errorf("%d tasks wait, want %d: a lease was lost", n, 2*each)
	}

	// A task of before the reload that somebody deletes is noticed.
	const deleted = "before-0"
	key := "asynq:{" + asynqQueue + "}:"
	ids := before.Client().LRange(t.Context(), key+"pending", 0, -1).Val()
	for _, id := range ids {
		if strings.HasPrefix(id, deleted+".") {
			before.Client().LRem(t.Context(), key+"pending", 1, id)
			before.Client().Del(t.Context(), key+"t:"+id)
		}
	}
	await(t, 20*time.Second, "the job without a task is dead", func() bool {
		return s.inspector.ZScore(t.Context(), s.key("dead"), deleted).Err() == nil
	})
	s.history.Dead(deleted)

	for _, tasks := range []*redistest.Server{before, after} {
		startAsynq(t, asynqPlan{Tasks: tasks.URL(), Tundish: s.redis.URL(), Receiver: s.receiver.URL, Workers: 20})
	}
	await(t, 20*time.Second, "all others have run", func() bool { return s.unfinished() == 1 })
	if r := s.history.Check(); r.Err() != nil || r.Extra > 0 || r.Delivered != 2*each-1 {
		t.Errorf("%s; %v", r, r.Err())
	}
	if out := d.output.String(); strings.Contains(out, "swept") {
		t.Errorf("leases were taken back:\n%s", out)
	}
}
