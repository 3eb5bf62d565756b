package test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/llmprovider"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// begin begins a call through a route of a producer, or one at the API itself, and returns its answer, whose body is still to be read.
func begin(t *testing.T, url string, maximum int, streams bool) (*http.Response, error) {
	t.Helper()
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}],"max_tokens":%d,"stream":%t}`, strings.Repeat("word", inputTokens), maximum, streams)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(request)
}

const atRoute = "serve_proxy = true\n"

// TestStreamsOutliveDispatchers: kill -9 of all dispatchers cuts no stream, also one that lasts for more than three leases.
func TestStreamsOutliveDispatchers(t *testing.T) {
	harness.BesideOthers(t)
	const streams, output, lease = 20, 200, 2 * time.Second
	m := model{name: "bucket", keys: tokenBudgets(), llm: atRoute, provider: llmprovider.New(llmprovider.Settings{CallTime: 4 * lease})}
	s := startLLM(t, llmPlan{models: []model{m}, dispatchers: 3, lease: lease, server: redistest.Start(t)})
	var open atomic.Int64
	var clients sync.WaitGroup
	for n := range streams {
		clients.Go(func() {
			response, err := begin(t, s.producers[n%2]+"/v1/proxy/bucket", output, true)
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			open.Add(1)
			answer, err := io.ReadAll(response.Body)
			if text, isWhole := textOf(answer, true); err != nil || !isWhole || len(strings.Fields(text)) != output {
				t.Errorf("stream %d: %d words, whole %t, %v", n, len(strings.Fields(text)), isWhole, err)
			}
		})
	}
	harness.Await(t, 20*time.Second, "all streams have begun", func() bool { return open.Load() == streams })
	for _, d := range s.dispatchers {
		d.Kill()
	}
	clients.Wait()
	s.dispatchers[2] = s.restart[2]()
	harness.Await(t, 20*time.Second, "all is settled", func() bool { return s.numbers("bucket").Unfinished == 0 })
	if n := s.numbers("bucket"); n.Dead != 0 || n.Budgets[0].Open != 0 {
		t.Errorf("%+v", n)
	}
}

// TestProducersDieWithStreams: kill -9 of a producer with streams and with requests that wait. Nothing of its requests is left, and none is a dead
// letter. The streams of the other producer go on.
func TestProducersDieWithStreams(t *testing.T) {
	harness.OnlyInCI(t)
	harness.BesideOthers(t)
	const streams, lease = 8, 2 * time.Second
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		m := model{name: "bucket", rate: "4/s", keys: tokenBudgets(), llm: atRoute, provider: llmprovider.New(llmprovider.Settings{CallTime: 10 * time.Second})}
		s := startLLM(t, llmPlan{models: []model{m}, dispatchers: 3, lease: lease, server: redistest.Start(t)})
		var clients sync.WaitGroup
		var whole atomic.Int64
		for n := range 4 * streams { // half of them still wait when the producer dies
			clients.Go(func() {
				response, err := begin(t, s.producers[n%2]+"/v1/proxy/bucket", 20, true)
				if err != nil {
					return
				}
				defer response.Body.Close()
				answer, err := io.ReadAll(response.Body)
				if _, isWhole := textOf(answer, true); err == nil && isWhole {
					whole.Add(1)
				} else if n%2 == 1 {
					t.Errorf("stream %d of the producer that lives: %d %.300s, %v", n, response.StatusCode, answer, err)
				}
			})
		}
		harness.Await(t, 20*time.Second, "half of the streams have begun", func() bool { return len(m.provider.Log()) >= 2*streams })
		s.producing[0].Kill()
		killed := time.Now()
		clients.Wait()
		harness.Await(t, 20*time.Second, "nothing is left", func() bool { return s.numbers("bucket").Unfinished == 0 })
		t.Logf("%d of %d streams were whole; nothing was left %s after the kill, with a lease of %s", whole.Load(), 4*streams, time.Since(killed).Round(time.Millisecond), lease)
		if n := s.numbers("bucket"); n.Dead != 0 || n.InFlight != 0 {
			t.Errorf("%+v", n)
		}
		if whole.Load() != 2*streams {
			t.Errorf("%d streams were whole, want those of the producer that lives: %d", whole.Load(), 2*streams)
		}
		return ""
	})
}

// TestLeasesOfADeadProducer: kill -9 of a producer whose streams are all that is under way. Its leases are back within the lease and 5 s. The jobs then
// end, as nobody starts them any more, and none is a dead letter.
func TestLeasesOfADeadProducer(t *testing.T) {
	harness.BesideOthers(t)
	const streams, lease, back = 8, 2 * time.Second, 5 * time.Second
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) (fault string) {
		m := model{name: "bucket", rate: "20/s", llm: atRoute, provider: llmprovider.New(llmprovider.Settings{CallTime: time.Minute})}
		s := startLLM(t, llmPlan{models: []model{m}, dispatchers: 3, lease: lease, server: redistest.Start(t)})
		var clients sync.WaitGroup
		for range streams {
			clients.Go(func() {
				if response, err := begin(t, s.producers[0]+"/v1/proxy/bucket", 200, true); err == nil {
					_, _ = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
			})
		}
		harness.Await(t, 20*time.Second, "all streams have begun", func() bool { return len(m.provider.Log()) == streams && s.numbers("bucket").InFlight == streams })
		s.operate("bucket", "pause", "bucket") // so that no job that is back leaves again
		s.producing[0].Kill()
		killed := time.Now()
		clients.Wait()
		harness.Await(t, 20*time.Second, "the leases are back", func() bool { return s.numbers("bucket").InFlight == 0 })
		took := time.Since(killed)
		t.Logf("%d leases of %s were back %s after the kill", streams, lease, took.Round(time.Millisecond))
		s.operate("bucket", "resume", "bucket")
		harness.Await(t, 20*time.Second, "the jobs have ended", func() bool { return s.numbers("bucket").Unfinished == 0 })
		if n := s.numbers("bucket"); n.Dead != 0 {
			t.Errorf("%+v", n)
		}
		if took > lease+back+stall.Cost() {
			fault = fmt.Sprintf("the leases were back after %s, want %s", took, lease+back)
		}
		return fault
	})
}

// TestWhatTheRouteCosts prints what the route adds to a call when nothing waits, beside Redis, and what 200 streams at once take in a producer.
func TestWhatTheRouteCosts(t *testing.T) {
	if !redistest.Soak {
		t.Skip("it prints times: make soak")
	}
	const calls, streams = 400, 200
	m := model{name: "bucket", rate: "1000/s", llm: atRoute, provider: llmprovider.New(llmprovider.Settings{CallTime: 20 * time.Millisecond})}
	hanging := model{name: "hanging", rate: "1000/s", llm: atRoute, provider: llmprovider.New(llmprovider.Settings{})}
	hanging.provider.FailStreams(llmprovider.StreamFault{After: 3, Kind: llmprovider.StreamHangs})
	s := startLLM(t, llmPlan{models: []model{m, hanging}, dispatchers: 3, isNear: true, server: redistest.Start(t)})
	took := map[string][]time.Duration{}
	for range calls {
		for _, way := range []string{s.providers["bucket"], s.producers[0] + "/v1/proxy/bucket"} {
			began := time.Now()
			response, err := begin(t, way, 20, false)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			took[way] = append(took[way], time.Since(began))
			if response.StatusCode != http.StatusOK {
				t.Fatalf("%s: %d", way, response.StatusCode)
			}
		}
	}
	at := func(way string, share int) time.Duration {
		slices.Sort(took[way])
		return took[way][calls*share/100]
	}
	direct, route := s.providers["bucket"], s.producers[0]+"/v1/proxy/bucket"
	t.Logf("the route adds %s at the median and %s at the 99th of 100", (at(route, 50) - at(direct, 50)).Round(10*time.Microsecond), (at(route, 99) - at(direct, 99)).Round(10*time.Microsecond))
	before := s.gauge(s.producers[1], "go_memstats_heap_inuse_bytes") + s.gauge(s.producers[1], "go_memstats_stack_inuse_bytes")
	resident := s.gauge(s.producers[1], "process_resident_memory_bytes")
	var open []*http.Response
	for range streams {
		response, err := begin(t, s.producers[1]+"/v1/proxy/hanging", 200, true) //nolint:bodyclose // below
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, response) //nolint:bodyclose // below
	}
	after := s.gauge(s.producers[1], "go_memstats_heap_inuse_bytes") + s.gauge(s.producers[1], "go_memstats_stack_inuse_bytes")
	t.Logf("%d streams take %.0f KiB each of heap and stacks, and %.0f KiB of resident memory", streams, (after-before)/streams/1024, (s.gauge(s.producers[1], "process_resident_memory_bytes")-resident)/streams/1024)
	for _, response := range open {
		response.Body.Close()
	}
	harness.Await(t, 20*time.Second, "all is settled", func() bool { return s.numbers("hanging").Unfinished == 0 })
}

// gauge is a metric of a process without labels.
func (s *llmSystem) gauge(url, name string) (value float64) {
	s.t.Helper()
	for line := range strings.Lines(string(s.ask(http.MethodGet, url+"/metrics", "", ""))) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			_, _ = fmt.Sscan(rest, &value)
		}
	}
	return value
}
