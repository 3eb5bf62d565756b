//go:build soak

package soak

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/test/harness"
)

// groupTable puts the flows of a bucket into groups that jobs name themselves.
func groupTable(keys ...string) string {
	return "[buckets.group]\nkey = \"job\"\n" + strings.Join(keys, "\n") + "\n"
}

// inGroup are count jobs, as lines of JSON, of a flow of a group, whose ids have numbers from first on.
// Their ids begin with the name of the flow, which is that of its group, an underscore, and a number.
func inGroup(group string, flow, first, count int) []string {
	lines := make([]string, count)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"id":"%s_%d-%d","payload":{},"group":%q,"flow":"%[1]s_%[2]d"}`, group, flow, first+i, group)
	}
	return lines
}

// inTurn takes one of each of the lists after the other, until all are used up.
func inTurn(lists ...[]string) (all []string) {
	for i, more := 0, true; more; i++ {
		more = false
		for _, list := range lists {
			if i < len(list) {
				all, more = append(all, list[i]), true
			}
		}
	}
	return all
}

// mostAhead is who of all is ahead the most.
func mostAhead(all map[string][]time.Time, perSecond float64) (who string, worst time.Duration) {
	for name, times := range all {
		if by := harness.Ahead(times, perSecond); by >= worst {
			who, worst = name, by
		}
	}
	return who, worst
}

// between are the arrivals from one instant to another.
func between(times []time.Time, from, to time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(times), func(at time.Time) bool { return at.Before(from) || at.After(to) })
}

// paceOf is the mean rate of arrivals, 0 of less than two.
func paceOf(times []time.Time) float64 {
	if len(times) < 2 {
		return 0
	}
	return float64(len(times)-1) / times[len(times)-1].Sub(times[0]).Seconds()
}

// purgeGroup drops what waits of a group and returns how many jobs that were.
func (s *system) purgeGroup(group string) int {
	s.T.Helper()
	args := []string{"group", "purge", harness.BucketName, group, "--yes", "--json", "--config", s.Config}
	out, err := exec.CommandContext(s.T.Context(), filepath.Join(harness.Programs, "dispatcher"), args...).CombinedOutput()
	var purged struct{ Purged int }
	if err != nil || json.Unmarshal(out, &purged) != nil {
		s.T.Fatalf("dispatcher %v: %v\n%s", args, err, out)
	}
	return purged.Purged
}

// settledAs waits until nothing is left of the groups and their flows, and holds that every job was
// delivered once or purged: none is lost, whatever was dropped. It says if one came twice. A group that is held
// back stays in the turn queue until it may go, also without jobs.
func (s *system) settledAs(purged int, heldBack ...string) (fault string) {
	s.T.Helper()
	harness.Await(s.T, 10*time.Second, "everything is settled", func() bool { return s.Unfinished() == 0 })
	s.awaitIdleFlows(10 * time.Second)
	for _, hash := range []string{"groups", "flows"} {
		counted, err := s.Inspector.HGetAll(s.T.Context(), s.Key(hash)).Result()
		if err != nil {
			s.T.Fatal(err)
		}
		for name, state := range counted {
			if !strings.Contains(state, " 0 0 0 .") {
				s.T.Errorf("%s: %s is counted as %q after the end", hash, name, state)
			}
		}
	}
	harness.Await(s.T, 10*time.Second, "no group has a turn", func() bool { // one that was purged has its turn until a claim sees that it is empty
		turns, err := s.Inspector.ZRange(s.T.Context(), s.Key("due_groups"), 0, -1).Result()
		return err == nil && !slices.ContainsFunc(turns, func(group string) bool { return !slices.Contains(heldBack, group) })
	})
	r := s.History.Check()
	s.T.Logf("%d admitted, %d delivered, %d purged; most in 1s %d, most in 100ms %d", r.Admitted, r.Delivered, purged, r.MostIn(time.Second), r.MostIn(100*time.Millisecond))
	if len(r.Unexpected) > 0 || r.Delivered-r.Extra+purged != r.Admitted {
		s.T.Fatalf("%d admitted, %d delivered, %d of them again, %d purged, %d that nobody sent", r.Admitted, r.Delivered, r.Extra, purged, len(r.Unexpected))
	}
	if r.Extra > 0 {
		return fmt.Sprintf("%d jobs came twice without a crash: %v", len(r.Duplicated), r.Duplicated)
	}
	return ""
}

// TestAhead: what the whole-system tests of groups judge by finds a window that is too full, of any length.
func TestAhead(t *testing.T) {
	at := func(millis ...int) []time.Time {
		times := make([]time.Time, len(millis))
		for i, ms := range millis {
			times[i] = time.UnixMilli(int64(ms))
		}
		return times
	}
	for name, c := range map[string]struct {
		times []time.Time
		want  time.Duration
	}{
		"even":                     {at(0, 100, 200, 300), 0},
		"slow":                     {at(0, 150, 900), 0},
		"one late":                 {at(0, 100, 230, 300), 30 * time.Millisecond},
		"a burst behind a pause":   {at(0, 5000, 5010, 5020), 180 * time.Millisecond},
		"a little too fast always": {at(0, 90, 180, 270, 360), 40 * time.Millisecond},
		"nothing":                  {nil, 0},
	} {
		if got := harness.Ahead(c.times, 10).Round(time.Millisecond); got != c.want {
			t.Errorf("%s: ahead by %s, want %s", name, got, c.want)
		}
	}
}
