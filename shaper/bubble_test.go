package shaper

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// What Enqueue keeps from one call for the next may be used in another bubble: those
// who test their programs with testing/synctest have one each.
func TestEnqueueInBubbles(t *testing.T) {
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			mini := miniredis.NewMiniRedis()
			t.Cleanup(mini.Close)
			conn := redis.NewClient(&redis.Options{
				Dialer:                   func(context.Context, string, string) (net.Conn, error) { return mini.Dial() },
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			})
			t.Cleanup(func() { _ = conn.Close() })
			c, err := newActors(ClientConfig{Redis: conn, Buckets: []Bucket{testBucket("b", 10)}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Enqueue(t.Context(), Job{Bucket: "b", Payload: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		})
	}
}
