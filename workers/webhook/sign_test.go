package webhook

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// sign is the signature by one secret.
func sign(t *testing.T, secret, id string, at time.Time, body []byte) string {
	t.Helper()
	s := must.Get(newSigner(secret))(t)
	text := must.Get(signature([]signer{s}, id, at, body))(t)
	return text
}

// The vector of the Standard Webhooks specification.
func TestSign(t *testing.T) {
	t.Parallel()
	got := sign(t, secretA, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
}

func TestCheckSecret(t *testing.T) {
	t.Parallel()
	for secret, valid := range map[string]bool{
		secretA: true, secretB: true, "whsec_": false, "": false, secretA[6:]: false, secretA + "=": false, secretA + strings.Repeat("AAAA", 14): false,
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLQ==": false, // 22 bytes
	} {
		err := CheckSecret(secret)
		if (err == nil) != valid {
			t.Errorf("%s: %v", secret, err)
		}
		if err != nil && len(secret) > 6 && strings.Contains(err.Error(), secret[6:]) {
			t.Errorf("%v shows the secret", err)
		}
	}
}

// delivery is a request as a receiver got it.
type delivery struct {
	header http.Header
	body   []byte
}

// receiver keeps the last delivery with its body.
func receiver(t *testing.T) (url string, last func() delivery) {
	t.Helper()
	deliveries := make(chan delivery, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		deliveries <- delivery{r.Header, body}
	}))
	t.Cleanup(server.Close)
	return server.URL, func() delivery {
		t.Helper()
		select {
		case d := <-deliveries:
			return d
		default:
			t.Fatal("nothing was received")
			return delivery{}
		}
	}
}

// verifies reports whether a receiver that has one secret accepts a delivery, by the library of the standard.
func verifies(t *testing.T, secret string, d delivery) bool {
	t.Helper()
	webhook := must.Get(standardwebhooks.NewWebhook(secret))(t)
	return webhook.Verify(d.body, d.header) == nil
}

// The secrets of a bucket sign towards the origin of its URL, unless the flow has secrets of its own. While they rotate, receivers
// with the old secret and receivers with the new one accept the same delivery.
func TestSecretsOfABucket(t *testing.T) {
	t.Parallel()
	home, lastHome := receiver(t)
	other, lastOther := receiver(t)
	const secretC = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
	for name, tt := range map[string]struct {
		job    string // its URL
		own    *shaper.OwnDelivery
		last   func() delivery
		signed []string
	}{
		"the bucket's URL":                     {"", nil, lastHome, []string{secretA, secretB}},
		"a flow with nothing":                  {"", &shaper.OwnDelivery{}, lastHome, []string{secretA, secretB}},
		"a flow with headers":                  {"", &shaper.OwnDelivery{Headers: map[string]string{"X": "1"}}, lastHome, []string{secretA, secretB}},
		"the bucket's origin":                  {home + "/elsewhere", nil, lastHome, []string{secretA, secretB}},
		"another origin":                       {other, nil, lastOther, nil},
		"a flow's URL":                         {"", &shaper.OwnDelivery{URL: other}, lastOther, nil},
		"a flow's URL and the bucket's origin": {home, &shaper.OwnDelivery{URL: other}, lastHome, []string{secretA, secretB}},
		"a flow's secrets":                     {"", &shaper.OwnDelivery{Secrets: []string{secretC}}, lastHome, []string{secretC}},
		"a flow's secrets and URL":             {"", &shaper.OwnDelivery{URL: other, Secrets: []string{secretC}}, lastOther, []string{secretC}},
		"a flow's secrets, another's origin":   {home, &shaper.OwnDelivery{URL: other, Secrets: []string{secretC}}, lastHome, nil},
	} {
		w := newWorker(t, func(c *Config) { c.URL, c.Secrets = home+"/hook", []string{secretA, secretB} })
		attempt := newAttempt(tt.job)
		attempt.Own = tt.own
		want(t, w.Deliver(t.Context(), attempt), shaper.ResultDone, "")
		got := tt.last()
		for _, secret := range []string{secretA, secretB, secretC} {
			if want := slices.Contains(tt.signed, secret); verifies(t, secret, got) != want {
				t.Errorf("%s: signed by %s: %t, want %t", name, secret, !want, want)
			}
		}
		must.Equal(t, len(strings.Fields(got.header.Get("webhook-signature"))), len(tt.signed), "%s: signatures", name)
	}
}
