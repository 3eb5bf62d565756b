//go:build soak

package soak

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestCapacity prints what a job costs Redis, the producer and the dispatchers, by payload, requests and flows: a table of docs/benchmarks.md. It judges
// nothing but that all jobs arrive: its numbers are of the machine that runs it.
func TestCapacity(t *testing.T) {
	const seconds = 10
	hundred := func(more ...string) []string { return append([]string{"--batch", "100", "--size"}, more...) }
	flows := "[buckets.flow]\nkey = \"job\""
	t.Log("| jobs | rate, of which | Redis, in | Redis, out | producer | dispatchers | memory | file | connections |")
	for _, row := range []struct {
		name, bucket string
		rate         int
		load         []string
	}{
		{"200 bytes", "", 200, hundred("200")},
		{"200 bytes", "", 1000, hundred("200")},
		{"200 bytes", "", 3000, hundred("200")},
		{"200 bytes, one a request", "", 1000, []string{"--size", "200"}},
		{"2,000 bytes", "", 1000, hundred("2000")},
		{"20,000 bytes", "", 1000, hundred("20000")},
		{"200 bytes, 1,000 flows", flows, 1000, hundred("200", "--flow", "f", "--flows", "1000")},
		{"200 bytes, 10,000 flows", flows, 1000, hundred("200", "--flow", "f", "--flows", "10000")},
		{"200 bytes, results kept", "result_retention = \"1h\"\nmax_result = 0", 1000, hundred("200")},
	} {
		t.Run(fmt.Sprintf("%s at %d/s", row.name, row.rate), func(t *testing.T) {
			jobs := row.rate * seconds
			s := start(t, redistest.Start(t, "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"), harness.Plan{Rate: row.rate, Dispatchers: 2, Bucket: row.bucket})
			s.Operate("pause", harness.BucketName, "--reason", "until all are in")
			empty, file := s.redisInfo("memory", "used_memory"), s.redisInfo("persistence", "aof_current_size")
			in, produced := s.redisProcessor(), processorOf(t, s.Producer)
			args := append([]string{"load", harness.BucketName, "--server", s.API, "--jobs", strconv.Itoa(jobs), "--wait", "--config", s.Config}, row.load...)
			if out, err := exec.CommandContext(t.Context(), filepath.Join(harness.Programs, "producer"), args...).CombinedOutput(); err != nil {
				t.Fatalf("producer %v: %v\n%s", args, err, out)
			}
			in, produced = s.redisProcessor()-in, processorOf(t, s.Producer)-produced
			waiting := s.redisInfo("memory", "used_memory") - empty

			out, dispatched, connections := s.redisProcessor(), processorOf(t, s.Dispatchers...), 0.
			s.Operate("resume", harness.BucketName)
			harness.Await(t, 60*time.Second, "all are delivered", func() bool {
				delivered := s.History.Check().Delivered
				if delivered > jobs/2 && connections == 0 {
					connections = s.redisInfo("clients", "connected_clients") - 1
				}
				return delivered >= jobs && s.Unfinished() == 0
			})
			out, dispatched = s.redisProcessor()-out, processorOf(t, s.Dispatchers...)-dispatched
			each := func(d time.Duration) string { return fmt.Sprintf("%d µs", int(d.Microseconds())/jobs) }
			written := s.redisInfo("persistence", "aof_current_size") - file
			t.Logf("| %s | %d/s, %.0f %% | %s | %s | %s | %s | %.0f bytes | %.0f bytes | %.0f |", row.name, row.rate, 100*s.History.Check().Rate/float64(row.rate), each(in), each(out), each(produced), each(dispatched),
				waiting/float64(jobs), written/float64(jobs), connections)
		})
	}
}

// redisInfo is a number of a section of INFO.
func (s *system) redisInfo(section, name string) float64 {
	s.T.Helper()
	said, err := s.Inspector.Info(s.T.Context(), section).Result()
	if err != nil {
		s.T.Fatal(err)
	}
	_, rest, found := strings.Cut(said, "\r\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	number, err := strconv.ParseFloat(value, 64)
	if err != nil || !found {
		s.T.Fatalf("INFO tells no number %s: %v", name, err)
	}
	return number
}

// redisProcessor is the time of a processor that Redis has used.
func (s *system) redisProcessor() time.Duration {
	s.T.Helper()
	return time.Duration((s.redisInfo("cpu", "used_cpu_user") + s.redisInfo("cpu", "used_cpu_sys")) * float64(time.Second))
}

// processorOf is the time of a processor that programs have used: proc_pid_stat(5), fields 14 and 15, in hundredths of a second.
func processorOf(t *testing.T, running ...*harness.Process) (sum time.Duration) {
	t.Helper()
	for _, p := range running {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		for _, field := range fields[11:13] {
			ticks, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum
}
