package producer

import (
	"context"
	"time"

	"github.com/tundish-io/tundish/shaper/internal/store"
)

// WatchSettings looks every 10 s at what is in force of the buckets that the client has used, until ctx ends. It logs what dispatchers
// and operators change, and where the settings of this client differ. Without it the client does so while jobs come.
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

// lookSometimes looks at what is in force beside the calls of the client, if it is time for that.
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
