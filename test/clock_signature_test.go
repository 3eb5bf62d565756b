package test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/npmtest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/test/harness"
	"github.com/tundish-io/tundish/workers/webhook"
)

// signed is a delivery as the receiver got it.
type signed struct {
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// TestSignaturesGoByTheClockOfRedis has a dispatcher whose clock is six minutes off, to either side, deliver to a receiver whose clock is that of
// Redis. The library of Standard Webhooks for JavaScript takes the signature. By the clock of the dispatcher it would not.
func TestSignaturesGoByTheClockOfRedis(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	for _, off := range []time.Duration{6 * time.Minute, -6 * time.Minute} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			server, clock := harness.StartMovable(t)
			clock.Set(off)
			got := make(chan signed, 1)
			receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				s := signed{Secret: secret, Headers: map[string]string{}, Body: string(body)}
				for name := range r.Header {
					s.Headers[strings.ToLower(name)] = r.Header.Get(name)
				}
				got <- s
			}))
			t.Cleanup(receiver.Close)
			deliverOne(t, server.Addr(), webhook.Config{URL: receiver.URL, Secrets: []string{secret}, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
			var delivery signed
			select {
			case delivery = <-got:
			case <-time.After(30 * time.Second):
				t.Fatal("nothing was delivered")
			}
			now, err := server.Client().Time(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			seconds, err := strconv.ParseInt(delivery.Headers["webhook-timestamp"], 10, 64)
			if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > 20*time.Second {
				t.Errorf("webhook-timestamp %d, Redis has %d: %v", seconds, now.Unix(), err)
			}
			if !acceptedAt(t, off, delivery) {
				t.Error("the library refuses the signature by the clock of Redis")
			}
			if acceptedAt(t, 0, delivery) {
				t.Error("the library takes the signature by the clock of the dispatcher")
			}
		})
	}
}

// deliverOne enqueues a job and has a dispatcher deliver it, until the test ends.
func deliverOne(t *testing.T, addr string, config webhook.Config) {
	t.Helper()
	b := shaper.DefaultBucket()
	b.Name, b.Rate = "b", admission.Rate{Count: 10, Per: time.Second, Unit: admission.UnitRequests}
	base := webhook.DefaultConfig()
	base.URL, base.Secrets, base.AllowNetworks = config.URL, config.Secrets, config.AllowNetworks
	worker, err := webhook.New(base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(worker.Close)
	conn, err := redisconn.Connect("redis://"+addr, redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	all := []shaper.Bucket{b}
	d, err := dispatcher.New(dispatcher.Config{Redis: conn, Buckets: all, Workers: map[string]shaper.Worker{"b": worker}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	client, err := producer.New(producer.Config{Redis: conn, Buckets: all})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if receipts, err := client.Enqueue(t.Context(), shaper.Job{Bucket: "b", Payload: []byte(`{"order":17}`)}); err != nil || receipts[0].Refusal != nil {
		t.Fatalf("%+v, %v", receipts, err)
	}
}

// acceptedAt reports whether the library of Standard Webhooks accepts a delivery on a machine whose clock is off.
func acceptedAt(t *testing.T, off time.Duration, delivery signed) bool {
	t.Helper()
	node := npmtest.Clients(t)
	library, clock := harness.BuildClock(t)
	clock.Set(off)
	text, err := json.Marshal([]signed{delivery})
	if err != nil {
		t.Fatal(err)
	}
	out := node.Output(t, filepath.Join("..", "workers", "webhook", "testdata", "verify.mjs"),
		"DELIVERIES="+string(text), "LD_PRELOAD="+library, "CLOCK_OFFSET="+clock.File.Name())
	var accepted []bool
	if err := json.Unmarshal(out, &accepted); err != nil || len(accepted) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	return accepted[0]
}
