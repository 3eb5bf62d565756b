package dispatcher

import (
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

func TestHoldFor(t *testing.T) {
	t.Parallel()
	b := shaper.DefaultBucket()
	b.Adapt.MaxHold, b.Retry.MaxBackoff = time.Hour, time.Minute
	for asked, want := range map[time.Duration]time.Duration{
		-time.Second: 0, 0: 0, 3 * time.Second: 3 * time.Second, shaper.MaxHold: time.Hour,
	} {
		must.Equal(t, holdFor(&b, asked), want, "asked for %s: held for", asked)
	}
	b.Adapt = shaper.Adapt{}
	must.Equal(t, holdFor(&b, shaper.MaxHold), time.Minute, "without a longest hold: held for")
}
