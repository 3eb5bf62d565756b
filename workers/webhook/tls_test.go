package webhook

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// secured is a receiver with the certificate of an authority of its own. It tells how many client certificates each request
// came with.
func secured(t *testing.T, files redistest.Certificates) (url string, certificates chan int) {
	t.Helper()
	pair := must.Get(tls.LoadX509KeyPair(files.Cert, files.Key))(t)
	certificates = make(chan int, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { certificates <- len(r.TLS.PeerCertificates) }))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, certificates
}

// The client certificate is shown to the origin of the bucket's URL and to no other, and so by a job's own URL too.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	files := redistest.NewCertificates(t)
	home, atHome := secured(t, files)
	other, atOther := secured(t, files)
	w := newWorker(t, func(c *Config) { c.URL, c.TLS = home+"/in", outgoing.TLS(files) })
	for _, tt := range []struct {
		job          string
		own          *shaper.OwnDelivery
		at           chan int
		certificates int
	}{
		{"", nil, atHome, 1},
		{home + "/other", nil, atHome, 1},
		{other, nil, atOther, 0},
		{"", &shaper.OwnDelivery{URL: other}, atOther, 0},
	} {
		attempt := newAttempt(tt.job)
		attempt.Own = tt.own
		want(t, w.Deliver(t.Context(), attempt), shaper.ResultDone, "")
		must.Equal(t, <-tt.at, tt.certificates, "%q, %v: certificates", tt.job, tt.own)
	}
}

// The authorities take the place of the system's, and all files are read again for each new connection.
func TestFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	files, later := redistest.NewCertificates(t), redistest.NewCertificates(t)
	receiver, certificates := secured(t, files)
	w := newWorker(t, func(c *Config) { c.URL, c.TLS = receiver, outgoing.TLS(files) })
	want(t, w.Deliver(t.Context(), newAttempt("")), shaper.ResultDone, "")
	copyFile(t, later.CA, files.CA)
	want(t, w.Deliver(t.Context(), newAttempt("")), shaper.ResultDone, "") // over the connection that was kept
	w.Close()
	want(t, w.Deliver(t.Context(), newAttempt("")), shaper.ResultRetry, workers.ReasonTLS) // another authority

	must.OK(t, os.Remove(files.CA))
	departed := false
	outcome := w.Deliver(t.Context(), withJob(shaper.NewAttempt(time.Now(), time.Hour, func(time.Duration) { departed = true }), ""))
	want(t, outcome, shaper.ResultRetry, workers.ReasonTLS)
	if departed || !strings.Contains(outcome.Detail, "the files for TLS cannot be used") || !strings.Contains(outcome.Detail, files.CA) {
		t.Errorf("departed: %t, detail %q", departed, outcome.Detail)
	}
	must.Equal(t, len(certificates), 2, "requests")
}

// Without settings the system's authorities decide, and the tests' authority is none of them.
func TestUnknownAuthority(t *testing.T) {
	t.Parallel()
	receiver, _ := secured(t, redistest.NewCertificates(t))
	want(t, newWorker(t, nil).Deliver(t.Context(), newAttempt(receiver)), shaper.ResultRetry, workers.ReasonTLS)
}

func TestNewReadsTheFiles(t *testing.T) {
	t.Parallel()
	files, other := redistest.NewCertificates(t), redistest.NewCertificates(t)
	for name, tt := range map[string]struct {
		tls    outgoing.TLS
		faults []string
	}{
		"valid":      {outgoing.TLS(files), nil},
		"none":       {outgoing.TLS{}, nil},
		"not there":  {outgoing.TLS{CA: "/no/ca", Cert: "/no/cert", Key: "/no/key"}, []string{`webhook.tls.ca: "/no/ca": cannot be read`, `webhook.tls.cert: "/no/cert": cannot be read`, `webhook.tls.key: "/no/key": cannot be read`}},
		"no PEM":     {outgoing.TLS{CA: files.Key}, []string{"webhook.tls.ca", "has no certificate in PEM"}},
		"no pair":    {outgoing.TLS{Cert: files.Cert, Key: other.Key}, []string{"webhook.tls.cert", "is no pair with webhook.tls.key"}},
		"cert alone": {outgoing.TLS{Cert: files.Cert}, []string{"webhook.tls.key: is missing"}},
		"key alone":  {outgoing.TLS{Key: files.Key}, []string{"webhook.tls.cert: is missing"}},
	} {
		config := DefaultConfig()
		config.URL, config.TLS = "https://example.com/", tt.tls
		w, err := New(config)
		if err == nil {
			w.Close()
		}
		if (err == nil) != (len(tt.faults) == 0) {
			t.Errorf("%s: %v", name, err)
		}
		for _, fault := range tt.faults {
			if err == nil || !strings.Contains(err.Error(), fault) {
				t.Errorf("%s: %v, want %s", name, err, fault)
			}
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text := must.Get(os.ReadFile(from))(t)
	must.OK(t, os.WriteFile(to, text, 0o600))
}
