package metrics

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// The label of an attempt is the word of the worker, else the class of its status. There are not many, whatever a worker says.
func TestReasonsAreBounded(t *testing.T) {
	t.Parallel()
	var r reasons
	for want, outcome := range map[string]shaper.Outcome{
		"2xx":      shaper.Done(204),
		"http_429": {Result: shaper.ResultRetry, Status: 429, Reason: "http_429"},
		"3xx":      {Status: 301},
		"none":     shaper.Done(0),
		"other":    {Reason: strings.Repeat("x", 41)},
	} {
		must.Equal(t, r.label(outcome), want, "%+v", outcome)
	}
	labels := map[string]bool{}
	for i := range 1000 {
		labels[r.label(shaper.Retry(fmt.Sprint("reason", i), ""))] = true
	}
	if len(labels) > 65 || !labels["reason0"] || !labels["other"] || r.label(shaper.Retry("http_429", "")) != "http_429" {
		t.Errorf("%d labels: %v", len(labels), labels)
	}
}
