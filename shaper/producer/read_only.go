package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/tundish-io/tundish/shaper/internal/store"
)

// use reads the effective settings of a bucket, and returns the bucket with the keys where it lives.
func (c *Client) use(ctx context.Context, b *producerBucket) (*producerBucket, error) {
	const tries = 8 // of a bucket that changes its place meanwhile
	err := c.store.Configure(ctx, b.Bucket)
	for i := 0; i < tries && errors.Is(err, store.ErrAdopted); i++ {
		c.changing.Lock()
		c.setBuckets()
		c.changing.Unlock()
		if b, err = c.bucket(b.Name); err == nil {
			err = c.store.Configure(ctx, b.Bucket)
		}
	}
	return b, err
}

// readSettings reads the effective settings of a bucket before its first job: they say what names flows, and how large a payload may be. If Redis does not
// respond, the settings of this client decide, and the call then fails like any other.
func (c *Client) readSettings(ctx context.Context, bucket string) error {
	b, err := c.bucket(bucket)
	if err != nil || b.Configured.Load() {
		return nil //nolint:nilerr // prepare reports it, of the job
	}
	// A caller that gives up is no sign that Redis fails.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.store.Timeout)
	met := make(chan error, 1)
	c.queued.Go(func() {
		defer cancel()
		met <- b.breaker.Run(func() error {
			_, err := c.use(whole, b)
			return err
		})
	})
	select {
	case err = <-met:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("enqueue into bucket %q: %w", bucket, err)
	}
	return nil
}
