//go:build soak

package test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/checker"
)

// flowTable gives the bucket flows that jobs name themselves. Keys of the bucket come
// before it.
func flowTable(keys ...string) string {
	return "[buckets.flow]\nkey = \"job\"\n" + strings.Join(keys, "\n") + "\n"
}

// flowNames are names of flows; ids of their jobs begin with them.
func flowNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("f", i)
	}
	return names
}

// postFlow enqueues jobs of one flow.
func (s *system) postFlow(flow string, count int) {
	s.t.Helper()
	s.postAs(flow, count, fmt.Sprintf(`,"flow":%q`, flow))
}

// postFlows enqueues jobs of some flows, one of each in turn.
func (s *system) postFlows(flows []string, each int) {
	s.t.Helper()
	lines := make([]string, 0, len(flows)*each)
	for i := range each {
		for _, flow := range flows {
			lines = append(lines, fmt.Sprintf(`{"id":"%s-%d","payload":{},"flow":%q}`, flow, i, flow))
		}
	}
	s.postLines(lines)
}

// operateFlow runs `dispatcher flow …` on a flow of the bucket.
func (s *system) operateFlow(do, flow string, args ...string) {
	s.t.Helper()
	args = append([]string{"flow", do, bucketName, flow, "--config", s.config}, args...)
	if out, err := exec.CommandContext(s.t.Context(), filepath.Join(programs, "dispatcher"), args...).CombinedOutput(); err != nil {
		s.t.Fatalf("dispatcher %v: %v\n%s", args, err, out)
	}
}

// awaitIdleFlows waits until nothing is left of the flows: no job is counted as there or in
// flight, and none has a turn.
func (s *system) awaitIdleFlows(limit time.Duration) {
	s.t.Helper()
	var counted map[string]string
	var turns int64
	deadline := time.Now().Add(patience * limit) // before that of await, which cannot tell what is left
	await(s.t, 2*limit, "the flows are idle", func() bool {
		var err error
		if counted, err = s.inspector.HGetAll(s.t.Context(), s.key("flows")).Result(); err != nil {
			return false
		}
		for flow, state := range counted {
			if strings.Contains(state, " 0 0 0 .") {
				delete(counted, flow)
			}
		}
		if turns, err = s.inspector.ZCard(s.t.Context(), s.key("due:")).Result(); err != nil {
			return false
		}
		return len(counted) == 0 && turns == 0 && s.unfinished() == 0 || time.Now().After(deadline)
	})
	if len(counted) > 0 || turns > 0 || s.unfinished() != 0 {
		s.t.Fatalf("%s after all was delivered: %d jobs, %d flows with a turn, and counted of flows: %v", patience*limit, s.unfinished(), turns, counted)
	}
}

// scriptCalls is how many scripts Redis has run.
func (s *system) scriptCalls() int {
	s.t.Helper()
	stats, err := s.inspector.Info(s.t.Context(), "commandstats").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	_, after, _ := strings.Cut(stats, "cmdstat_fcall:calls=")
	digits, _, _ := strings.Cut(after, ",")
	calls, err := strconv.Atoi(digits)
	if err != nil {
		s.t.Fatalf("calls of scripts: %v in %q", err, stats)
	}
	return calls
}

// permitsReturned is how many permits the dispatchers that run have given back.
func (s *system) permitsReturned() (sum int) {
	for i := range s.opsOf {
		sum += int(s.metric(i, "tundish_permits_returned_total"))
	}
	return sum
}

// sorted are the arrivals of a prefix, the first one first.
func (a *arrivalLog) sorted(prefix string) []time.Time {
	times := a.of(prefix)
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// all are the arrivals of all, the first one first.
func (a *arrivalLog) all() []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []time.Time
	for _, times := range a.times {
		all = append(all, times...)
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// crowded says which flow has a window with more in it than its rate explains.
func (a *arrivalLog) crowded(stall *stallWatch, flows []string, rate int, spread time.Duration, windows ...time.Duration) string {
	for _, flow := range flows {
		times := a.sorted(flow)
		if fault := stall.crowded(func(window time.Duration) int { return mostOf(times, window) }, rate, spread, windows...); fault != "" {
			return "flow " + flow + ": " + fault
		}
	}
	return ""
}

// mostOfEach is the most that one of the flows has in a window.
func (a *arrivalLog) mostOfEach(flows []string, window time.Duration) (most int) {
	for _, flow := range flows {
		most = max(most, mostOf(a.sorted(flow), window))
	}
	return most
}

// once fails the test where a job was lost, and says if one came twice.
func once(t *testing.T, r checker.Result) (fault string) {
	t.Helper()
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if r.Extra > 0 {
		return fmt.Sprintf("%d jobs came twice without a crash: %v", len(r.Duplicated), r.Duplicated)
	}
	return ""
}
