package producer

import (
	"context"
	"time"

	"github.com/tundish-io/tundish/shaper/internal/store"
)

// WatchSettings reads the effective settings of the buckets that the client has used every 10 s, until ctx ends. It logs what dispatchers and
// operators change, and where the settings of this client differ. Without it the client does so while jobs are enqueued.
func (c *Client) WatchSettings(ctx context.Context) {
	tick := time.NewTicker(store.WatchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.lookAtSettings(ctx)
		}
	}
}

// lookSometimes starts a read of the effective settings in the background, if it is time for that.
func (c *Client) lookSometimes(ctx context.Context, now time.Time) {
	last := c.looked.Load()
	if last == 0 {
		c.looked.CompareAndSwap(0, now.UnixNano()) // the first use of a bucket has just looked
		return
	}
	if now.UnixNano()-last >= int64(store.WatchEvery) && c.looked.CompareAndSwap(last, now.UnixNano()) {
		c.queued.Go(func() { c.lookAtSettings(context.WithoutCancel(ctx)) })
	}
}

func (c *Client) lookAtSettings(ctx context.Context) {
	c.looked.Store(time.Now().UnixNano())
	if c.store.Quiet || c.store.IfClosed() != nil {
		return
	}
	c.store.Watch(ctx)
	c.changing.Lock()
	defer c.changing.Unlock()
	c.setBuckets()
}
