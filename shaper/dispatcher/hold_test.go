package dispatcher

import (
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

func TestHoldFor(t *testing.T) {
	t.Parallel()
	b := shaper.DefaultBucket()
	b.Adapt.MaxHold, b.Retry.MaxBackoff = time.Hour, time.Minute
	for asked, want := range map[time.Duration]time.Duration{
		-time.Second: 0, 0: 0, 3 * time.Second: 3 * time.Second, shaper.MaxHold: time.Hour,
	} {
		if got := holdFor(&b, asked); got != want {
			t.Errorf("asked for %s: held for %s, want %s", asked, got, want)
		}
	}
	b.Adapt = shaper.Adapt{}
	if got := holdFor(&b, shaper.MaxHold); got != time.Minute {
		t.Errorf("without a longest hold: held for %s", got)
	}
}
