package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/tundish-io/tundish/shaper/internal/store"
)

// use has the client obey the settings in force of a bucket, and returns the bucket at the keys where it lives.
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

// meet reads the settings in force of a bucket before its first job is named: what names flows, and how large a payload may be. While
// Redis does not answer, the settings of this client decide, and the call fails then as any other.
func (c *Client) meet(ctx context.Context, bucket string) error {
	b, err := c.bucket(bucket)
	if err != nil || b.Configured.Load() {
		return nil //nolint:nilerr // prepare reports it, of the job
	}
	// A caller that gives up says nothing of Redis.
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
