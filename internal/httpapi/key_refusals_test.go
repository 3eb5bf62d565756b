package httpapi_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tundish-io/tundish/internal/httpapi"
)

// Each wrong key is counted, and each request of a key that lacks a right. A minute has one line of each at most, which says how many there were.
func TestRefusedKeysLeaveATrace(t *testing.T) {
	t.Parallel()
	f := store(t)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "wrong"})
		forbidden := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forbidden"}, []string{"key"})
		producer := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: f, Keys: keys(), Logger: logTo(&log), WrongKeys: counter, Forbidden: forbidden})
		const often = 10_084
		for range often {
			request(producer, far, "GET", jobs+"/a", "", "Authorization", "Bearer canary")
		}
		request(producer, far, "GET", jobs+"/a", "") // no key
		const refused = 2000
		for range refused {
			request(producer, far, "GET", jobs+"/a", "", "Authorization", "Bearer check")
			request(producer, far, "POST", jobs, "{}", "Authorization", "Bearer elsewhere")
		}
		time.Sleep(3 * time.Minute) //nolint:forbidigo // of the bubble's clock
		synctest.Wait()
		var lines, ofRights []string
		for line := range strings.Lines(log.String()) {
			switch isWarning := strings.Contains(line, "level=WARN"); {
			case isWarning && strings.Contains(line, "lack a right"):
				ofRights = append(ofRights, line)
			case isWarning:
				lines = append(lines, line)
			}
		}
		if len(lines) != 2 || !strings.Contains(lines[0], "count=1 ") || !strings.Contains(lines[1], "count=10083 last_address=192.0.2.1") || strings.Contains(log.String(), "canary") {
			t.Errorf("%q", lines)
		}
		if got := testutil.ToFloat64(counter); got != often {
			t.Errorf("%v are counted", got)
		}
		for _, key := range []string{"check", "elsewhere"} {
			if got := testutil.ToFloat64(forbidden.WithLabelValues(key)); got != refused {
				t.Errorf("%v requests of key %s are counted, want %d", got, key, refused)
			}
		}
		const last = "last_key=elsewhere last_address=192.0.2.1 last_request=\"POST /v1/buckets/roomy/jobs\""
		if len(ofRights) != 2 || !strings.Contains(ofRights[0], "count=1 last_key=check ") || !strings.Contains(ofRights[1], fmt.Sprintf("count=%d %s", 2*refused-1, last)) {
			t.Errorf("%q", ofRights)
		}
	})
}
