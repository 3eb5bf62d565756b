package test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// Rates of a bucket and of the pool that it joins, in which another bucket streams.
const (
	aloneRate, poolRate = 100, 50

	poolMail = "mails"
	poolName = "vendor"
)

// joining is a bucket under traffic that joins a pool while its programs run.
type joining struct {
	*system
	given  *harness.SlotMonitor
	posted map[string]int

	hasFlows bool // the bucket
}

// startJoining starts the programs; bucket are more keys and tables of the bucket.
func startJoining(t *testing.T, server *redistest.Server, lease time.Duration, bucket string) *joining {
	t.Helper()
	j := &joining{posted: map[string]int{}}
	j.system = start(t, server, harness.Plan{Rate: aloneRate, Dispatchers: 2, Lease: lease, Patient: true, Hold: 20 * time.Millisecond, Bucket: bucket, More: `
[[pools]]
name = "` + poolName + `"
rate = "` + fmt.Sprint(poolRate) + `/s"
` + strings.Replace(bucketTable(poolMail, poolRate, "http://127.0.0.1:1"), "max_in_flight", "pool = \""+poolName+"\"\nmax_in_flight", 1) + "timeout = \"1s\"\n"})
	j.given = harness.Monitor(t, server)
	return j
}

// feed enqueues new jobs until so many wait.
func (j *joining) feed(bucket, url string) {
	j.T.Helper()
	const waiting = 40
	lacks := waiting - (j.posted[bucket] - j.granted(bucket))
	if lacks <= 0 {
		return
	}
	j.enqueue(bucket, url, lacks)
}

// enqueue enqueues that many new jobs.
func (j *joining) enqueue(bucket, url string, jobs int) {
	j.T.Helper()
	lines := make([]string, jobs)
	for i := range lines {
		n := j.posted[bucket] + i
		lines[i] = fmt.Sprintf(`{"id":"%s-%d","payload":{},"url":%q%s}`, bucket, n, url, j.flow(bucket, n))
	}
	status, answer := j.PostBatch(bucket, lines)
	if want := fmt.Sprintf(`"admitted":%d,`, jobs); status != http.StatusOK || !bytes.Contains(answer, []byte(want)) {
		j.T.Fatalf("a batch for %s is answered %d: %.300s", bucket, status, answer)
	}
	for i := range jobs {
		j.History.Admitted(fmt.Sprintf("%s-%d", bucket, j.posted[bucket]+i), time.Now())
	}
	j.posted[bucket] += jobs
}

// flow is the field of a job that names its flow: of a bucket that has flows, seven in turn.
func (j *joining) flow(bucket string, n int) string {
	const flows = 7
	if bucket != harness.BucketName || !j.hasFlows {
		return ""
	}
	return fmt.Sprintf(`,"flow":"f-%d"`, n%flows)
}

// granted is how many jobs of a bucket have had a slot.
func (j *joining) granted(bucket string) int {
	grants, _ := j.given.All()
	ids := map[string]bool{}
	for _, g := range grants {
		if g.Bucket == bucket {
			ids[g.ID] = true
		}
	}
	return len(ids)
}

// traffic goes on until something is true.
func (j *joining) traffic(what string, ok func() bool) {
	j.T.Helper()
	harness.Await(j.T, 20*time.Second, what, func() bool {
		j.feed(harness.BucketName, j.Receiver.URL)
		j.feed(poolMail, j.Receiver.URL)
		return ok()
	})
}

// slotsAt are the slots that a bucket has had with keys of a tag.
func (j *joining) slotsAt(bucket, tag string) (all harness.Slots) {
	grants, _ := j.given.All()
	for _, g := range grants {
		if g.Bucket == bucket && g.Tag == tag {
			all = append(all, g.Slot)
		}
	}
	slices.Sort(all)
	return all
}

// rewrite changes the file of a process.
func (j *joining) rewrite(file string, change func(text string) string) {
	j.T.Helper()
	path := filepath.Join(filepath.Dir(j.Config), file)
	text, err := os.ReadFile(path)
	if err != nil {
		j.T.Fatal(err)
	}
	if err := os.WriteFile(path+".next", []byte(change(string(text))), 0o600); err != nil {
		j.T.Fatal(err)
	}
	if err := os.Rename(path+".next", path); err != nil {
		j.T.Fatal(err)
	}
}

// configure has the file of a process put the bucket into the pool, or out of it.
func (j *joining) configure(file string, inPool bool) {
	j.T.Helper()
	name, pooled := fmt.Sprintf("name = %q\n", harness.BucketName), fmt.Sprintf("name = %q\npool = %q\n", harness.BucketName, poolName)
	j.rewrite(file, func(text string) string {
		text = strings.Replace(text, pooled, name, 1)
		if inPool {
			text = strings.Replace(text, name, pooled, 1)
		}
		return text
	})
}

// reload gives a process the new configuration.
func (j *joining) reload(p *harness.Process, file string) {
	j.T.Helper()
	j.configure(file, true)
	j.traffic(file+" is applied", func() bool { return strings.Contains(p.Output.String(), "configuration reloaded") })
}

// flowing waits until the bucket and the other one of the pool have had more slots.
func (j *joining) flowing(tag string) {
	j.T.Helper()
	const more = 40
	first, second := len(j.slotsAt(harness.BucketName, tag))+more, len(j.slotsAt(poolMail, poolName))+more
	j.traffic("both buckets stream with "+tag, func() bool {
		return len(j.slotsAt(harness.BucketName, tag)) >= first && len(j.slotsAt(poolMail, poolName)) >= second
	})
}

// wantHeld fails if a window of slots is ahead of a rate: those of the bucket wherever it was, and those of the pool.
func (j *joining) wantHeld() {
	j.T.Helper()
	alone, pooled := j.slotsAt(harness.BucketName, harness.BucketName), j.slotsAt(harness.BucketName, poolName)
	all, mails := slices.Sorted(slices.Values(slices.Concat(alone, pooled))), j.slotsAt(poolMail, poolName)
	shared := slices.Sorted(slices.Values(slices.Concat(mails, pooled)))
	gap := time.Duration(pooled[0]-alone[len(alone)-1]) * time.Microsecond
	j.T.Logf("%d slots outside the pool, %d in it, %d of the other bucket; %s between the two places", len(alone), len(pooled), len(mails), gap)
	if pooled[0] <= alone[len(alone)-1] {
		j.T.Errorf("the bucket had slots at both places at a time: by %s", -gap)
	}
	if early := harness.Slots(all).Early(aloneRate); early >= time.Microsecond {
		j.T.Errorf("the slots of the bucket are %s ahead of its rate", early)
	}
	if early := harness.Slots(shared).Early(poolRate); early >= time.Microsecond {
		j.T.Errorf("the slots of the pool are %s ahead of its rate", early)
	}
}

// wantRemembered sends an id that was delivered before the bucket moved.
func (j *joining) wantRemembered() {
	j.T.Helper()
	status, answer := j.PostBatch(harness.BucketName, []string{fmt.Sprintf(`{"id":"%s-0","payload":{},"url":%q%s}`, harness.BucketName, j.Receiver.URL, j.flow(harness.BucketName, 0))})
	if status != http.StatusOK || !bytes.Contains(answer, []byte(`"duplicate":true`)) {
		j.T.Errorf("an id of before is answered %d %s, want a duplicate", status, answer)
	}
}

// A bucket under traffic joins a pool when its programs reload, the producer first or the dispatchers first, one after the other. No job is
// lost or comes twice, an id of before is remembered, and no window has more slots than the rates of the bucket and of the pool allow.
func TestBucketWithTrafficJoinsAPool(t *testing.T) {
	harness.BesideOthers(t)
	for order, producerAt := range map[string]int{"producer first": 0, "dispatchers first": 2} {
		t.Run(order, func(t *testing.T) {
			harness.BesideOthers(t)
			j := startJoining(t, redistest.Start(t), 30*time.Second, "")
			j.flowing(harness.BucketName)
			for i, d := range j.Dispatchers {
				if i == producerAt {
					j.reload(j.Producer, "producer.toml")
					j.flowing(harness.BucketName)
				}
				j.reload(d, fmt.Sprintf("dispatcher%d.toml", i))
				j.flowing(poolName)
			}
			if producerAt > 0 {
				j.reload(j.Producer, "producer.toml")
				j.flowing(poolName)
			}
			j.wantRemembered()
			r := j.AwaitDelivered(60 * time.Second)
			t.Log(r)
			if r.Err() != nil || r.Extra > 0 {
				t.Errorf("%v, %d came twice", r.Err(), r.Extra)
			}
			j.wantHeld()
		})
	}
}
