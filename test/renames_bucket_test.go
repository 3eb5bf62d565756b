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
)

// newName is what the bucket is called after its rename.
const newName = "deliveries"

// startRenaming starts the programs with a bucket that is renamed under traffic.
func startRenaming(t *testing.T, lease time.Duration) *joining {
	t.Helper()
	server := redistest.Start(t)
	j := &joining{posted: map[string]int{}}
	j.system = start(t, server, plan{rate: aloneRate, dispatchers: 2, lease: lease, patient: true, hold: 20 * time.Millisecond})
	j.given = monitor(t, server)
	return j
}

// rename has the file of a process give the bucket its new name, or its first one again.
func (j *joining) rename(file string, forward bool) {
	j.t.Helper()
	before, after := fmt.Sprintf("name = %q\n", bucketName), fmt.Sprintf("name = %q\nrenamed_from = %q\n", newName, bucketName)
	if !forward {
		before, after = after, before
	}
	j.rewrite(file, func(text string) string { return strings.Replace(text, before, after, 1) })
}

// lines are jobs with the numbers from the first one on.
func (j *joining) lines(first, jobs int) (lines []string) {
	for i := range jobs {
		lines = append(lines, fmt.Sprintf(`{"id":"%s-%d","payload":{},"url":%q}`, bucketName, first+i, j.receiver.URL))
	}
	return lines
}

// feedAs keeps jobs waiting, which are enqueued by the names in turn, until something is true.
func (j *joining) feedAs(what string, names []string, ok func() bool) {
	j.t.Helper()
	const waiting = 40
	turn := 0
	await(j.t, 20*time.Second, what, func() bool {
		if lacks := waiting - (j.posted[bucketName] - j.granted(bucketName)); lacks > 0 {
			name, first := names[turn%len(names)], j.posted[bucketName]
			turn++
			status, answer := j.postBatch(name, j.lines(first, lacks))
			if status != http.StatusOK || !strings.Contains(string(answer), fmt.Sprintf(`"admitted":%d,`, lacks)) {
				j.t.Fatalf("a batch for %s is answered %d: %.300s", name, status, answer)
			}
			j.admitted(lacks)
		}
		return ok()
	})
}

// admitted notes that the next jobs were admitted.
func (j *joining) admitted(jobs int) {
	for range jobs {
		j.history.Admitted(fmt.Sprintf("%s-%d", bucketName, j.posted[bucketName]), time.Now())
		j.posted[bucketName]++
	}
}

// flowingAs waits until the bucket has had more slots, with jobs by these names.
func (j *joining) flowingAs(names ...string) {
	j.t.Helper()
	first := len(j.slotsAt(bucketName, bucketName))
	j.feedAs(fmt.Sprintf("the bucket streams with jobs for %s", names), names, func() bool { return len(j.slotsAt(bucketName, bucketName)) >= first+40 })
}

// reloaded gives a process the other name, and waits until it has it.
func (j *joining) reloaded(p *process, file string, forward bool, names ...string) {
	j.t.Helper()
	before := strings.Count(p.output.String(), "configuration reloaded")
	j.rename(file, forward)
	j.feedAs(file+" is applied", names, func() bool { return strings.Count(p.output.String(), "configuration reloaded") > before })
}

// kill9 ends a dispatcher at a random moment and starts it again. It returns how many deliveries that may have cut.
func (j *joining) kill9(i int, names ...string) (cut int) {
	j.t.Helper()
	time.Sleep(rand.N(20 * time.Millisecond)) // another moment in each run
	_ = j.dispatchers[i].cmd.Process.Kill()
	<-j.dispatchers[i].done
	cut = j.leased(bucketName)
	j.flowingAs(names...)
	j.dispatchers[i] = j.restart[i]()
	return cut
}

// shown is what a command shows of the bucket.
func (j *joining) shown(name string) string {
	return command(j.t, 0, "dispatcher", "bucket", "show", name, "--config", j.config)
}

// A bucket is renamed under traffic: its programs get the new name one after the other, a dispatcher of each name and the producer are killed
// on the way, and clients use either name. No job is lost, no job comes twice but for the deliveries that a kill cut, an id of the first name is a
// duplicate under the new one, and no window has more slots than the rate allows.
func TestBucketWithTrafficIsRenamed(t *testing.T) {
	besideOthers(t)
	j := startRenaming(t, 2*time.Second)
	j.flowingAs(bucketName)
	j.reloaded(j.dispatchers[0], "dispatcher0.toml", true, bucketName)
	j.flowingAs(bucketName)
	cut := j.kill9(0, bucketName) // the first one with the new name: the other one has the first name
	cut += j.kill9(1, bucketName) // and the other way round

	j.reloaded(j.producer, "producer.toml", true, bucketName)
	j.flowingAs(bucketName, newName)

	// The producer dies with a request under way, whose client sends it again by the new name.
	first, sent := j.posted[bucketName], make(chan struct{})
	go func() {
		defer close(sent)
		response, err := http.Post(j.api+"/v1/buckets/"+bucketName+"/jobs/batch", "application/x-ndjson", strings.NewReader(strings.Join(j.lines(first, 200), "\n")))
		if err == nil {
			response.Body.Close()
		}
	}()
	time.Sleep(rand.N(10 * time.Millisecond))
	_ = j.producer.cmd.Process.Kill()
	<-j.producer.done
	<-sent
	j.producer = run(t, j.api, "producer", "serve", "--config", j.config)
	if status, answer := j.postBatch(newName, j.lines(first, 200)); status != http.StatusOK || strings.Contains(string(answer), `"status":4`) {
		t.Fatalf("sent again: %d %.300s", status, answer)
	}
	j.admitted(200)

	j.reloaded(j.dispatchers[1], "dispatcher1.toml", true, newName)
	j.flowingAs(bucketName, newName)
	status, answer := j.postBatch(newName, j.lines(0, 1))
	if status != http.StatusOK || !strings.Contains(string(answer), `"duplicate":true`) {
		t.Errorf("an id of before is answered %d %s, want a duplicate", status, answer)
	}
	for _, name := range []string{bucketName, newName} {
		if text := j.shown(name); !strings.Contains(text, newName) || !strings.Contains(text, "from "+bucketName) {
			t.Errorf("bucket show %s:\n%s", name, text)
		}
	}
	r := j.awaitDelivered(60 * time.Second)
	t.Log(r)
	if r.Err() != nil || r.Extra > cut {
		t.Errorf("%v, %d came twice, and the kills cut %d deliveries", r.Err(), r.Extra, cut)
	}
	all := j.slotsAt(bucketName, bucketName)
	if early := all.early(aloneRate); early >= time.Microsecond {
		t.Errorf("the slots of both names are %s ahead of the rate", early)
	}
	if grants, _ := j.given.all(); len(grants) != len(all) {
		t.Errorf("%d slots, %d of them under the first name", len(grants), len(all))
	}
}

// What a new file does with a renamed bucket is said before it is used, and a file that lacks the first name is refused. A rename can be taken
// back.
func TestRenameIsToldAndTakenBack(t *testing.T) {
	besideOthers(t)
	j := startRenaming(t, 30*time.Second)
	j.flowingAs(bucketName)
	check := func(file string, exit int) (moves string) {
		t.Helper()
		var view struct{ Moves []struct{ Text string } }
		if err := json.Unmarshal([]byte(command(t, exit, "dispatcher", "config", "check", "--redis", "--json", "--config", file)), &view); err != nil {
			t.Fatal(err)
		}
		for _, m := range view.Moves {
			moves += m.Text + "\n"
		}
		return moves
	}
	j.reloaded(j.producer, "producer.toml", true, bucketName) // the file that check reads
	if text := check(j.config, 0); !strings.Contains(text, `it is "`+bucketName+`" until a dispatcher with this configuration starts, or reloads it`) {
		t.Errorf("before the rename: %s", text)
	}
	for name, file := range map[string]string{newName: "producer.toml", bucketName: "dispatcher0.toml"} {
		text := command(t, 0, "dispatcher", "bucket", "why", name, "--config", filepath.Join(filepath.Dir(j.config), file))
		if strings.Contains(text, "no dispatcher") {
			t.Errorf("bucket why %s: %s", name, text)
		}
	}
	j.reloaded(j.dispatchers[0], "dispatcher0.toml", true, newName)
	if text := check(j.config, 0); text != "" {
		t.Errorf("after the rename: %s", text)
	}
	j.feedAs("the dispatcher with the first name says so", []string{newName}, func() bool {
		return strings.Contains(j.dispatchers[1].output.String(), "name "+bucketName+" here, "+newName+" in force")
	})
	text, err := os.ReadFile(j.config)
	if err != nil {
		t.Fatal(err)
	}
	lacking := filepath.Join(t.TempDir(), "lacking.toml")
	if err := os.WriteFile(lacking, bytes.Replace(text, fmt.Appendf(nil, "renamed_from = %q\n", bucketName), nil, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if text := check(lacking, 2); !strings.Contains(text, `renamed_from = "`+bucketName+`"`) {
		t.Errorf("without the first name: %s", text)
	}
	j.reloaded(j.producer, "producer.toml", false, bucketName)
	j.reloaded(j.dispatchers[0], "dispatcher0.toml", false, bucketName)
	j.flowingAs(bucketName)
	if r := j.awaitDelivered(60 * time.Second); r.Err() != nil || r.Extra > 0 {
		t.Errorf("%v, %d came twice", r.Err(), r.Extra)
	}
}
