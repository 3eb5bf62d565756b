package operator_test

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// What JSON would alter is refused of a flow, too.
func TestFlowTextThatIsNotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	var patch operator.FlowPatch
	if err := patch.Put(shaper.FlowURL, "https://example.com/\xe9"); err == nil || !strings.HasPrefix(err.Error(), "url: ") {
		t.Errorf("the URL of a flow: %v", err)
	}
	if err := patch.PutHeaders(map[string]string{"X-A": "caf\xe9"}); err == nil || !strings.HasPrefix(err.Error(), "headers: ") {
		t.Errorf("the headers of a flow: %v", err)
	}
	if !patch.IsZero() {
		t.Error("the patch changes something")
	}
}
