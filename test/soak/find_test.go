//go:build soak

package soak

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/test/harness"
)

// What waits in TestFindingAMillion, and what is dead.
const (
	manyJobs, manyFlows, manyLater = 1_000_000, 100, 1000
	manyDead                       = 200_000
	rareDead                       = 200    // of them were answered 418
	needles                        = 20     // have a word in their answer
	worseDead                      = 50_000 // were answered 503
	oldDead                        = 20_000 // died first
)

// TestFindingAMillion: with a million jobs that wait in 100 flows, and 200,000 dead letters, all states and rare dead letters are
// found page by page, redriven and dropped by filter. No command takes more than 5 ms of Redis, the stream stays even at its rate, and
// each job is where it should be afterwards.
func TestFindingAMillion(t *testing.T) {
	const rate = 200
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		var a harness.ArrivalLog
		server := redistest.Start(t)
		s := start(t, server, harness.Plan{Rate: rate, Dispatchers: 2, Capacity: 2_000_000, Respond: a.Respond, Bucket: flowTable()})
		began := time.Now()
		client, _ := s.library()
		s.fillFlows(client)
		s.kill()
		t.Logf("%d jobs and %d dead letters came in %s", manyJobs, manyDead, time.Since(began).Round(time.Millisecond))
		harness.Await(t, 10*time.Second, "deliveries go on", func() bool { return len(a.Of("fill")) > rate })
		logSlow(t, server)
		began = time.Now()
		before := len(a.All())

		timed := func(what string, do func() int) int {
			began := time.Now()
			n := do()
			t.Logf("%s: %d in %s", what, n, time.Since(began).Round(time.Millisecond))
			return n
		}
		wants := func(what string, want int, do func() int) {
			t.Helper()
			if n := timed(what, do); n != want {
				t.Errorf("%s: %d, want %d", what, n, want)
			}
		}
		ends := map[string]int{}
		for i := range manyDead {
			ends[endOf(i)]++
		}
		const base = "/v1/buckets/" + harness.BucketName
		timed("queued, 100 pages of 1,000", func() int { return s.pages(base+"/jobs?limit=1000&state=queued", "jobs", 100) })
		wants("scheduled", manyLater, func() int { return s.pages(base+"/jobs?limit=1000&state=scheduled", "jobs", 0) })
		wants("retrying", 0, func() int { return s.pages(base+"/jobs?state=retrying", "jobs", 0) })
		timed("in flight", func() int { return s.pages(base+"/jobs?state=in_flight", "jobs", 0) })
		timed("of a flow", func() int { return s.pages(base+"/jobs?limit=1000&flow=f7", "jobs", 0) })
		wants("newer than all", 0, func() int {
			return s.pages(base+"/jobs?since="+url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339)), "jobs", 0)
		})
		wants("dead, all", manyDead, func() int { return s.pages(base+"/dead?limit=1000", "dead", 0) })
		wants("dead by status", rareDead, func() int { return s.pages(base+"/dead?status=418", "dead", 0) })
		wants("dead by text", needles, func() int { return s.pages(base+"/dead?q=NEEDLE", "dead", 0) })
		wants("dead of a flow since a time", manyDead/manyFlows/2, func() int {
			return s.pages(base+"/dead?flow=f7&since="+url.QueryEscape(diedFirst.Add(manyDead/2*time.Millisecond).Format(time.RFC3339)), "dead", 0)
		})
		wants("exported", rareDead, func() int { return strings.Count(s.dead("export", "--status", "418"), "\n") })
		wants("redrive, dry", rareDead, func() int { return s.deadCount("matched", "redrive", "--status", "418", "--dry-run") })
		wants("redriven by status", ends["status"], func() int { return s.deadCount("moved", "redrive", "--status", "418") })
		wants("redriven by reason", ends["reason"], func() int { return s.deadCount("moved", "redrive", "--reason", "http_503") })
		wants("dropped by text", ends["text"], func() int { return s.deadCount("dropped", "drop", "--text", "needle", "--yes") })
		wants("dropped by flow", ends["flow"], func() int { return s.deadCount("dropped", "drop", "--flow", "f9", "--yes") })
		until := diedFirst.Add(oldDead * time.Millisecond).Format(time.RFC3339)
		wants("redriven by time", ends["time"], func() int { return s.deadCount("moved", "redrive", "--until", until) })

		took := time.Since(began)
		seen := len(a.All()) - before
		t.Logf("%d left in %s: %.1f/s of %d/s", seen, took.Round(time.Millisecond), float64(seen)/took.Seconds(), rate)
		s.Operate("pause", harness.BucketName)
		harness.Await(t, 10*time.Second, "nothing is in flight", func() bool { return s.Inspector.ZCard(t.Context(), s.Key("leases")).Val() == 0 })
		r := s.History.Check()
		harness.Report(t, rate, r)
		there, dropped := int(s.Unfinished()), ends["text"]+ends["flow"]
		dead := int(s.Inspector.ZCard(t.Context(), s.Key("dead")).Val())
		t.Logf("%d delivered, %d in Redis, of them %d dead, %d dropped", r.Delivered-r.Extra, there, dead, dropped)
		switch {
		case len(r.Unexpected) > 0 || r.Extra > 0:
			t.Fatalf("%v; %d came twice", r.Err(), r.Extra)
		case r.Delivered+there+dropped != manyJobs+manyLater+manyDead:
			t.Fatalf("%d delivered, %d in Redis and %d dropped, want %d", r.Delivered, there, dropped, manyJobs+manyLater+manyDead)
		case dead != ends[""]:
			t.Fatalf("%d are dead, want %d", dead, ends[""])
		}
		if fault := slowScripts(t, server, stall); fault != "" {
			return fault
		}
		if fault := stall.Crowded(r.MostIn, rate, harness.Spread, time.Second, 10*time.Second); fault != "" {
			return fault
		}
		return stall.Slow(float64(seen)/took.Seconds(), rate, seen, .95)
	})
}

// fillFlows puts a million jobs in, in turns of their flows, and a thousand for an hour later.
func (s *system) fillFlows(client *producer.Client) {
	const batch, callers = 1000, 4
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for first := caller * batch; first < manyJobs+manyLater; first += callers * batch {
				list := make([]shaper.Job, batch)
				for i := range list {
					list[i] = shaper.Job{Bucket: harness.BucketName, ID: fmt.Sprintf("fill-%d", first+i), Flow: fmt.Sprint("f", (first+i)%manyFlows), Payload: []byte(`{}`)}
					if first >= manyJobs {
						list[i].Delay = time.Hour
					}
					s.History.Unknown(list[i].ID)
				}
				receipts, err := client.Enqueue(s.T.Context(), list...)
				if err != nil || receipts[len(receipts)-1].Refusal != nil {
					s.T.Errorf("fill: %v, %+v", err, receipts[len(receipts)-1])
					return
				}
			}
		})
	}
	all.Wait()
	if s.T.Failed() {
		s.T.FailNow()
	}
}

// diedFirst is when the first dead letter of kill died; one more died in each millisecond.
var diedFirst = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// deadAnswer is how the last attempt of a dead letter of kill ended.
func deadAnswer(i int) (status int, text string) {
	switch {
	case i%(manyDead/rareDead) == 17:
		return http.StatusTeapot, "a teapot"
	case i%(manyDead/needles) == 4711:
		return http.StatusInternalServerError, "a needle in a haystack"
	case i%(manyDead/worseDead) == 2:
		return http.StatusServiceUnavailable, "come back later"
	}
	return http.StatusInternalServerError, "it does not work: " + strings.Repeat("no ", 60)
}

// kill has dead letters in the bucket, as settle.lua leaves them.
func (s *system) kill() {
	s.T.Helper()
	body, meta, dead, count := s.Key("body"), s.Key("meta"), s.Key("dead"), s.Key("count")
	const batch = 1000
	for first := 0; first < manyDead; first += batch {
		pipe := s.Inspector.Pipeline()
		bytes := 0
		for i := first; i < first+batch; i++ {
			id := fmt.Sprint("dead-", i)
			status, text := deadAnswer(i)
			job := fmt.Sprintf("%d 1 00000000000cn001 {\"f\":\"f%d\"}\n{\"n\":%d}", i, i%manyFlows, i)
			last := fmt.Sprintf(`5 1 1 0 0 - {"cause":"attempts-exhausted","status":%d,"reason":"http_%d","body":%q}`, status, status, text)
			pipe.HSet(s.T.Context(), body, id, job)
			pipe.HSet(s.T.Context(), meta, id, last)
			pipe.ZAdd(s.T.Context(), dead, redis.Z{Member: id, Score: float64(diedFirst.Add(time.Duration(i) * time.Millisecond).UnixMicro())})
			s.History.Unknown(id)
			bytes += len(id) + len(job) + len(last)
		}
		pipe.HIncrBy(s.T.Context(), count, "dead_bytes", int64(bytes))
		if _, err := pipe.Exec(s.T.Context()); err != nil {
			s.T.Fatal(err)
		}
	}
}

// endOf is by what the test redrives or drops a dead letter of kill, "" if by nothing.
func endOf(i int) string {
	status, text := deadAnswer(i)
	switch {
	case status == http.StatusTeapot:
		return "status"
	case status == http.StatusServiceUnavailable:
		return "reason"
	case strings.Contains(text, "needle"):
		return "text"
	case i%manyFlows == 9:
		return "flow"
	case i < oldDead:
		return "time"
	}
	return ""
}

// pages counts what a list of the operators' API has, page by page: so many pages at most, if that is not 0.
func (s *system) pages(path, list string, most int) (found int) {
	s.T.Helper()
	cursor := ""
	for page := 1; ; page++ {
		answer := map[string]json.RawMessage{}
		s.ask(path+cursor, &answer)
		var some []json.RawMessage
		if err := json.Unmarshal(answer[list], &some); err != nil {
			s.T.Fatalf("%s: %v", path, err)
		}
		found += len(some)
		var next string
		if answer["next"] != nil {
			_ = json.Unmarshal(answer["next"], &next)
		}
		if next == "" || page == most {
			return found
		}
		cursor = "&cursor=" + url.QueryEscape(next)
	}
}

// ask reads a JSON answer of the first dispatcher.
func (s *system) ask(path string, into any) {
	s.T.Helper()
	request, err := http.NewRequestWithContext(s.T.Context(), http.MethodGet, s.OpsOf[0]+path, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.T.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || json.Unmarshal(text, into) != nil {
		s.T.Fatalf("GET %s: %d %s, %v", path, response.StatusCode, text, err)
	}
}

// dead runs `dispatcher dead …` on the bucket and returns what it prints.
func (s *system) dead(do string, args ...string) string {
	s.T.Helper()
	return harness.Command(s.T, 0, "dispatcher", append([]string{"dead", do, harness.BucketName, "--config", s.Config}, args...)...)
}

// deadCount is a number of the JSON that such a command prints.
func (s *system) deadCount(name, do string, args ...string) int {
	s.T.Helper()
	var answer map[string]int
	if err := json.Unmarshal([]byte(s.dead(do, append(args, "--json")...)), &answer); err != nil {
		s.T.Fatal(err)
	}
	return answer[name]
}
