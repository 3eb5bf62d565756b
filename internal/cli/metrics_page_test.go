package cli_test

import (
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// exposed are the names of metrics of a running program, with their types.
func exposed(t *testing.T, addr string) map[string]string {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/metrics", http.NoBody))(t)
	resp := must.Get(http.DefaultClient.Do(req))(t) //nolint:bodyclose // closed below
	defer resp.Body.Close()
	found := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (tundish_\w+) (\w+)$`).FindAllStringSubmatch(string(must.Get(io.ReadAll(resp.Body))(t)), -1) {
		found[line[1]] = line[2]
	}
	return found
}

// wantDocumented compares the metrics of running programs with docs/metrics.md: each is there, with its type.
func wantDocumented(t *testing.T, addrs ...string) {
	t.Helper()
	listed := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(tundish_\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(must.Get(os.ReadFile("../../docs/metrics.md"))(t)), -1) {
		listed[row[1]] = row[2]
	}
	seen := map[string]string{}
	for _, addr := range addrs {
		maps.Copy(seen, exposed(t, addr))
	}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if listed[name] != seen[name] {
			t.Errorf("%s is a %s, and docs/metrics.md has it as %q", name, seen[name], listed[name])
		}
	}
	if len(seen) < 50 {
		t.Errorf("the programs expose %d metrics: %s", len(seen), strings.Join(slices.Sorted(maps.Keys(seen)), " "))
	}
}
