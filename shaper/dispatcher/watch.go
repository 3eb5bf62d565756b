package dispatcher

import (
	"context"
	"slices"

	"github.com/tundish-io/tundish/shaper/internal/store"
)

// watchSettings looks every 10 s at what is in force, until ctx ends, and has timetables renewed that end.
func (d *Dispatcher) watchSettings(ctx context.Context) {
	for wait := patrolInterval; sleep(ctx, wait); wait = store.WatchEvery {
		drains := *d.drains.Load()
		d.watch(ctx, drains)
		d.renewTimetables(ctx, drains)
	}
}

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
