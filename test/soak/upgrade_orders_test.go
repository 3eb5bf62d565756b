//go:build soak

package soak

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestEveryOrderOfAnUpgrade: a producer and two dispatchers go from another version to this one and back, in each order that there is, one at a time. At
// each step jobs of every kind come in and leave, operators look and act with the commands of both versions, and what one has set the other obeys.
// Forth a process is stopped, back it is killed.
func TestEveryOrderOfAnUpgrade(t *testing.T) {
	before := os.Getenv(programsBefore)
	if before == "" {
		t.Skip(programsBefore + " names no folder with the programs of another version")
	}
	now := harness.Programs
	t.Cleanup(func() { harness.Programs = now })
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			u := startVersions(t, before, now)
			for i, p := range order {
				u.replace(p, now, (*harness.Process).Stop)
				u.step(fmt.Sprint("forth", i))
			}
			for i, p := range order {
				u.replace(p, before, func(p *harness.Process, _ *testing.T) { p.Kill() })
				u.step(fmt.Sprint("back", i))
			}
			u.end()
		})
	}
}

// versions is a system whose processes have different versions.
type versions struct {
	*system
	t       *testing.T
	folders [2]string // of the programs: before, now
	which   [3]string // folder of the producer and of both dispatchers

	mu     sync.Mutex
	broken map[string]bool // jobs whose first attempts fail
	dying  string          // a prefix of jobs that are answered 400, "" for none
}

const ratesOfVersions = 400

func startVersions(t *testing.T, before, now string) *versions {
	t.Helper()
	u := &versions{t: t, folders: [2]string{before, now}, which: [3]string{before, before, before}, broken: map[string]bool{}}
	harness.Programs = before
	u.system = start(t, redistest.Start(t), harness.Plan{
		Rate: ratesOfVersions, Dispatchers: 2, Lease: 3 * time.Second,
		Bucket: `quotas = ["100000/d"]
budgets = ["1000000 units/m"]
budget_burst = "100%"
result_retention = "1h"
[buckets.flow]
key = "job"
max_in_flight = 50
[buckets.group]
key = "job"
rate = "390/s"`,
		More: `[[schedules]]
name = "early"
bucket = "webhooks"
flow = "plain"
group = "one"
cron = "0 5 29 2 *"
payload = '{"fired":true}'`,
		Respond: u.answer,
	})
	return u
}

// answer fails the first attempt of some jobs, and the jobs of one step for good until they are redriven.
func (u *versions) answer(w http.ResponseWriter, _ *http.Request, id string, attempt int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.dying != "" && strings.HasPrefix(id, u.dying):
		w.WriteHeader(http.StatusBadRequest)
	case strings.HasSuffix(id, "7") && attempt == 1 && !u.broken[id]:
		u.broken[id] = true
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// replace ends a process and starts it with the programs of a folder.
func (u *versions) replace(p int, folder string, end func(*harness.Process, *testing.T)) {
	u.t.Helper()
	harness.Programs, u.which[p] = folder, folder
	if p == 0 {
		end(u.Producer, u.t)
		u.Producer = harness.Run(u.t, u.API, "producer", "serve", "--config", u.Config)
		return
	}
	end(u.Dispatchers[p-1], u.t)
	u.Dispatchers[p-1] = u.Restart[p-1]()
}

// step has jobs of every kind come in, dead letters redriven, and operators of both versions at work.
func (u *versions) step(name string) {
	u.t.Helper()
	setDying := func(prefix string) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.dying = prefix
	}
	deadly := name + "-deadly"
	setDying(deadly)
	u.PostAs(name+"-plain", 60, `,"flow":"plain","group":"one"`)
	u.PostAs(name+"-high", 20, `,"flow":"other","group":"two","priority":"high"`)
	u.PostAs(name+"-later", 20, `,"flow":"later","group":"two","delay":"300ms","cost":{"units":3}`)
	u.PostAs(deadly, 5, `,"flow":"deadly","group":"two","max_attempts":1`)

	for i, folder := range u.folders {
		other := u.folders[1-i]
		for _, args := range [][]string{
			{"status"}, {"fleet", "--json"}, {"bucket", "list", "--json"}, {"bucket", "show", harness.BucketName}, {"bucket", "why", harness.BucketName}, {"flow", "list", harness.BucketName},
			{"group", "list", harness.BucketName, "--json"}, {"job", "list", harness.BucketName}, {"dead", "list", harness.BucketName, "--json"}, {"schedule", "list"}, {"audit"}, {"config", "check"},
		} {
			u.operate(folder, args...)
		}
		// What one version sets, the other one tells and takes back.
		u.operate(folder, "flow", "set", harness.BucketName, "plain", "--group", "one", "--max-in-flight", "40")
		if said := u.operate(other, "flow", "show", harness.BucketName, "plain", "--group", "one", "--json"); !strings.Contains(said, "40") {
			u.t.Errorf("%s: %s does not tell what %s has set: %s", name, other, folder, said)
		}
		u.operate(other, "flow", "reset", harness.BucketName, "plain", "max_in_flight", "--group", "one")
		u.operate(folder, "bucket", "pause", harness.BucketName, "--reason", name)
		if said := u.operate(other, "bucket", "show", harness.BucketName); !strings.Contains(said, "paused") {
			u.t.Errorf("%s: %s knows nothing of the pause: %s", name, other, said)
		}
		u.operate(other, "bucket", "resume", harness.BucketName)
	}
	harness.Await(u.t, 10*time.Second, "five dead letters of "+name, func() bool {
		var dead []json.RawMessage
		return json.Unmarshal([]byte(u.operate(u.which[1], "dead", "list", harness.BucketName, "--json")), &dead) == nil && len(dead) == 5
	})
	setDying("")
	u.operate(u.which[2], "dead", "redrive", harness.BucketName, "--all")
	u.AwaitDelivered(20 * time.Second)
}

// operate runs a command of dispatcher with the programs of a folder.
func (u *versions) operate(folder string, args ...string) string {
	u.t.Helper()
	out, err := exec.CommandContext(u.t.Context(), filepath.Join(folder, "dispatcher"), append(args, "--config", u.Config)...).CombinedOutput()
	if err != nil {
		u.t.Fatalf("%s: dispatcher %v: %v\n%s", folder, args, err, out)
	}
	return string(out)
}

func (u *versions) end() {
	u.t.Helper()
	harness.Await(u.t, 20*time.Second, "everything is settled", func() bool { return u.Unfinished() == 0 })
	u.awaitIdleFlows(10 * time.Second)
	if said := u.operate(u.folders[1], "dead", "list", harness.BucketName, "--json"); strings.Contains(said, `"id"`) {
		u.t.Errorf("dead letters were redriven, and are there: %s", said)
	}
	r := u.History.Check()
	harness.Report(u.t, ratesOfVersions, r)
	if len(r.Lost) > 0 || len(r.Unexpected) > 0 {
		u.t.Fatal(r.Err())
	}
	u.t.Logf("%d deliveries of %d jobs", r.Delivered, r.Admitted)
}
