package dispatcher

import (
	"context"
	"slices"

	"github.com/tundish-io/tundish/shaper/internal/store"
)

// watchEvery is how many rounds of the patrol lie between two looks at what is in force: store.WatchEvery.
const watchEvery = 5

// watch looks at what is in force. A drain whose settings another process has replaced that does not own them, or that comes before this
// one, writes them again with its next claim.
func (d *Dispatcher) watch(ctx context.Context, drains []*drain) {
	again := d.store.Watch(ctx)
	for _, drain := range drains {
		if slices.ContainsFunc(again, func(b *store.Bucket) bool { return b == drain.Bucket }) {
			drain.nudge()
		}
	}
}
