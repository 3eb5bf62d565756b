package httpapi_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
)

// Each wrong key is counted, and a minute has one line at most, which says how many there were.
func TestWrongKeysLeaveATrace(t *testing.T) {
	t.Parallel()
	f := store(t)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "wrong"})
		producer := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: f, Keys: keys(), Logger: logTo(&log), WrongKeys: counter})
		const often = 10_084
		for range often {
			request(producer, far, "GET", jobs+"/a", "", "Authorization", "Bearer canary")
		}
		request(producer, far, "GET", jobs+"/a", "")                                  // no key
		request(producer, far, "GET", jobs+"/a", "", "Authorization", "Bearer check") // one that may not
		time.Sleep(3 * time.Minute)                                                   //nolint:forbidigo // of the bubble's clock
		synctest.Wait()
		var lines []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "level=WARN") {
				lines = append(lines, line)
			}
		}
		if len(lines) != 2 || !strings.Contains(lines[0], "count=1 ") || !strings.Contains(lines[1], "count=10083 last_address=192.0.2.1") || strings.Contains(log.String(), "canary") {
			t.Errorf("%q", lines)
		}
		must.Equal(t, testutil.ToFloat64(counter), often, "are counted")
	})
}
