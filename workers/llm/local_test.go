package llm

import (
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// A call that this host could not send ends its job, is charged nothing, and says nothing of the API.
func TestUnsent(t *testing.T) {
	t.Parallel()
	got := unsent(shaper.LocalFault("local_resolver", "i/o timeout", time.Second))
	if got.Result != shaper.ResultDropped || got.Reason != "local_resolver" || got.Used == nil || len(got.Used) > 0 || got.Signal != shaper.SignalNone {
		t.Errorf("%+v", got)
	}
}
