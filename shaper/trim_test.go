package shaper

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
)

// With as many dead letters as there may be, a bucket refuses jobs, says what to do and, as far as it is known, until when.
func TestDeadFull(t *testing.T) {
	t.Parallel()
	b := testBucket("b", 10)
	b.DeadCapacity, b.DeadBytes = 2, 0
	s := newSteppedBucket(t, newWaiting(), b)
	s.enqueue("a", "b", "in")
	settleHead(t, s.redis, "a", "3")
	s.step(time.Minute)
	settleHead(t, s.redis, "b", "3")
	refusal := func(b Bucket) *Refusal {
		t.Helper()
		if err := s.client.Reconfigure([]Bucket{b}); err != nil {
			t.Fatal(err)
		}
		receipts, err := s.client.Enqueue(t.Context(), Job{Bucket: "b", Payload: []byte("{}")})
		if err != nil || receipts[0].Refusal == nil || receipts[0].Refusal.Reason != ReasonDeadFull {
			t.Fatalf("%+v, %v", receipts, err)
		}
		return receipts[0].Refusal
	}
	forEver, kept, bytesBound := b, b, b
	kept.DeadRetention = time.Hour
	bytesBound.DeadCapacity, bytesBound.DeadBytes = 0, 10
	info, err := s.client.op.BucketInfos(t.Context())
	if err != nil || info[0].Dead != 2 || info[0].DeadCapacity != 2 || info[0].DeadMaxBytes != 0 {
		t.Fatalf("%+v, %v", info, err)
	}
	for _, test := range []struct {
		b      Bucket
		wait   time.Duration
		detail string
	}{
		{forEver, time.Minute, `bucket "b" takes no jobs, as it has too many dead letters (2/2): redrive or drop some, or raise dead_capacity; ` +
			`it is not known when there is room, so retry in 1m0s to see`},
		{kept, 59*time.Minute + 15*time.Second, `bucket "b" takes no jobs, as it has too many dead letters (2/2): redrive or drop some, or raise dead_capacity; ` +
			`retry in 59m15s, when dead_retention has ended for enough of them`},
		{bytesBound, time.Minute, fmt.Sprintf(`bucket "b" takes no jobs, as it has too many bytes of dead letters (%d/10): redrive or drop some, or raise dead_bytes; `+
			`it is not known when there is room, so retry in 1m0s to see`, info[0].DeadBytes)},
	} {
		if got := refusal(test.b); got.Detail != test.detail || got.RetryAfter != test.wait {
			t.Errorf("%s: %s", got.RetryAfter, got.Detail)
		}
	}
	// What is in already is no new job, and may still die.
	if receipts, err := s.client.Enqueue(t.Context(), Job{Bucket: "b", ID: "in", Payload: []byte("{}")}); err != nil || !receipts[0].Duplicate {
		t.Errorf("%+v, %v", receipts, err)
	}
	settleHead(t, s.redis, "in", "3")
	if redriven, err := s.client.op.Redrive(t.Context(), "b", "a", "b"); err != nil || redriven.Moved != 2 {
		t.Errorf("%+v, %v", redriven, err)
	}
	if err := s.client.Reconfigure([]Bucket{b}); err != nil {
		t.Fatal(err)
	}
	if receipts, err := s.client.Enqueue(t.Context(), Job{Bucket: "b", Payload: []byte("{}")}); err != nil || receipts[0].Refusal != nil {
		t.Errorf("with room again: %+v, %v", receipts, err)
	}
}

// The log warns before a bucket is full of dead letters, and once each time.
func TestDeadLettersAreWarnedOf(t *testing.T) {
	t.Parallel()
	s := newSteppedBucket(t, newWaiting(), testBucket("b", 10))
	d := s.drain()
	var text bytes.Buffer
	d.log = slog.New(slog.NewTextHandler(&text, nil))
	w := &sweepWatch{}
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
		d.warnOfDead(t.Context(), w, step.there, step.bytes, 10, 1000, step.drops)
		if got := text.String(); (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("%+v: %q", step, got)
		}
	}
	d.warnOfDead(t.Context(), w, 1_000_000, 1_000_000, 0, 0, false) // without bounds
	if w.deadFull != deadRoom {
		t.Error("full without a bound")
	}
}

// A dispatcher drops dead letters whose retention has ended, and those above the bound within seconds of their death.
func TestDispatcherTrimsDeadLetters(t *testing.T) {
	for name, change := range map[string]func(*Bucket){
		"retention":       func(b *Bucket) { b.DeadRetention = time.Minute },
		"drop the oldest": func(b *Bucket) { b.DeadCapacity, b.WhenDeadFull = 3, DropOldestDead },
		"neither":         func(*Bucket) {},
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
				b := testBucket("b", 1000)
				change(&b)
				client, err := newActors(ClientConfig{Redis: conn, Buckets: []Bucket{b}})
				if err != nil {
					t.Fatal(err)
				}
				d, err := NewDispatcher(DispatcherConfig{Redis: conn, Buckets: []Bucket{b}, Workers: map[string]Worker{
					"test": WorkerFunc(func(context.Context, *Attempt) Outcome { return Dead("http_410", "gone") }),
				}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- d.Run(ctx) }()
				for i := range 10 {
					if _, err := client.Enqueue(t.Context(), Job{Bucket: "b", ID: fmt.Sprint("j", i), Payload: []byte("x")}); err != nil {
						t.Fatal(err)
					}
				}
				after := func(wait time.Duration) BucketInfo {
					<-time.After(wait) // of the bubble
					infos, err := client.op.BucketInfos(t.Context())
					if err != nil {
						t.Fatal(err)
					}
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
