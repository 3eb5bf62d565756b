package dispatcher

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// A callback takes no longer than its bucket and the other one take, and thousands of them do not slow the jobs down.
func TestCallbackLatency(t *testing.T) {
	t.Parallel()
	w := newTelling(t, func(b, _ *shaper.Bucket) { b.Callbacks.URL = "https://default.example/" })
	w.run()
	const jobs = 2000
	began := time.Now()
	for range jobs / 100 {
		w.enqueue(slices.Repeat([]shaper.Job{{Payload: []byte("hi")}}, 100)...)
	}
	var after []time.Duration
	for range jobs {
		_, body := w.next()
		at := must.Get(time.Parse(time.RFC3339Nano, fmt.Sprint(body["timestamp"])))(t)
		after = append(after, time.Since(at))
	}
	took := time.Since(began)
	slices.Sort(after)
	t.Logf("%d jobs at 1000/s were told of after %s; the end of a job to the arrival of its callback: median %s, p99 %s, at most %s",
		jobs, took.Round(time.Millisecond), after[jobs/2].Round(time.Microsecond), after[jobs*99/100].Round(time.Microsecond), after[jobs-1].Round(time.Microsecond))
}

// No payload is longer than it may be, and each is JSON with as much of the answer as fits.
func TestCallbackPayloads(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "short", strings.Repeat("a", 40_000), strings.Repeat("\x00", 40_000), strings.Repeat("€", 20_000), strings.Repeat("\xff", 40_000)} {
		for _, headers := range []int{0, 10, 20_000} {
			c := &codec.Callback{At: time.UnixMicro(1783228800000000), Result: shaper.JobResult{ID: "j", State: shaper.StateDone, Answer: &shaper.Answer{
				Status: 200, Body: []byte(body), Headers: map[string][]string{"X": {strings.Repeat("h", headers)}},
			}}}
			payload, err := callbackPayload(c, shaper.MinCallbackPayload)
			if err != nil || len(payload) > shaper.MinCallbackPayload {
				t.Fatalf("%.10q: %d bytes, %v", body, len(payload), err)
			}
			var read struct{ Data map[string]any }
			must.OK(t, json.Unmarshal(payload, &read))
			text, isText := read.Data["body"].(string)
			if !isText {
				bytes, _ := read.Data["body_base64"].(string)
				text = strings.Repeat("\xff", len(bytes)*3/4)
			}
			isCut := len(text) < len(body) || headers > 16<<10
			if isCut != (read.Data["cut"] == true) || isText && !strings.HasPrefix(body, text) || isCut && len(body) > 30_000 && len(payload) < shaper.MinCallbackPayload-8 {
				t.Errorf("of a body of %d bytes, %.10q, and %d of headers: cut %v, %d bytes of the body in %d", len(body), body, headers, read.Data["cut"], len(text), len(payload))
			}
			if string(c.Result.Answer.Body) != body || len(c.Result.Answer.Headers) != 1 {
				t.Error("the callback was changed")
			}
		}
	}
	if _, err := callbackPayload(&codec.Callback{Result: shaper.JobResult{ID: "j"}}, 10); err == nil {
		t.Error("a payload of 10 bytes")
	}
}
