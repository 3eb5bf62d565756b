//go:build soak

package test

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
)

// TestEveryOrderOfAnUpgrade: a producer and two dispatchers go from another version to this one and back, in each order that there is, one at a time. At
// each step jobs of every kind come in and leave, operators look and act with the commands of both versions, and what one has set the other obeys.
// Forth a process is stopped, back it is killed.
func TestEveryOrderOfAnUpgrade(t *testing.T) {
	before := os.Getenv(programsBefore)
	if before == "" {
		t.Skip(programsBefore + " names no folder with the programs of another version")
	}
	now := programs
	t.Cleanup(func() { programs = now })
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			u := startVersions(t, before, now)
			for i, p := range order {
				u.replace(p, now, (*process).stop)
				u.step(fmt.Sprint("forth", i))
			}
			for i, p := range order {
				u.replace(p, before, func(p *process, _ *testing.T) { p.kill() })
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
	programs = before
	u.system = start(t, redistest.Start(t), plan{
		rate: ratesOfVersions, dispatchers: 2, lease: 3 * time.Second,
		bucket: `quotas = ["100000/d"]
budgets = ["1000000 units/m"]
budget_burst = "100%"
result_retention = "1h"
[buckets.flow]
key = "job"
max_in_flight = 50
[buckets.group]
key = "job"
rate = "390/s"`,
		more: `[[schedules]]
name = "early"
bucket = "webhooks"
flow = "plain"
group = "one"
cron = "0 5 29 2 *"
payload = '{"fired":true}'`,
		respond: u.answer,
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
func (u *versions) replace(p int, folder string, end func(*process, *testing.T)) {
	u.t.Helper()
	programs, u.which[p] = folder, folder
	if p == 0 {
		end(u.producer, u.t)
		u.producer = run(u.t, u.api, "producer", "serve", "--config", u.config)
		return
	}
	end(u.dispatchers[p-1], u.t)
	u.dispatchers[p-1] = u.restart[p-1]()
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
	u.postAs(name+"-plain", 60, `,"flow":"plain","group":"one"`)
	u.postAs(name+"-high", 20, `,"flow":"other","group":"two","priority":"high"`)
	u.postAs(name+"-later", 20, `,"flow":"later","group":"two","delay":"300ms","cost":{"units":3}`)
	u.postAs(deadly, 5, `,"flow":"deadly","group":"two","max_attempts":1`)

	for i, folder := range u.folders {
		other := u.folders[1-i]
		for _, args := range [][]string{
			{"status"}, {"fleet", "--json"}, {"bucket", "list", "--json"}, {"bucket", "show", bucketName}, {"bucket", "why", bucketName}, {"flow", "list", bucketName},
			{"group", "list", bucketName, "--json"}, {"job", "list", bucketName}, {"dead", "list", bucketName, "--json"}, {"schedule", "list"}, {"audit"}, {"config", "check"},
		} {
			u.operate(folder, args...)
		}
		// What one version sets, the other one tells and takes back.
		u.operate(folder, "flow", "set", bucketName, "plain", "--group", "one", "--max-in-flight", "40")
		if said := u.operate(other, "flow", "show", bucketName, "plain", "--group", "one", "--json"); !strings.Contains(said, "40") {
			u.t.Errorf("%s: %s does not tell what %s has set: %s", name, other, folder, said)
		}
		u.operate(other, "flow", "reset", bucketName, "plain", "max_in_flight", "--group", "one")
		u.operate(folder, "bucket", "pause", bucketName, "--reason", name)
		if said := u.operate(other, "bucket", "show", bucketName); !strings.Contains(said, "paused") {
			u.t.Errorf("%s: %s knows nothing of the pause: %s", name, other, said)
		}
		u.operate(other, "bucket", "resume", bucketName)
	}
	await(u.t, 10*time.Second, "five dead letters of "+name, func() bool {
		var dead []json.RawMessage
		return json.Unmarshal([]byte(u.operate(u.which[1], "dead", "list", bucketName, "--json")), &dead) == nil && len(dead) == 5
	})
	setDying("")
	u.operate(u.which[2], "dead", "redrive", bucketName, "--all")
	u.awaitDelivered(20 * time.Second)
}

// operate runs a command of dispatcher with the programs of a folder.
func (u *versions) operate(folder string, args ...string) string {
	u.t.Helper()
	out, err := exec.CommandContext(u.t.Context(), filepath.Join(folder, "dispatcher"), append(args, "--config", u.config)...).CombinedOutput()
	if err != nil {
		u.t.Fatalf("%s: dispatcher %v: %v\n%s", folder, args, err, out)
	}
	return string(out)
}

func (u *versions) end() {
	u.t.Helper()
	await(u.t, 20*time.Second, "everything is settled", func() bool { return u.unfinished() == 0 })
	u.awaitIdleFlows(10 * time.Second)
	if said := u.operate(u.folders[1], "dead", "list", bucketName, "--json"); strings.Contains(said, `"id"`) {
		u.t.Errorf("dead letters were redriven, and are there: %s", said)
	}
	r := u.history.Check()
	report(u.t, ratesOfVersions, r)
	if len(r.Lost) > 0 || len(r.Unexpected) > 0 {
		u.t.Fatal(r.Err())
	}
	u.t.Logf("%d deliveries of %d jobs", r.Delivered, r.Admitted)
}
