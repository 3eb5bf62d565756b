//go:build !race

// What a reader takes of the heap is measured without the race detector, with which it is another program and takes seven minutes.

package llm

import (
	"bytes"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/hostile"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// slack is what small things take that do not grow with a body, such as the depth of nesting that a reader keeps in mind.
const slack = 256 << 10

// shapes of bodies, in which a hostile value takes the place of "@".
var (
	requestShapes = []string{
		`@`, `{"model":@}`, `{"model":"m","messages":@}`, `{"model":"m","prompt":@}`, `{"model":"m","input":@}`, `{"model":"m","tools":@}`,
		`{"model":"m","stream":true,"stream_options":@}`, `{"model":"m","stream":true,"messages":[{"role":"user","content":@}]}`, `{"model":"m","n":@}`,
		`{"model":"m","messages":[{"type":@,"source":{"type":@}}]}`,
	}
	answerShapes = []string{
		`@`, `{"usage":@}`, `{"usage":{"prompt_tokens":@,"prompt_tokens_details":@}}`, `{"id":@}`, `{"model":@,"status":@}`, `{"error":@}`, `{"error":{"type":@,"code":@,"details":@}}`,
		`[{"error":@}]`, `{"choices":@}`, `{"output":@}`, `{"content":@,"type":@}`, `{"data":@}`, `{"status":"failed","error":@}`,
	}
	eventShapes = []string{
		`@`, `{"choices":@}`, `{"choices":[{"delta":{"content":@,"tool_calls":@}}]}`, `{"usage":@}`, `{"type":"response.completed","response":@}`, `{"type":"message_start","message":@}`,
		`{"type":"content_block_delta","delta":@}`, `{"type":"response.output_text.delta","delta":@}`, `{"type":"error","error":@}`, `{"type":@}`,
	}
)

// costs runs a reader of bodies on all shapes with all hostile values, and wants each to take at most so many times the bytes of its body, and a time that
// is linear in them.
func costs(t *testing.T, size int, most float64, shapes []string, read func(body []byte)) {
	t.Helper()
	var worst, slowest string
	var highest, longest float64
	smaller := maps.Collect(hostile.Values(size / hostile.Factor))
	for kind, value := range hostile.Values(size) {
		for _, shape := range shapes {
			body := []byte(strings.ReplaceAll(shape, "@", value))
			cost := hostile.CostOf(func() { read(body) })
			small := []byte(strings.ReplaceAll(shape, "@", smaller[kind]))
			if times, isLinear := hostile.Growth(cost.Time, func() { read(small) }, func() { read(body) }); !isLinear {
				t.Errorf("%s in %s: %d times the bytes take %.0f times as long", kind, shape, hostile.Factor, times)
			}
			per, speed := float64(cost.Heap-slack)/float64(len(body)), cost.Time.Seconds()*1000/(float64(len(body))/(1<<20))
			if per > most {
				t.Errorf("%s in %s: %d bytes of %d, %.1f for each: want %.1f at most", kind, shape, cost.Heap, len(body), per, most)
			}
			if per > highest {
				highest, worst = per, kind+" in "+shape
			}
			if speed > longest {
				longest, slowest = speed, kind+" in "+shape
			}
		}
	}
	t.Logf("heap: %.2f bytes for each byte at most, of %s; time: %.1f ms/MiB at most, of %s", highest, worst, longest, slowest)
}

// The body of a request costs its copy with stream_options, and no tree of values.
func TestRequestsCostNoTree(t *testing.T) { //nolint:paralleltest // measures the heap
	w := workerOf(t, apiOf(t, OpenAI, nil))
	costs(t, 512<<10, 1.1, requestShapes, func(body []byte) {
		read := ReadBody(body)
		_ = read.Model("/v1/chat/completions")
		_ = w.AskOf("/v1/chat/completions", read)
	})
	for _, api := range []API{OpenAI, Anthropic} {
		costs(t, 512<<10, 1.1, requestShapes, func(body []byte) { _, _ = Estimate(DefaultConfig(api), "/v1/x", body, nil) })
	}
}

// An answer costs no tree of values.
func TestAnswersCostNoTree(t *testing.T) { //nolint:paralleltest // measures the heap
	policy := workers.Policy{}
	for _, api := range []API{OpenAI, Anthropic} {
		c := DefaultConfig(api)
		r, _ := parse(api, c.endpoint("/v1/chat/completions"), ReadBody([]byte(chat(""))))
		costs(t, 512<<10, 1, answerShapes, func(body []byte) {
			_, _ = Usage(api, body)
			_ = c.charge(r, &shaper.Answer{Body: body}, &LearnedEstimates{})
			for _, status := range []int{200, 400, 429} {
				_ = Judge(policy, &workers.Response{Status: status, Header: http.Header{}, Body: body})
			}
		})
	}
}

// A stream costs no tree of values, and keeps one event of at most maxEvent bytes.
func TestStreamsCostNoTree(t *testing.T) { //nolint:paralleltest // measures the heap
	for _, hides := range []bool{false, true} {
		for _, size := range []int{maxEvent * 9 / 10, 2 * maxEvent} {
			costs(t, size, 5, eventShapes, func(body []byte) { passes(t, hides, []byte("data: "), body, []byte("\n\n")) })
		}
	}
}

// passes wants a stream to pass on all that comes, unchanged.
func passes(t *testing.T, hides bool, parts ...[]byte) *stream {
	t.Helper()
	s := &stream{api: OpenAI, hides: hides}
	var came, passed int
	for _, part := range parts {
		for len(part) > 0 {
			n := min(len(part), readSize)
			came, passed, part = came+n, passed+len(s.pass(part[:n])), part[n:]
		}
	}
	if passed += len(s.rest()); passed != came && !hides {
		t.Errorf("%d bytes came, and %d passed", came, passed)
	}
	return s
}

// A provider cannot fill the process: whatever the lines of an event are, it counts with all of them.
func TestEventsAreBoundedWithAllTheirLines(t *testing.T) { //nolint:paralleltest // measures the heap
	const size = 6 << 20
	for name, line := range map[string]string{
		"comments": ": keep-alive, and more of it\n", "empty comments": ":\n", "ids": "id: 7\n", "data": "data: 1\n", "empty data": "data\n", "no end": "data: ", "carriage returns": "\r",
		"unknown fields": "x: y\r\n", "events that end": "data: 1\n\n", "comments that end": ":\n\n", "empty events": "\n",
	} {
		for _, hides := range []bool{false, true} {
			part := []byte(strings.Repeat(line, readSize/len(line)))
			s := &stream{api: OpenAI, hides: hides}
			first := true
			var kept int
			cost := hostile.CostOf(func() {
				for came := 0; came < size; came += len(part) {
					passed := s.pass(part)
					if first && !hides && !bytes.Equal(passed, part) {
						t.Errorf("%s: not passed as it came", name)
					}
					first = false
					kept = max(kept, keptBy(s))
				}
			})
			t.Logf("%s, hides %t: keeps %d bytes, takes %d of the heap, %s", name, hides, kept, cost.Heap, cost.Time)
			if kept > 2*maxEvent {
				t.Errorf("%s, hides %t: keeps %d bytes", name, hides, kept)
			}
		}
	}
}
func keptBy(s *stream) int { return cap(s.event) }
