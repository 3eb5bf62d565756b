package test

import (
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestTLS: the programs talk TLS to Redis, by their own certificate.
func TestTLS(t *testing.T) {
	const rate, jobs = 200, 200
	server, files := redistest.StartTLS(t)
	t.Setenv("TUNDISH_REDIS_TLS_CA", files.CA)
	t.Setenv("TUNDISH_REDIS_TLS_CERT", files.Cert)
	t.Setenv("TUNDISH_REDIS_TLS_KEY", files.Key)
	t.Setenv("TUNDISH_REDIS_TLS_SERVER_NAME", redistest.ServerName)
	s := start(t, server, harness.Plan{Rate: rate, Dispatchers: 1, RedisURL: "rediss://" + server.TLSAddr()})
	s.Post("tls", jobs)
	r := s.AwaitDelivered(20 * time.Second)
	harness.Report(t, rate, r)
	harness.Await(t, 10*time.Second, "everything is settled", func() bool { return s.Unfinished() == 0 })
	if r.Err() != nil || r.Extra > 0 {
		t.Errorf("%v; came twice: %v", r.Err(), r.Duplicated)
	}
}
