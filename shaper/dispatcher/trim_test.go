package dispatcher

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// The log warns before a bucket is full of dead letters, and once each time.
func TestDeadLettersAreWarnedOf(t *testing.T) {
	t.Parallel()
	s := newSteppedBucket(t, rig.NewWaiting(), rig.Bucket("b", 10))
	d := s.bucketLoop()
	var text bytes.Buffer
	d.log = slog.New(slog.NewTextHandler(&text, nil))
	for _, step := range []struct {
		there, bytes int64
		drops        bool
		want         string
	}{
		{7, 0, false, ""}, {8, 0, false, "has 80 %"}, {7, 0, false, ""}, {9, 0, false, ""}, {10, 0, false, "refuses jobs: redrive"},
		{9, 0, false, ""}, {11, 0, false, ""}, {6, 0, false, "has room"}, {0, 800, true, "above them the oldest are dropped"},
		{0, 1000, true, "the oldest are dropped"}, {0, 0, true, "has room"},
	} {
		text.Reset()
		d.patrol.warnOfDead(t.Context(), step.there, step.bytes, 10, 1000, step.drops)
		if got := text.String(); (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("%+v: %q", step, got)
		}
	}
	d.patrol.warnOfDead(t.Context(), 1_000_000, 1_000_000, 0, 0, false) // without bounds
	must.Equal(t, d.patrol.deadFull, deadRoom, "full without a bound")
}

// A dispatcher drops dead letters whose retention has ended, and those above the bound within seconds of their death.
func TestDispatcherTrimsDeadLetters(t *testing.T) {
	for name, change := range map[string]func(*shaper.Bucket){
		"retention":       func(b *shaper.Bucket) { b.DeadRetention = time.Minute },
		"drop the oldest": func(b *shaper.Bucket) { b.DeadCapacity, b.WhenDeadFull = 3, shaper.DropOldestDead },
		"neither":         func(*shaper.Bucket) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mini := miniredis.NewMiniRedis()
				t.Cleanup(mini.Close)
				conn := redis.NewClient(&redis.Options{
					Dialer:                   func(context.Context, string, string) (net.Conn, error) { return mini.Dial() },
					MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
				})
				t.Cleanup(func() { _ = conn.Close() })
				b := rig.Bucket("b", 1000)
				change(&b)
				client := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: []shaper.Bucket{b}}))(t)
				d := must.Get(New(Config{Redis: conn, Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Dead("http_410", "gone") }))}))(t)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- d.Run(ctx) }()
				for i := range 10 {
					must.Get(client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: fmt.Sprint("j", i), Payload: []byte("x")}))(t)
				}
				after := func(wait time.Duration) operator.BucketInfo {
					<-time.After(wait) // of the bubble
					infos := must.Get(client.Op.BucketInfos(t.Context()))(t)
					return infos[0]
				}
				soon, later := after(10*time.Second), after(2*time.Minute)
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				got := fmt.Sprint(soon.Dead, later.Dead, later.DeadDroppedOld, later.DeadDroppedExtra)
				if want := map[string]string{"retention": "10 0 10 0", "drop the oldest": "3 3 0 7", "neither": "10 10 0 0"}[name]; got != want {
					t.Errorf("%s, want %s", got, want)
				}
			})
		})
	}
}
