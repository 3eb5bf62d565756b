package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// Rates of two buckets that stream all the time, and of one that comes, changes and goes beside them.
const (
	streamRate, mailRate, addedRate = 100, 60, 80

	mailBucket, addedBucket = "mails", "added"
)

// reloading is a producer and three dispatchers whose configuration files are rewritten under load.
type reloading struct {
	*system
	given   *harness.SlotMonitor
	second  *httptest.Server    // where the jobs of the added bucket go after its change
	to      *harness.ArrivalLog // of both receivers
	moved   *harness.ArrivalLog // of the second
	files   map[string]string   // path → text without the buckets that come and go
	applied int                 // reloads
	feeds   bool                // both streams have begun
	posted  map[string]int      // jobs of each bucket
}

func startReloading(t *testing.T) *reloading {
	t.Helper()
	r := &reloading{to: &harness.ArrivalLog{}, moved: &harness.ArrivalLog{}, files: map[string]string{}, posted: map[string]int{}}
	server := redistest.Start(t)
	r.system = start(t, server, harness.Plan{Rate: streamRate, Bucket: "dedupe_window = \"1m\"", Respond: r.to.Respond})
	r.given = harness.Monitor(t, server)
	r.second = httptest.NewServer(&checker.Receiver{History: r.History, Respond: func(w http.ResponseWriter, request *http.Request, id string, attempt int) {
		r.to.Respond(w, request, id, attempt)
		r.moved.Respond(w, request, id, attempt)
	}})
	t.Cleanup(r.second.Close)
	text, err := os.ReadFile(r.Config)
	if err != nil {
		t.Fatal(err)
	}
	r.files[r.Config] = string(text)
	own := strings.TrimPrefix(r.Ops, "http://") // of nobody: the producer does not listen there
	for i := range 3 {
		addr, path := redistest.FreeAddr(t), filepath.Join(filepath.Dir(r.Config), fmt.Sprintf("reloading%d.toml", i))
		r.files[path] = strings.ReplaceAll(string(text), own, addr)
		if err := os.WriteFile(path, []byte(r.files[path]), 0o600); err != nil {
			t.Fatal(err)
		}
		r.OpsOf = append(r.OpsOf, "http://"+addr)
		r.Dispatchers = append(r.Dispatchers, harness.Run(t, "http://"+addr, "dispatcher", "run", "--config", path))
	}
	r.reload(r.mails())
	r.feeds = true
	r.feed()
	return r
}

// bucketTable is one more bucket of the file.
func bucketTable(name string, rate int, url string) string {
	return fmt.Sprintf("[[buckets]]\nname = %q\nrate = \"%d/s\"\nmax_in_flight = 4000\n[buckets.webhook]\nurl = %q\nallow_networks = [\"127.0.0.0/8\"]\n", name, rate, url)
}

// reload writes the files with these tables behind the first bucket, and waits until all processes have applied them.
func (r *reloading) reload(tables ...string) {
	r.T.Helper()
	r.applied++
	for path, text := range r.files {
		next := path + ".next"
		if err := os.WriteFile(next, []byte(text+strings.Join(tables, "")), 0o600); err != nil {
			r.T.Fatal(err)
		}
		if err := os.Rename(next, path); err != nil {
			r.T.Fatal(err)
		}
	}
	for i, p := range append(slices.Clone(r.Dispatchers), r.Producer) {
		harness.Await(r.T, 10*time.Second, fmt.Sprintf("process %d applies change %d", i, r.applied), func() bool {
			r.feed()
			return strings.Count(p.Output.String(), "configuration reloaded") >= r.applied
		})
	}
}

// mails is the table of the second stream.
func (r *reloading) mails() string { return bucketTable(mailBucket, mailRate, r.Receiver.URL) }

// added is that of the bucket that comes and goes.
func (r *reloading) added(to *httptest.Server) string {
	return bucketTable(addedBucket, addedRate, to.URL)
}

// postTo enqueues jobs, whose ids begin with the bucket's name, into a bucket, and wants this status.
func (r *reloading) postTo(bucket string, count, want int) {
	r.T.Helper()
	lines := make([]string, count)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"id":"%s-%d","payload":{}}`, bucket, r.posted[bucket]+i)
	}
	status, answer := r.PostBatch(bucket, lines)
	if status != want {
		r.T.Fatalf("a batch for %s is answered %d, want %d: %.300s", bucket, status, want, answer)
	}
	if status != http.StatusOK {
		return
	}
	if !strings.Contains(string(answer), fmt.Sprintf(`"admitted":%d,`, count)) {
		r.T.Fatalf("batch for %s: %.300s", bucket, answer)
	}
	for i := range count {
		r.History.Admitted(fmt.Sprintf("%s-%d", bucket, r.posted[bucket]+i), time.Now())
	}
	r.posted[bucket] += count
}

// feed enqueues what the two streams need for some seconds more.
func (r *reloading) feed() {
	r.T.Helper()
	const seconds = 4
	if !r.feeds {
		return
	}
	for bucket, rate := range map[string]int{harness.BucketName: streamRate, mailBucket: mailRate} {
		if lacks := seconds*rate - (r.posted[bucket] - len(r.to.Of(bucket))); lacks > 0 {
			r.postTo(bucket, lacks, http.StatusOK)
		}
	}
}

// drained waits until every job of the added bucket has arrived.
func (r *reloading) drained(what string) {
	r.T.Helper()
	harness.Await(r.T, 20*time.Second, what, func() bool { r.feed(); return len(r.to.Of(addedBucket)) >= r.posted[addedBucket] })
}

// round adds a bucket, sends its deliveries elsewhere, removes it with jobs in it, and brings it back.
func (r *reloading) round() {
	r.T.Helper()
	const jobs = 60
	r.postTo(addedBucket, 1, http.StatusNotFound)
	r.reload(r.mails(), r.added(r.Receiver))
	r.postTo(addedBucket, jobs, http.StatusOK)
	r.drained("the new bucket is drained")

	r.postTo(addedBucket, jobs, http.StatusOK) // some of these go to the receiver of before
	r.reload(r.mails(), r.added(r.second))
	first := r.posted[addedBucket]
	r.postTo(addedBucket, jobs, http.StatusOK)
	r.drained("it is drained to the other receiver")
	moved := r.moved.ByID()
	for i := first; i < r.posted[addedBucket]; i++ {
		if id := fmt.Sprintf("%s-%d", addedBucket, i); len(moved[id]) != 1 {
			r.T.Errorf("job %s came %d times to the receiver that the reload named", id, len(moved[id]))
		}
	}

	r.postTo(addedBucket, 3*addedRate, http.StatusOK)
	r.reload(r.mails())
	r.postTo(addedBucket, 1, http.StatusNotFound)
	left := time.Now()
	var view struct {
		Orphaned            bool
		Waiting, Unfinished int
		InFlight            int `json:"in_flight"`
	}
	see := func(url string) {
		r.T.Helper()
		response, err := http.Get(url + "/v1/buckets/" + addedBucket)
		if err != nil {
			r.T.Fatal(err)
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err != nil || json.Unmarshal(answer, &view) != nil {
			r.T.Fatalf("%s: %s, %v", url, answer, err)
		}
	}
	for _, url := range r.OpsOf {
		see(url)
		if !view.Orphaned || view.Waiting == 0 {
			r.T.Errorf("%s shows the bucket that left as %+v", url, view)
		}
	}
	harness.Await(r.T, 10*time.Second, "deliveries of the bucket that left end", func() bool { see(r.ops0()); return view.InFlight == 0 })
	waiting, since := view.Waiting, time.Now()
	mails := len(r.to.Of(mailBucket))
	harness.Await(r.T, 10*time.Second, "the others go on meanwhile", func() bool { r.feed(); return len(r.to.Of(mailBucket)) >= mails+mailRate })
	if see(r.ops0()); view.Waiting != waiting {
		r.T.Errorf("%d jobs wait, after %s %d", waiting, time.Since(since), view.Waiting)
	}
	back := time.Now()
	r.reload(r.mails(), r.added(r.Receiver))
	grants, _ := r.given.All()
	for _, g := range grants {
		if at := time.UnixMicro(g.At); g.Bucket == addedBucket && at.After(left) && at.Before(back) {
			r.T.Errorf("job %s was claimed %s after the bucket had left", g.ID, at.Sub(left))
		}
	}
	r.drained("all of it is drained")
	r.reload(r.mails())
	harness.Await(r.T, 10*time.Second, "the series of a bucket that left go, and others stay", func() bool {
		r.feed()
		page := r.metrics(r.ops0())
		return !strings.Contains(page, fmt.Sprintf("tundish_departures_total{bucket=%q}", addedBucket)) &&
			strings.Contains(page, fmt.Sprintf("tundish_departures_total{bucket=%q}", mailBucket))
	})
}

func (r *reloading) ops0() string { return r.OpsOf[0] }

func (r *reloading) metrics(url string) string {
	r.T.Helper()
	response, err := http.Get(url + "/metrics")
	if err != nil {
		r.T.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		r.T.Fatal(err)
	}
	return string(page)
}

// wantOnce says what the checker does: nothing lost, nothing that nobody sent, and nothing twice.
func (r *reloading) wantOnce() {
	r.T.Helper()
	harness.Await(r.T, 30*time.Second, "every job has arrived", func() bool { return len(r.History.Check().Lost) == 0 })
	result := r.History.Check()
	r.T.Logf("%d reloads of 4 processes: %s", r.applied, result)
	if result.Err() != nil || result.Extra > 0 {
		r.T.Errorf("%v, %d came twice", result.Err(), result.Extra)
	}
}

// wantPaced holds the slots of all buckets to their rates, in any window.
func (r *reloading) wantPaced() {
	r.T.Helper()
	for bucket, rate := range map[string]int{harness.BucketName: streamRate, mailBucket: mailRate, addedBucket: addedRate} {
		given := r.given.Of(bucket)
		r.T.Logf("%s: %d slots, %.1f/s of %d/s, 1 s has %d to %d, ahead of the rate by at most %s in any window", bucket, len(given), given.Rate(), rate,
			given.Fewest(time.Second), given.Most(time.Second), given.Early(rate))
		if early := given.Early(rate); early >= time.Microsecond {
			r.T.Errorf("%s: the slots of some window are %s ahead of the rate", bucket, early)
		}
	}
}

// TestReload: a bucket comes, gets another receiver, leaves with jobs in it and comes back, under three dispatchers and a
// producer that run, while two others stream. No job is lost or comes twice, the bucket that left is not drained, and
// no window of the other streams has more slots than their rates allow.
func TestReload(t *testing.T) {
	harness.BesideOthers(t)
	r := startReloading(t)
	r.round()
	r.wantPaced()
	r.wantOnce()
}
