package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// newName is what the bucket is called after its rename.
const newName = "deliveries"

// startRenaming starts the programs with a bucket that is renamed under traffic.
func startRenaming(t *testing.T, lease time.Duration) *joining {
	t.Helper()
	server := redistest.Start(t)
	j := &joining{posted: map[string]int{}}
	j.system = start(t, server, harness.Plan{Rate: aloneRate, Dispatchers: 2, Lease: lease, Patient: true, Hold: 20 * time.Millisecond})
	j.given = harness.Monitor(t, server)
	return j
}

// rename has the file of a process give the bucket its new name, or its first one again.
func (j *joining) rename(file string, forward bool) {
	j.T.Helper()
	before, after := fmt.Sprintf("name = %q\n", harness.BucketName), fmt.Sprintf("name = %q\nrenamed_from = %q\n", newName, harness.BucketName)
	if !forward {
		before, after = after, before
	}
	j.rewrite(file, func(text string) string { return strings.Replace(text, before, after, 1) })
}

// lines are jobs with the numbers from the first one on.
func (j *joining) lines(first, jobs int) (lines []string) {
	for i := range jobs {
		lines = append(lines, fmt.Sprintf(`{"id":"%s-%d","payload":{},"url":%q}`, harness.BucketName, first+i, j.Receiver.URL))
	}
	return lines
}

// feedAs keeps jobs waiting, which are enqueued by the names in turn, until something is true.
func (j *joining) feedAs(what string, names []string, ok func() bool) {
	j.T.Helper()
	const waiting = 40
	turn := 0
	harness.Await(j.T, 20*time.Second, what, func() bool {
		if lacks := waiting - (j.posted[harness.BucketName] - j.granted(harness.BucketName)); lacks > 0 {
			name, first := names[turn%len(names)], j.posted[harness.BucketName]
			turn++
			status, answer := j.PostBatch(name, j.lines(first, lacks))
			if status != http.StatusOK || !strings.Contains(string(answer), fmt.Sprintf(`"admitted":%d,`, lacks)) {
				j.T.Fatalf("a batch for %s is answered %d: %.300s", name, status, answer)
			}
			j.admitted(lacks)
		}
		return ok()
	})
}

// admitted notes that the next jobs were admitted.
func (j *joining) admitted(jobs int) {
	for range jobs {
		j.History.Admitted(fmt.Sprintf("%s-%d", harness.BucketName, j.posted[harness.BucketName]), time.Now())
		j.posted[harness.BucketName]++
	}
}

// flowingAs waits until the bucket has had more slots, with jobs by these names.
func (j *joining) flowingAs(names ...string) {
	j.T.Helper()
	first := len(j.slotsAt(harness.BucketName, harness.BucketName))
	j.feedAs(fmt.Sprintf("the bucket streams with jobs for %s", names), names, func() bool { return len(j.slotsAt(harness.BucketName, harness.BucketName)) >= first+40 })
}

// reloaded gives a process the other name, and waits until it has it.
func (j *joining) reloaded(p *harness.Process, file string, forward bool, names ...string) {
	j.T.Helper()
	before := strings.Count(p.Output.String(), "configuration reloaded")
	j.rename(file, forward)
	j.feedAs(file+" is applied", names, func() bool { return strings.Count(p.Output.String(), "configuration reloaded") > before })
}

// kill9 ends a dispatcher at a random moment and starts it again. It returns how many deliveries that may have cut.
func (j *joining) kill9(i int, names ...string) (cut int) {
	j.T.Helper()
	time.Sleep(rand.N(20 * time.Millisecond)) // another moment in each run
	_ = j.Dispatchers[i].Cmd.Process.Kill()
	<-j.Dispatchers[i].Done
	cut = j.leased(harness.BucketName)
	j.flowingAs(names...)
	j.Dispatchers[i] = j.Restart[i]()
	return cut
}

// shown is what a command shows of the bucket.
func (j *joining) shown(name string) string {
	return harness.Command(j.T, 0, "dispatcher", "bucket", "show", name, "--config", j.Config)
}

// A bucket is renamed under traffic: its programs get the new name one after the other, a dispatcher of each name and the producer are killed
// on the way, and clients use either name. No job is lost, no job comes twice but for the deliveries that a kill cut, an id of the first name is a
// duplicate under the new one, and no window has more slots than the rate allows.
func TestBucketWithTrafficIsRenamed(t *testing.T) {
	harness.BesideOthers(t)
	j := startRenaming(t, 2*time.Second)
	j.flowingAs(harness.BucketName)
	j.reloaded(j.Dispatchers[0], "dispatcher0.toml", true, harness.BucketName)
	j.flowingAs(harness.BucketName)
	cut := j.kill9(0, harness.BucketName) // the first one with the new name: the other one has the first name
	cut += j.kill9(1, harness.BucketName) // and the other way round

	j.reloaded(j.Producer, "producer.toml", true, harness.BucketName)
	j.flowingAs(harness.BucketName, newName)

	// The producer dies with a request under way, whose client sends it again by the new name.
	first, sent := j.posted[harness.BucketName], make(chan struct{})
	go func() {
		defer close(sent)
		response, err := http.Post(j.API+"/v1/buckets/"+harness.BucketName+"/jobs/batch", "application/x-ndjson", strings.NewReader(strings.Join(j.lines(first, 200), "\n")))
		if err == nil {
			response.Body.Close()
		}
	}()
	time.Sleep(rand.N(10 * time.Millisecond))
	_ = j.Producer.Cmd.Process.Kill()
	<-j.Producer.Done
	<-sent
	j.Producer = harness.Run(t, j.API, "producer", "serve", "--config", j.Config)
	if status, answer := j.PostBatch(newName, j.lines(first, 200)); status != http.StatusOK || strings.Contains(string(answer), `"status":4`) {
		t.Fatalf("sent again: %d %.300s", status, answer)
	}
	j.admitted(200)

	j.reloaded(j.Dispatchers[1], "dispatcher1.toml", true, newName)
	j.flowingAs(harness.BucketName, newName)
	status, answer := j.PostBatch(newName, j.lines(0, 1))
	if status != http.StatusOK || !strings.Contains(string(answer), `"duplicate":true`) {
		t.Errorf("an id of before is answered %d %s, want a duplicate", status, answer)
	}
	for _, name := range []string{harness.BucketName, newName} {
		if text := j.shown(name); !strings.Contains(text, newName) || !strings.Contains(text, "from "+harness.BucketName) {
			t.Errorf("bucket show %s:\n%s", name, text)
		}
	}
	r := j.AwaitDelivered(60 * time.Second)
	t.Log(r)
	if r.Err() != nil || r.Extra > cut {
		t.Errorf("%v, %d came twice, and the kills cut %d deliveries", r.Err(), r.Extra, cut)
	}
	all := j.slotsAt(harness.BucketName, harness.BucketName)
	if early := all.Early(aloneRate); early >= time.Microsecond {
		t.Errorf("the harness.Slots of both names are %s ahead of the rate", early)
	}
	if grants, _ := j.given.All(); len(grants) != len(all) {
		t.Errorf("%d harness.Slots, %d of them under the first name", len(grants), len(all))
	}
}

// What a new file does with a renamed bucket is said before it is used, and a file that lacks the first name is refused. A rename can be taken
// back.
func TestRenameIsToldAndTakenBack(t *testing.T) {
	harness.BesideOthers(t)
	j := startRenaming(t, 30*time.Second)
	j.flowingAs(harness.BucketName)
	check := func(file string, exit int) (moves string) {
		t.Helper()
		var view struct{ Moves []struct{ Text string } }
		if err := json.Unmarshal([]byte(harness.Command(t, exit, "dispatcher", "config", "check", "--redis", "--json", "--config", file)), &view); err != nil {
			t.Fatal(err)
		}
		for _, m := range view.Moves {
			moves += m.Text + "\n"
		}
		return moves
	}
	j.reloaded(j.Producer, "producer.toml", true, harness.BucketName) // the file that check reads
	if text := check(j.Config, 0); !strings.Contains(text, `it is "`+harness.BucketName+`" until a dispatcher with this configuration starts, or reloads it`) {
		t.Errorf("before the rename: %s", text)
	}
	for name, file := range map[string]string{newName: "producer.toml", harness.BucketName: "dispatcher0.toml"} {
		text := harness.Command(t, 0, "dispatcher", "bucket", "why", name, "--config", filepath.Join(filepath.Dir(j.Config), file))
		if strings.Contains(text, "no dispatcher") {
			t.Errorf("bucket why %s: %s", name, text)
		}
	}
	j.reloaded(j.Dispatchers[0], "dispatcher0.toml", true, newName)
	if text := check(j.Config, 0); text != "" {
		t.Errorf("after the rename: %s", text)
	}
	j.feedAs("the dispatcher with the first name says so", []string{newName}, func() bool {
		return strings.Contains(j.Dispatchers[1].Output.String(), "name "+harness.BucketName+" here, "+newName+" in force")
	})
	text, err := os.ReadFile(j.Config)
	if err != nil {
		t.Fatal(err)
	}
	lacking := filepath.Join(t.TempDir(), "lacking.toml")
	if err := os.WriteFile(lacking, bytes.Replace(text, fmt.Appendf(nil, "renamed_from = %q\n", harness.BucketName), nil, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if text := check(lacking, 2); !strings.Contains(text, `renamed_from = "`+harness.BucketName+`"`) {
		t.Errorf("without the first name: %s", text)
	}
	j.reloaded(j.Producer, "producer.toml", false, harness.BucketName)
	j.reloaded(j.Dispatchers[0], "dispatcher0.toml", false, harness.BucketName)
	j.flowingAs(harness.BucketName)
	if r := j.AwaitDelivered(60 * time.Second); r.Err() != nil || r.Extra > 0 {
		t.Errorf("%v, %d came twice", r.Err(), r.Extra)
	}
}
