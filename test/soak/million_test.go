//go:build soak

package soak

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/test/harness"
)

// What no script may take of Redis at a time.
const scriptAtMost = 5 * time.Millisecond

// TestAMillionWaits: with a million jobs in a bucket, and more coming, all dispatchers
// see a pause, a rate change, also from 1/h to 50/s, and a purge within a second. The
// purge drops what waited, each job counted, what comes meanwhile is delivered, and
// no script takes more than 5 ms.
func TestAMillionWaits(t *testing.T) {
	const rate, jobs = 200, 1_000_000
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		var a harness.ArrivalLog
		server := redistest.Start(t)
		s := start(t, server, harness.Plan{Rate: rate, Dispatchers: 2, Capacity: 2_000_000, Respond: a.Respond})
		logSlow(t, server)
		filled := time.Now()
		b := pacedBucket(rate)
		b.MaxInFlight, b.DedupeWindow = 4000, shaper.DefaultBucket().DedupeWindow // as the configuration says
		fillBucket(t, server.Client(), b, jobs, s.History)
		t.Logf("%d jobs came in %s", jobs, time.Since(filled).Round(time.Millisecond))
		more := s.pour()
		harness.Await(t, 10*time.Second, "deliveries go on", func() bool { return len(a.Of("fill"))+len(a.Of("more")) > rate })

		var faults []string
		obeys := func(what string, took time.Duration) {
			t.Logf("%s: obeyed after %s", what, took.Round(time.Millisecond))
			if took > obeyed {
				faults = append(faults, fmt.Sprintf("%s was obeyed %s after it", what, took))
			}
		}
		stops := func(what string, args ...string) {
			said := time.Now()
			s.Operate(args...)
			quietFor(t, said, obeyed+200*time.Millisecond)
			all := a.All()
			obeys(what, max(0, all[len(all)-1].Sub(said)))
		}
		goesOn := func(what string, args ...string) {
			before := len(a.All())
			said := time.Now()
			s.Operate(args...)
			harness.Await(t, 5*time.Second, "deliveries go on", func() bool { return len(a.All()) > before })
			obeys(what, max(0, a.All()[before].Sub(said)))
		}
		stops("pause", "pause", harness.BucketName)
		goesOn("resume", "resume", harness.BucketName)
		stops("200/s to 1/h", "set", harness.BucketName, "--rate", "1/h")
		goesOn("1/h to 50/s", "set", harness.BucketName, "--rate", "50/s")
		for range 5 { // for their scripts
			s.Operate("pause", harness.BucketName)
			s.Operate("resume", harness.BucketName)
			s.Operate("list")
			s.Operate("show", harness.BucketName)
			s.Operate("set", harness.BucketName, "--rate", fmt.Sprintf("%d/s", rate))
		}

		// Those that matter more leave first, also those that came during the pauses.
		before := len(a.Of("fill"))
		harness.Await(t, 20*time.Second, "jobs of the million leave", func() bool { return len(a.Of("fill")) >= before+rate/4 })
		began := time.Now()
		purged, done := 0, make(chan struct{})
		go func() {
			defer close(done)
			purged = s.purge()
		}()
		movedOut := s.Key("purged:normal:")
		harness.Await(t, 10*time.Second, "the purge is under way", func() bool { return s.Inspector.Exists(t.Context(), movedOut).Val() == 1 })
		poured := more() // what comes from now on is not purged
		s.Post("new", 400)
		<-done
		took := time.Since(began)
		s.AwaitDelivered(30 * time.Second)
		harness.Await(t, 10*time.Second, "everything is settled", func() bool { return s.Unfinished() == 0 })
		r := s.History.Check()
		left := len(a.Of("fill")) + len(a.Of("more"))
		t.Logf("%s; %d jobs purged in %s; %d had left", r, purged, took.Round(time.Millisecond), left)
		obeys("purge", max(0, a.Latest("fill").Sub(began)))
		switch {
		case r.Err() != nil:
			t.Fatal(r.Err())
		case r.Extra > 0:
			return fmt.Sprintf("%d came twice", r.Extra)
		case purged+left != jobs+poured || len(a.Of("new")) != 400:
			t.Fatalf("%d purged and %d left, want %d and %d in all; %d new ones left", purged, left, jobs, poured, len(a.Of("new")))
		}
		return cmp.Or(strings.Join(faults, "; "), slowScripts(t, server, stall), stall.Crowded(r.MostIn, rate, harness.Spread, time.Second))
	})
}

// pour sends jobs that matter more than others, one by one, until the function is called that it
// returns, which says how many were taken in. Whether one arrives is open.
func (s *system) pour() (end func() int) {
	stop, taken := make(chan struct{}), 0
	var pouring sync.WaitGroup
	pouring.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			id := fmt.Sprint("more-", i)
			s.History.Unknown(id)
			status, answer := s.Request(http.MethodPost, "/v1/buckets/"+harness.BucketName+"/jobs", "application/json",
				strings.NewReader(fmt.Sprintf(`{"id":%q,"payload":{},"priority":"high"}`, id)))
			if status != http.StatusAccepted {
				s.T.Errorf("job %s: %d %s", id, status, answer)
				return
			}
			taken++
		}
	})
	return func() int {
		close(stop)
		pouring.Wait()
		return taken
	}
}

// logSlow has the server log what takes half a millisecond or more. What it logs is time of the clock: so the server goes before all
// other processes, where the system lets us say so, and its log has less of their time.
func logSlow(t *testing.T, server *redistest.Server) {
	t.Helper()
	client := server.Client()
	for name, value := range map[string]string{"slowlog-log-slower-than": "500", "slowlog-max-len": "50000"} {
		if err := client.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.SlowLogReset(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(client.Info(t.Context(), "server").Val(), "process_id:")
	pid, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]))
	if err == nil {
		err = syscall.Setpriority(syscall.PRIO_PROCESS, pid, -20)
	}
	if err != nil {
		t.Logf("the server has the priority of all others: %v", err)
	}
}

// ofAMicrosecond is the name of all instant commands together: they need no more, however much there is. What the log has of them is time
// of the machine.
const ofAMicrosecond = "of a microsecond"

var instant = []string{"EXISTS", "HEXISTS", "HGET", "HINCRBY", "HLEN", "HSTRLEN", "LLEN", "LPOP", "TIME", "ZCARD", "ZSCORE", "hstrlen"}

// slowScripts says which script takes more of Redis than it may, "" if none does.
//
// What the log has is time of the clock: a server that waits for a processor in the
// middle of a script has it counted. So the runs of a script in the log are parted
// into five, and it is the median of their maxima that is held to the bound, of which 1 run in 100
// is left out: a script that takes too long for its work does so in most of them. The same median of commands that need no time
// is allowed to it: on a quiet machine that is 0. And no run takes longer than the bound
// and the worst stall of the machine together.
func slowScripts(t *testing.T, server *redistest.Server, stall *harness.StallWatch) (fault string) {
	t.Helper()
	runs := slowRuns(t, server)
	interrupted, enough := medianOfMaxima(runs[ofAMicrosecond])
	if !enough {
		interrupted = 0
	}
	for _, name := range slices.Sorted(maps.Keys(runs)) {
		took := runs[name]
		worst := slices.Max(took)
		median, enough := medianOfMaxima(took)
		t.Logf("%-16s %5d runs took half a millisecond or more, half of these %s at most; median of the maxima of five parts %s, worst %s",
			name, len(took), slices.Sorted(slices.Values(took))[len(took)/2], median, worst)
		switch {
		case name == ofAMicrosecond:
		case enough && median > scriptAtMost+interrupted:
			fault = fmt.Sprintf("%s took %s, want at most %s", name, median, scriptAtMost+interrupted)
		case worst > scriptAtMost+stall.SoFar():
			fault = fmt.Sprintf("%s took %s once, want at most %s", name, worst, scriptAtMost)
		}
	}
	return fault
}

// medianOfMaxima parts times into five and returns the median of the longest of each, 1 in 100 left out; enough says that there are five.
func medianOfMaxima(took []time.Duration) (median time.Duration, enough bool) {
	const parts = 5
	var maxima []time.Duration
	for part := range parts {
		if some := took[len(took)*part/parts : len(took)*(part+1)/parts]; len(some) > 0 {
			maxima = append(maxima, slices.Sorted(slices.Values(some))[len(some)-1-len(some)/100])
		}
	}
	if len(maxima) == 0 {
		return 0, false
	}
	slices.Sort(maxima)
	return maxima[len(maxima)/2], len(maxima) == parts
}

// slowRuns is how long the runs of each script took that the server's log has, the
// latest first.
func slowRuns(t *testing.T, server *redistest.Server) map[string][]time.Duration {
	t.Helper()
	entries, err := server.Client().SlowLogGet(t.Context(), 50_000).Result()
	if err != nil {
		t.Fatal(err)
	}
	runs := map[string][]time.Duration{}
	for _, entry := range entries {
		name := entry.Args[0]
		if len(entry.Args) > 1 {
			if script := lua.ScriptOf(redis.NewCmd(t.Context(), entry.Args[0], entry.Args[1])); script != nil {
				name = script.Name()
			}
		}
		if slices.Contains(instant, name) {
			name = ofAMicrosecond
		}
		runs[name] = append(runs[name], entry.Duration)
	}
	return runs
}
