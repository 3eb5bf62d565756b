package cli

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/operator"
)

// A cause has the command that helps, and where jobs wait for another attempt the one to give next.
func TestCausesHaveTheirCommands(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	rows{w: &out}.blocked("hooks", &opsview.Verdict{Blocked: []opsview.Blocked{
		{Code: operator.WhyFailing, Jobs: 2, Flows: 1, Action: "job list hooks --failing", Then: "job retry hooks --all"}, {Code: operator.WhyPaused, Jobs: 1, Action: "bucket resume hooks"},
	}})
	const want = "dispatcher job list hooks --failing; once that is repaired: dispatcher job retry hooks --all\n"
	if !strings.Contains(out.String(), want) || !strings.HasSuffix(out.String(), "dispatcher bucket resume hooks\n") {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
