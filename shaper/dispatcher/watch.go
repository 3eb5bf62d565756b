package dispatcher

import (
	"context"

	"github.com/tundish-io/tundish/shaper/internal/store"
)

// watchAll is how many looks at what is in force are apart of which each is at all buckets. The others are at buckets of which a wake-up came:
// whoever changes what scripts obey sends one, but for a pause, which is only logged here.
const watchAll = 3

// watchSettings looks every 10 s at what is in force of buckets that may have changed, and every 30 s of all, until ctx ends. It has
// timetables renewed that end.
func (d *Dispatcher) watchSettings(ctx context.Context) {
	wait := patrolInterval
	for round := 0; sleep(ctx, wait); round++ {
		wait = store.WatchEvery
		loops := *d.loops.Load()
		d.watch(ctx, loops, round%watchAll == 0 || !d.listens.Load())
		d.renewTimetables(ctx, loops)
	}
}

// watch looks at what is in force. A loop whose settings another process has replaced that does not own them, or that comes before this
// one, writes them again with its next claim.
func (d *Dispatcher) watch(ctx context.Context, loops []*bucketLoop, all bool) {
	byBucket := make(map[*store.Bucket]*bucketLoop, len(loops))
	for _, loop := range loops {
		byBucket[loop.Bucket] = loop
	}
	again := d.store.WatchSome(ctx, func(b *store.Bucket) bool {
		loop := byBucket[b]
		return loop == nil || loop.news.Swap(false) || all
	})
	for _, b := range again {
		if loop := byBucket[b]; loop != nil {
			loop.nudge()
		}
	}
}
