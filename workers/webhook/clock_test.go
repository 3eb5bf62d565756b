package webhook

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// TestTimestampIsOfTheAttempt: the time of a signature is that of the dispatchers' common clock, of a request and of a batch.
func TestTimestampIsOfTheAttempt(t *testing.T) {
	t.Parallel()
	url, last := receiver(t)
	w := newWorker(t, func(c *Config) { c.URL, c.Secrets = url, []string{secretA} })
	for _, off := range []time.Duration{6 * time.Minute, -6 * time.Minute} {
		attempt := newAttempt("")
		attempt.Clock(func() time.Time { return time.Now().Add(off) })
		want(t, w.Deliver(t.Context(), attempt), shaper.ResultDone, "")
		wantTime(t, last().header.Get("Webhook-Timestamp"), off)
		w.DeliverBatch(t.Context(), &shaper.Batch{ID: "batch_1", Attempts: []*shaper.Attempt{attempt}})
		wantTime(t, last().header.Get("Webhook-Timestamp"), off)
	}
}

func wantTime(t *testing.T, text string, off time.Duration) {
	t.Helper()
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || time.Until(time.Unix(seconds, 0).Add(-off)).Abs() > 30*time.Second {
		t.Errorf("webhook-timestamp %q, want now and %s", text, off)
	}
}

// TestSignaturesOfAWrongClock has the library of Standard Webhooks for JavaScript check deliveries of a dispatcher whose clock is six minutes off,
// while that of Redis is right: it takes them, and those signed by the wrong clock it refuses.
func TestSignaturesOfAWrongClock(t *testing.T) {
	t.Parallel()
	url, last := receiver(t)
	w := newWorker(t, func(c *Config) { c.URL, c.Secrets = url, []string{secretA} })
	var deliveries []toVerify
	for _, off := range []time.Duration{0, 6 * time.Minute, -6 * time.Minute} {
		attempt := newAttempt("")
		attempt.Clock(func() time.Time { return time.Now().Add(off) })
		want(t, w.Deliver(t.Context(), attempt), shaper.ResultDone, "")
		got := last()
		headers := map[string]string{}
		for name := range got.header {
			headers[strings.ToLower(name)] = got.header.Get(name)
		}
		deliveries = append(deliveries, toVerify{secretA, headers, string(got.body)})
	}
	if verified := verifiedByOthers(t, deliveries); !verified[0] || verified[1] || verified[2] {
		t.Errorf("accepted: %t, want only the one of the right time", verified)
	}
}
