package codec_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// The bounds of a bucket whose settings are older than results stand in results.lua too.
func TestDefaultResultSettingsInLua(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile("../../../lua/lib/results.lua"))(t)
	d := shaper.DefaultResultSettings()
	for name, want := range map[string]int64{"MAX": d.Max, "BYTES": d.Bytes} {
		if line := fmt.Sprintf("\n  %s = %d,", name, want); !strings.Contains(string(text), line) {
			t.Errorf("results.lua does not say %q", line)
		}
	}
}
