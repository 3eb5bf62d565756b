package test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestSchedulesFireOnce: three dispatchers, a schedule that fires each second, and one of them killed with -9 around each fire. Each fire
// makes one job, none is missed, although ids of settled jobs are not remembered.
func TestSchedulesFireOnce(t *testing.T) {
	t.Parallel()
	fires := 12
	if redistest.Soak {
		fires = soakFires
	}
	server := redistest.Start(t)
	fireAndKill(t, server, server.Client(), "", fires)
}

const soakFires = 200

// fireAndKill has three dispatchers fire each second, and kills one of them around each fire.
func fireAndKill(t *testing.T, server *redistest.Server, inspector redis.Cmdable, redisURL string, fires int) {
	t.Helper()
	var mu sync.Mutex
	delivered := map[string]int{}
	s := start(t, server, harness.Plan{
		Rate: 200, Dispatchers: 3, Lease: 3 * time.Second, RedisURL: redisURL,
		Bucket: "dedupe_window = \"0s\"\n[[schedules]]\nname = \"tick\"\ncron = \"@every 1s\"\nbucket = \"" + harness.BucketName + "\"\ncatch_up = \"all\"\npayload = \"{}\"\n",
		Respond: func(_ http.ResponseWriter, r *http.Request, id string, _ int) {
			_, _ = io.Copy(io.Discard, r.Body)
			mu.Lock()
			defer mu.Unlock()
			delivered[id]++
		},
	})
	ids := func() (all []time.Time) {
		mu.Lock()
		defer mu.Unlock()
		for id := range delivered {
			if at, err := time.Parse("20060102T150405Z", strings.TrimPrefix(id, "schedule-tick-")); err == nil {
				all = append(all, at)
			}
		}
		return all
	}
	harness.Await(t, 20*time.Second, "the schedule fires", func() bool { return len(ids()) > 0 })
	kills := 0
	for began := time.Now(); time.Since(began) < time.Duration(fires)*time.Second; kills++ {
		next := time.Now().Truncate(time.Second).Add(time.Second + time.Duration(rand.IntN(30)-20)*time.Millisecond)
		<-time.After(time.Until(next))
		victim := kills % len(s.Dispatchers)
		s.Dispatchers[victim].Kill()
		s.Dispatchers[victim] = s.Restart[victim]()
	}
	// From here on no other fire counts.
	status, answer := s.requestTo(s.OpsOf[0], http.MethodPost, "/v1/schedules/tick/pause")
	if status != http.StatusOK {
		t.Fatalf("pause: %d %s", status, answer)
	}
	var view struct {
		Fired, Missed, Skipped int
		Last                   time.Time
	}
	if err := json.Unmarshal(answer, &view); err != nil {
		t.Fatal(err)
	}
	jobs := inspector.HGet(t.Context(), s.Key("count"), "seq").Val()
	harness.Await(t, 30*time.Second, "all jobs are delivered", func() bool { return len(ids()) >= view.Fired })
	first, last := view.Last, time.Time{}
	times := ids()
	for _, at := range times {
		if at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	seconds := int(last.Sub(first)/time.Second) + 1
	again := 0
	for _, n := range delivered {
		again += n - 1
	}
	t.Logf("%d kills of a dispatcher, %d seconds: %d fires, %d jobs made, %d delivered, %d deliveries again after a kill; missed %d", kills, seconds, view.Fired, mustAtoi(t, jobs), len(times), again, view.Missed)
	if view.Fired != seconds || len(times) != seconds || jobs != fmt.Sprint(seconds) || view.Missed != 0 || !last.Equal(view.Last) {
		t.Errorf("want one fire, one job and one delivered id for each of %d seconds", seconds)
	}
}

// TestReloadOfSchedules: a file is rewritten under a running dispatcher, and SIGHUP has schedules come, change and go. One that was made
// through the API stays.
func TestReloadOfSchedules(t *testing.T) {
	t.Parallel()
	delivered := make(chan string, 1000)
	s := start(t, redistest.Start(t), harness.Plan{
		Rate: 200, Dispatchers: 1,
		Respond: func(_ http.ResponseWriter, r *http.Request, id string, _ int) {
			_, _ = io.Copy(io.Discard, r.Body)
			delivered <- id
		},
	})
	file := filepath.Join(filepath.Dir(s.Config), "dispatcher0.toml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fires := func(name string) {
		t.Helper()
		limit := time.After(harness.Patience * 10 * time.Second)
		for {
			select {
			case id := <-delivered:
				if strings.HasPrefix(id, "schedule-"+name+"-") {
					return
				}
			case <-limit:
				t.Fatalf("%s does not fire", name)
			}
		}
	}
	reload := func(schedules ...[2]string) {
		t.Helper()
		var tables strings.Builder
		tables.Write(text)
		for _, one := range schedules {
			fmt.Fprintf(&tables, "\n[[schedules]]\nname = %q\ncron = %q\nbucket = %q\npayload = \"{}\"\n", one[0], one[1], harness.BucketName)
		}
		if err := os.WriteFile(file, []byte(tables.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		before := strings.Count(s.Dispatchers[0].Output.String(), "configuration reloaded")
		s.Dispatchers[0].Signal(t, syscall.SIGHUP)
		harness.Await(t, 10*time.Second, "the reload", func() bool {
			return strings.Count(s.Dispatchers[0].Output.String(), "configuration reloaded") > before
		})
	}
	listed := func(want string) {
		t.Helper()
		got := ""
		harness.Await(t, 10*time.Second, "the schedules are "+want, func() bool {
			_, answer := s.requestTo(s.OpsOf[0], http.MethodGet, "/v1/schedules")
			var view struct {
				Schedules []struct{ Name, Cron, Source string }
			}
			if err := json.Unmarshal(answer, &view); err != nil {
				t.Fatal(err)
			}
			got = fmt.Sprint(view.Schedules)
			return got == want
		})
	}
	listed("[]")
	reload([2]string{"goes", "@every 1s"}, [2]string{"stays", "0 0 1 1 *"})
	listed("[{goes @every 1s config} {stays 0 0 1 1 * config}]")
	fires("goes")
	harness.Await(t, 10*time.Second, "the history tells that a job is done", func() bool {
		_, answer := s.requestTo(s.OpsOf[0], http.MethodGet, "/v1/schedules/goes/runs")
		return strings.Contains(string(answer), `"job_state":"done","jobs":1`)
	})
	put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.OpsOf[0]+"/v1/schedules/made", strings.NewReader(`{"cron":"@every 2s","bucket":"`+harness.BucketName+`","payload":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	put.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(put)
	if err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(response.Body)
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", response.StatusCode, answer)
	}
	fires("made")
	reload([2]string{"comes", "@every 1s"}, [2]string{"stays", "@every 2s"})
	listed("[{comes @every 1s config} {made @every 2s api} {stays @every 2s config}]")
	fires("comes")
	fires("stays")
	fires("made")
	for len(delivered) > 0 {
		<-delivered
	}
	fires("comes")
	fires("comes")
	fires("comes") // so at least two seconds went by
	for len(delivered) > 0 {
		if id := <-delivered; strings.HasPrefix(id, "schedule-goes-") {
			t.Errorf("a schedule that is gone made %s", id)
		}
	}
}

func mustAtoi(t *testing.T, text string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// requestTo asks one of the programs.
func (s *system) requestTo(base, method, path string) (status int, answer []byte) {
	s.T.Helper()
	r, err := http.NewRequestWithContext(s.T.Context(), method, base+path, http.NoBody)
	if err != nil {
		s.T.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.T.Fatal(err)
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	if err != nil {
		s.T.Fatal(err)
	}
	return response.StatusCode, answer
}
