package cli

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
)

// busy is a server whose Redis is too slow until a time.
type busy struct {
	until  time.Time
	asked  int
	status int // then
}

func (b *busy) RoundTrip(r *http.Request) (*http.Response, error) {
	b.asked++
	status, text := b.status, `{"name":"plain"}`
	if time.Now().Before(b.until) {
		status, text = http.StatusServiceUnavailable, `{"status":503,"code":"store-unavailable","detail":"Redis is not reachable or too slow: retry"}`
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

// A command repeats what a server could not do in time, for ten seconds, and no fire of a schedule.
func TestCommandsArePatient(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		slow time.Duration
		fire bool
		ok   bool
		most int
	}{
		"a busy machine":       {slow: 5 * time.Second, ok: true, most: 7},
		"a Redis that is down": {slow: time.Hour, most: 12},
		"a fire":               {slow: time.Second, fire: true, most: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := &busy{until: time.Now().Add(test.slow), status: http.StatusOK}
				c := &api{http: &http.Client{Transport: server}, server: "http://a.example", bound: maxView}
				var err error
				if test.fire {
					_, err = call(t.Context(), c, httpapi.FireSchedule, httpapi.ScheduleName{Schedule: "nightly"})
				} else {
					_, err = call(t.Context(), c, httpapi.DrainBucket, httpapi.BucketDrain{BucketName: httpapi.BucketName{Bucket: "plain"}})
				}
				if (err == nil) != test.ok || server.asked > test.most {
					t.Errorf("%d requests: %v", server.asked, err)
				}
			})
		})
	}
}
