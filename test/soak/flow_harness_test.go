//go:build soak

package soak

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/test/harness"
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
	s.T.Helper()
	s.PostAs(flow, count, fmt.Sprintf(`,"flow":%q`, flow))
}

// postFlows enqueues jobs of some flows, one of each in turn.
func (s *system) postFlows(flows []string, each int) {
	s.T.Helper()
	lines := make([]string, 0, len(flows)*each)
	for i := range each {
		for _, flow := range flows {
			lines = append(lines, fmt.Sprintf(`{"id":"%s-%d","payload":{},"flow":%q}`, flow, i, flow))
		}
	}
	s.PostLines(lines)
}

// operateFlow runs `dispatcher flow …` on a flow of the bucket.
func (s *system) operateFlow(do, flow string, args ...string) {
	s.T.Helper()
	args = append([]string{"flow", do, harness.BucketName, flow, "--config", s.Config}, args...)
	if out, err := exec.CommandContext(s.T.Context(), filepath.Join(harness.Programs, "dispatcher"), args...).CombinedOutput(); err != nil {
		s.T.Fatalf("dispatcher %v: %v\n%s", args, err, out)
	}
}

// awaitIdleFlows waits until nothing is left of the flows: no job is counted as there or in
// flight, and none has a turn.
func (s *system) awaitIdleFlows(limit time.Duration) {
	s.T.Helper()
	var counted map[string]string
	var turns int64
	deadline := time.Now().Add(harness.Patience * limit) // before that of await, which cannot tell what is left
	harness.Await(s.T, 2*limit, "the flows are idle", func() bool {
		var err error
		if counted, err = s.Inspector.HGetAll(s.T.Context(), s.Key("flows")).Result(); err != nil {
			return false
		}
		for flow, state := range counted {
			if strings.Contains(state, " 0 0 0 .") {
				delete(counted, flow)
			}
		}
		if turns, err = s.Inspector.ZCard(s.T.Context(), s.Key("due:")).Result(); err != nil {
			return false
		}
		return len(counted) == 0 && turns == 0 && s.Unfinished() == 0 || time.Now().After(deadline)
	})
	if len(counted) > 0 || turns > 0 || s.Unfinished() != 0 {
		s.T.Fatalf("%s after all was delivered: %d jobs, %d flows with a turn, and counted of flows: %v", harness.Patience*limit, s.Unfinished(), turns, counted)
	}
}

// scriptCalls is how many scripts Redis has run.
func (s *system) scriptCalls() int {
	s.T.Helper()
	stats, err := s.Inspector.Info(s.T.Context(), "commandstats").Result()
	if err != nil {
		s.T.Fatal(err)
	}
	_, after, _ := strings.Cut(stats, "cmdstat_fcall:calls=")
	digits, _, _ := strings.Cut(after, ",")
	calls, err := strconv.Atoi(digits)
	if err != nil {
		s.T.Fatalf("calls of scripts: %v in %q", err, stats)
	}
	return calls
}

// permitsReturned is how many permits the dispatchers that run have given back.
func (s *system) permitsReturned() (sum int) {
	for i := range s.OpsOf {
		sum += int(s.Metric(i, "tundish_permits_returned_total"))
	}
	return sum
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
