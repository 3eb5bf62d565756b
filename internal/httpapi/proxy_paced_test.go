package httpapi_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/httpworker"
)

// All calls of six official clients that work at once reach their API at the rate of the bucket, retries and further pages too. A permit lasts 250 ms,
// by which an arrival may be late.
func TestProxyPacesOfficialClients(t *testing.T) {
	t.Parallel()
	const rate = 20
	p := newProxyRigOf(t, func(b *shaper.Bucket, _ *httpworker.Config) {
		if b.Name == "api" {
			b.Rate = rateOf(t, "20/s")
		}
	}, keyOf("ours", []string{"*"}, apikey.RoleEnqueue))
	vendor := newVendor()
	arrivals := func(env ...string) (in, most int) {
		t.Helper()
		var log checker.History
		vendor.reset()
		p.called()
		p.answerWith(func(w http.ResponseWriter, r *http.Request) {
			now := time.Now()
			vendor.serve(w, r)
			vendor.mu.Lock()
			defer vendor.mu.Unlock()
			log.Delivered(strconv.Itoa(len(vendor.calls))+r.RequestURI+r.Method+now.String(), 1, now)
		})
		runClients(t, env...)
		r := log.Check()
		t.Logf("%s: %d calls, most in 1s %d, in 100ms %d", env[0], r.Delivered, r.MostIn(time.Second), r.MostIn(100*time.Millisecond))
		return r.Delivered, r.MostIn(time.Second)
	}
	if _, most := arrivals("BASE="+p.apiURL+"/base", "KEY="+vendorKey); most < 2*rate {
		t.Fatalf("directly %d calls a second at most: too few to tell", most)
	}
	if calls, most := arrivals("BASE="+p.http.URL+"/v1/proxy/api", "KEY=ours"); calls < 60 || most > rate+rate/4+1 {
		t.Errorf("%d calls, %d a second at most, want at most %d", calls, most, rate+rate/4+1)
	}
}
