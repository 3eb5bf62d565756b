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
)

// Rates of two buckets that stream all the time, and of one that comes, changes and goes beside them.
const (
	streamRate, mailRate, guestRate = 100, 60, 80

	mailBucket, guestBucket = "mails", "guest"
)

// reloading is a producer and three dispatchers whose configuration files are rewritten under load.
type reloading struct {
	*system
	given   *slotMonitor
	second  *httptest.Server  // where the guest's jobs go after its change
	to      *arrivalLog       // of both receivers
	moved   *arrivalLog       // of the second
	files   map[string]string // path → text without the buckets that come and go
	applied int               // reloads
	feeds   bool              // both streams have begun
	posted  map[string]int    // jobs of each bucket
}

func startReloading(t *testing.T) *reloading {
	t.Helper()
	r := &reloading{to: &arrivalLog{}, moved: &arrivalLog{}, files: map[string]string{}, posted: map[string]int{}}
	server := redistest.Start(t)
	r.system = start(t, server, plan{rate: streamRate, bucket: "dedupe_window = \"1m\"", respond: r.to.respond})
	r.given = monitor(t, server)
	r.second = httptest.NewServer(&checker.Receiver{History: r.history, Respond: func(w http.ResponseWriter, request *http.Request, id string, attempt int) {
		r.to.respond(w, request, id, attempt)
		r.moved.respond(w, request, id, attempt)
	}})
	t.Cleanup(r.second.Close)
	text, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	r.files[r.config] = string(text)
	own := strings.TrimPrefix(r.ops, "http://") // of nobody: the producer does not listen there
	for i := range 3 {
		addr, path := redistest.FreeAddr(t), filepath.Join(filepath.Dir(r.config), fmt.Sprintf("reloading%d.toml", i))
		r.files[path] = strings.ReplaceAll(string(text), own, addr)
		if err := os.WriteFile(path, []byte(r.files[path]), 0o600); err != nil {
			t.Fatal(err)
		}
		r.opsOf = append(r.opsOf, "http://"+addr)
		r.dispatchers = append(r.dispatchers, run(t, "http://"+addr, "dispatcher", "run", "--config", path))
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
	r.t.Helper()
	r.applied++
	for path, text := range r.files {
		next := path + ".next"
		if err := os.WriteFile(next, []byte(text+strings.Join(tables, "")), 0o600); err != nil {
			r.t.Fatal(err)
		}
		if err := os.Rename(next, path); err != nil {
			r.t.Fatal(err)
		}
	}
	for i, p := range append(slices.Clone(r.dispatchers), r.producer) {
		await(r.t, 10*time.Second, fmt.Sprintf("process %d applies change %d", i, r.applied), func() bool {
			r.feed()
			return strings.Count(p.output.String(), "configuration reloaded") >= r.applied
		})
	}
}

// mails is the table of the second stream.
func (r *reloading) mails() string { return bucketTable(mailBucket, mailRate, r.receiver.URL) }

// guest is that of the bucket that comes and goes.
func (r *reloading) guest(to *httptest.Server) string {
	return bucketTable(guestBucket, guestRate, to.URL)
}

// postTo enqueues jobs, whose ids begin with the bucket's name, into a bucket, and wants this status.
func (r *reloading) postTo(bucket string, count, want int) {
	r.t.Helper()
	lines := make([]string, count)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"id":"%s-%d","payload":{}}`, bucket, r.posted[bucket]+i)
	}
	status, answer := r.postBatch(bucket, lines)
	if status != want {
		r.t.Fatalf("a batch for %s is answered %d, want %d: %.300s", bucket, status, want, answer)
	}
	if status != http.StatusOK {
		return
	}
	if !strings.Contains(string(answer), fmt.Sprintf(`"admitted":%d,`, count)) {
		r.t.Fatalf("batch for %s: %.300s", bucket, answer)
	}
	for i := range count {
		r.history.Admitted(fmt.Sprintf("%s-%d", bucket, r.posted[bucket]+i), time.Now())
	}
	r.posted[bucket] += count
}

// feed enqueues what the two streams need for some seconds more.
func (r *reloading) feed() {
	r.t.Helper()
	const seconds = 4
	if !r.feeds {
		return
	}
	for bucket, rate := range map[string]int{bucketName: streamRate, mailBucket: mailRate} {
		if lacks := seconds*rate - (r.posted[bucket] - len(r.to.of(bucket))); lacks > 0 {
			r.postTo(bucket, lacks, http.StatusOK)
		}
	}
}

// drained waits until every job of the guest has arrived.
func (r *reloading) drained(what string) {
	r.t.Helper()
	await(r.t, 20*time.Second, what, func() bool { r.feed(); return len(r.to.of(guestBucket)) >= r.posted[guestBucket] })
}

// round adds the guest, sends its deliveries elsewhere, removes it with jobs in it, and brings it back.
func (r *reloading) round() {
	r.t.Helper()
	const jobs = 60
	r.postTo(guestBucket, 1, http.StatusNotFound)
	r.reload(r.mails(), r.guest(r.receiver))
	r.postTo(guestBucket, jobs, http.StatusOK)
	r.drained("the new bucket is drained")

	r.postTo(guestBucket, jobs, http.StatusOK) // some of these go to the receiver of before
	r.reload(r.mails(), r.guest(r.second))
	first := r.posted[guestBucket]
	r.postTo(guestBucket, jobs, http.StatusOK)
	r.drained("it is drained to the other receiver")
	moved := r.moved.byID()
	for i := first; i < r.posted[guestBucket]; i++ {
		if id := fmt.Sprintf("%s-%d", guestBucket, i); len(moved[id]) != 1 {
			r.t.Errorf("job %s came %d times to the receiver that the reload named", id, len(moved[id]))
		}
	}

	r.postTo(guestBucket, 3*guestRate, http.StatusOK)
	r.reload(r.mails())
	r.postTo(guestBucket, 1, http.StatusNotFound)
	left := time.Now()
	var view struct {
		Orphaned            bool
		Waiting, Unfinished int
		InFlight            int `json:"in_flight"`
	}
	see := func(url string) {
		r.t.Helper()
		response, err := http.Get(url + "/v1/buckets/" + guestBucket)
		if err != nil {
			r.t.Fatal(err)
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err != nil || json.Unmarshal(answer, &view) != nil {
			r.t.Fatalf("%s: %s, %v", url, answer, err)
		}
	}
	for _, url := range r.opsOf {
		see(url)
		if !view.Orphaned || view.Waiting == 0 {
			r.t.Errorf("%s shows the bucket that left as %+v", url, view)
		}
	}
	await(r.t, 10*time.Second, "deliveries of the bucket that left end", func() bool { see(r.ops0()); return view.InFlight == 0 })
	waiting, since := view.Waiting, time.Now()
	mails := len(r.to.of(mailBucket))
	await(r.t, 10*time.Second, "the others go on meanwhile", func() bool { r.feed(); return len(r.to.of(mailBucket)) >= mails+mailRate })
	if see(r.ops0()); view.Waiting != waiting {
		r.t.Errorf("%d jobs wait, after %s %d", waiting, time.Since(since), view.Waiting)
	}
	back := time.Now()
	r.reload(r.mails(), r.guest(r.receiver))
	grants, _ := r.given.all()
	for _, g := range grants {
		if at := time.UnixMicro(g.at); g.bucket == guestBucket && at.After(left) && at.Before(back) {
			r.t.Errorf("job %s was claimed %s after the bucket had left", g.id, at.Sub(left))
		}
	}
	r.drained("all of it is drained")
	r.reload(r.mails())
	await(r.t, 10*time.Second, "the series of a bucket that left go, and others stay", func() bool {
		r.feed()
		page := r.metrics(r.ops0())
		return !strings.Contains(page, fmt.Sprintf("tundish_departures_total{bucket=%q}", guestBucket)) &&
			strings.Contains(page, fmt.Sprintf("tundish_departures_total{bucket=%q}", mailBucket))
	})
}

func (r *reloading) ops0() string { return r.opsOf[0] }

func (r *reloading) metrics(url string) string {
	r.t.Helper()
	response, err := http.Get(url + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(page)
}

// of are the slots that a bucket was given.
func (m *slotMonitor) of(bucket string) slots {
	grants, _ := m.all()
	var all slots
	for _, g := range grants {
		if g.bucket == bucket {
			all = append(all, g.slot)
		}
	}
	slices.Sort(all)
	return all
}

// wantOnce says what the checker does: nothing lost, nothing that nobody sent, and nothing twice.
func (r *reloading) wantOnce() {
	r.t.Helper()
	await(r.t, 30*time.Second, "every job has arrived", func() bool { return len(r.history.Check().Lost) == 0 })
	result := r.history.Check()
	r.t.Logf("%d reloads of 4 processes: %s", r.applied, result)
	if result.Err() != nil || result.Extra > 0 {
		r.t.Errorf("%v, %d came twice", result.Err(), result.Extra)
	}
}

// wantPaced holds the slots of all buckets to their rates, in any window.
func (r *reloading) wantPaced() {
	r.t.Helper()
	for bucket, rate := range map[string]int{bucketName: streamRate, mailBucket: mailRate, guestBucket: guestRate} {
		given := r.given.of(bucket)
		r.t.Logf("%s: %d slots, %.1f/s of %d/s, 1 s has %d to %d, ahead of the rate by at most %s in any window", bucket, len(given), given.rate(), rate,
			given.fewest(time.Second), given.most(time.Second), given.early(rate))
		if early := given.early(rate); early >= time.Microsecond {
			r.t.Errorf("%s: the slots of some window are %s ahead of the rate", bucket, early)
		}
	}
}

// TestReload: a bucket comes, gets another receiver, leaves with jobs in it and comes back, under three dispatchers and a
// producer that run, while two others stream. No job is lost or comes twice, the bucket that left is not drained, and
// no window of the other streams has more slots than their rates allow.
func TestReload(t *testing.T) {
	besideOthers(t)
	r := startReloading(t)
	r.round()
	r.wantPaced()
	r.wantOnce()
}
