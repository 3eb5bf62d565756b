package telemetry_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLogger(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		level, format string
		json          bool
		lines         int // of a debug, an info, a warn and an error
	}{
		"auto is JSON where nobody looks": {"info", "auto", true, 3},
		"text":                            {"debug", "text", false, 4},
		"json":                            {"warn", "json", true, 2},
		"error":                           {"error", "text", false, 1},
		"unknown means info and auto":     {"loud", "", true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			log := telemetry.NewLogger(test.level, test.format, &out)
			log.Debug("a", "took", 1500*time.Millisecond)
			log.Info("b", "took", 1500*time.Millisecond)
			log.Warn("c", "took", 1500*time.Millisecond)
			log.Error("d", "took", 1500*time.Millisecond)
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if len(lines) != test.lines {
				t.Errorf("%d lines, want %d:\n%s", len(lines), test.lines, out.String())
			}
			for _, line := range lines {
				if json.Valid([]byte(line)) != test.json || !strings.Contains(line, "1.5s") {
					t.Errorf("json is %t, in %s", !test.json, line)
				}
			}
		})
	}
}

func TestLoggerOnAFileThatIsNoTerminal(t *testing.T) {
	t.Parallel()
	file := must.Get(os.Create(t.TempDir() + "/log"))(t)
	defer file.Close()
	telemetry.NewLogger("info", "auto", file).Info("written")
	text, err := os.ReadFile(file.Name())
	if err != nil || !json.Valid(text) {
		t.Errorf("%q, %v: want JSON", text, err)
	}
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	registry := telemetry.NewRegistry()
	for _, name := range []string{"tundish_build_info", "go_goroutines", "process_start_time_seconds"} {
		if n, err := testutil.GatherAndCount(registry, name); n != 1 || err != nil {
			t.Errorf("%d series of %s, %v: want 1", n, name, err)
		}
	}
	problems, err := testutil.GatherAndLint(registry, "tundish_build_info")
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
