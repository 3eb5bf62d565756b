package webhook

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/npmtest"
	"github.com/tundish-io/tundish/shaper"
)

// toVerify is a delivery for a receiver with one secret.
type toVerify struct {
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// TestSecretsForOthers has the library of Standard Webhooks for JavaScript check deliveries: of a flow, of a bucket, and while the
// bucket's secrets rotate. `make test` installs the library (scripts/parsers).
func TestSecretsForOthers(t *testing.T) {
	t.Parallel()
	url, last := receiver(t)
	var deliveries []toVerify
	var wants []bool
	for _, tt := range []struct {
		bucket, flow []string
		format       Format
	}{
		{nil, []string{secretA}, FormatStandard},
		{[]string{secretA}, nil, FormatStandard},
		{[]string{secretB, secretA}, nil, FormatStandard}, // rotating
		{[]string{secretB}, nil, FormatStandard},
		{[]string{secretB, secretA}, []string{secretA}, FormatStandard},
		{[]string{secretB, secretA}, nil, FormatCloudEvents},
		{[]string{secretB, secretA}, nil, FormatStructured},
		{nil, nil, FormatStandard},
	} {
		w := newWorker(t, func(c *Config) {
			if c.URL, c.Secrets, c.Format = url, tt.bucket, tt.format; c.Format.makesEvents() {
				c.CloudEvents.Source = "/orders"
			}
		})
		attempt := newAttempt("")
		attempt.Payload = []byte(`{"grüße":"<&>"}`)
		attempt.Own = &shaper.OwnDelivery{Secrets: tt.flow}
		want(t, w.Deliver(t.Context(), attempt), shaper.ResultDone, "")
		got := last()
		headers := map[string]string{}
		for name := range got.header {
			headers[strings.ToLower(name)] = got.header.Get(name)
		}
		signs := tt.flow
		if len(signs) == 0 {
			signs = tt.bucket
		}
		for _, secret := range []string{secretA, secretB} {
			deliveries = append(deliveries, toVerify{secret, headers, string(got.body)})
			wants = append(wants, slices.Contains(signs, secret))
		}
	}
	for i, accepted := range verifiedByOthers(t, deliveries) {
		if accepted != wants[i] {
			t.Errorf("delivery %d: the library accepts it: %t, want %t: %+v", i, accepted, wants[i], deliveries[i])
		}
	}
}

func verifiedByOthers(t *testing.T, deliveries []toVerify) []bool {
	t.Helper()
	node := npmtest.Clients(t)
	text := must.Get(json.Marshal(deliveries))(t)
	out := node.Output(t, filepath.Join("testdata", "verify.mjs"), "DELIVERIES="+string(text))
	var accepted []bool
	if err := json.Unmarshal(out, &accepted); err != nil || len(accepted) != len(deliveries) {
		t.Fatalf("%v: %s", err, out)
	}
	return accepted
}
