package test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestCrowdThatIsRefused has 200 clients come at one instant, and obey the Retry-After that they get. A limit or a full bucket serves
// them in 4 s, as a proxy does whose clients wait for a second. Refusals tell them apart, so few tries are in vain: fewer than 1.25 per client, and 1.5 where all
// that hear the same return together. (At 10/s these are 7.9.)
func TestCrowdThatIsRefused(t *testing.T) {
	harness.BesideOthers(t)
	const clients, perSecond = 200, 50
	var tables strings.Builder
	for _, a := range algorithms {
		tables.WriteString(harness.LimitTable("check-"+a.name, a.algorithm, "50/s", a.more))
	}
	const bucket = "[[buckets]]\nname = %q\nrate = %q\n%s\n[buckets.webhook]\nurl = %q\nallow_networks = [\"127.0.0.0/8\"]\n"
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
	}))
	t.Cleanup(receiver.Close)
	for name, keys := range map[string]string{"limited": "limits = [\"check-log\"]", "full": "capacity = 60", "waits": "capacity = 1000"} {
		rate := map[bool]string{true: "1000/s", false: "50/s"}[name == "limited"]
		fmt.Fprintf(&tables, bucket, name, rate, keys, receiver.URL)
	}
	const route = "[[buckets]]\nname = %q\nrate = \"50/s\"\nworker = %q\n[buckets.%s]\nbase_url = %q\nserve_proxy = true\nproxy_timeout = \"1s\"\nallow_networks = [\"127.0.0.0/8\"]\n%s"
	fmt.Fprintf(&tables, route, "shaped", "http", "http", receiver.URL, "")
	fmt.Fprintf(&tables, route, "model", "llm", "llm", receiver.URL, "api = \"openai\"\n")
	system := start(t, redistest.Start(t), harness.Plan{Rate: 50, Dispatchers: 1, Patient: true, More: tables.String()})
	asker := harness.NewAsker(t, clients)

	enqueue := func(bucket, body string) func() (int, http.Header) {
		return func() (int, http.Header) {
			return asker.PostFor(t.Context(), system.API+"/v1/buckets/"+bucket+"/jobs", body)
		}
	}
	ways := map[string]func() (int, http.Header){
		"job of a limit": enqueue("limited", `{"payload":{}}`),
		"full bucket":    enqueue("full", `{"payload":{}}`),
		"max_wait":       enqueue("waits", `{"payload":{},"max_wait":"1s"}`),
	}
	for name, route := range map[string]string{"proxy": "shaped", "LLM route": "model"} {
		ways[name] = func() (int, http.Header) {
			return asker.PostFor(t.Context(), system.API+"/v1/proxy/"+route+"/v1/x", `{"model":"m","max_tokens":5,"messages":[]}`)
		}
	}
	for _, a := range algorithms {
		ways["check "+a.name] = func() (int, http.Header) {
			return asker.Ask(t.Context(), system.API+"/v1/limits/check-"+a.name+"/check")
		}
	}
	var group errgroup.Group
	group.SetLimit(3) // crowds at a time: more of them measure the machine
	for name, try := range ways {
		group.Go(func() error {
			refused, took := obeyingCrowd(t, name, clients, try)
			ratio := float64(refused) / clients
			t.Logf("%s: %.2f refusals per admitted client, all in after %.1f s at %d/s", name, ratio, took.Seconds(), perSecond)
			if ratio > 1.25 {
				t.Errorf("%s: %.2f refusals per admitted client: want at most 1.25", name, ratio)
			}
			return nil
		})
	}
	_ = group.Wait()
}

// obeyingCrowd has clients try at once, each again after the Retry-After of its refusal until it is in. A client of a proxy whose time ended shortly before
// its slot tries again after a second.
func obeyingCrowd(t *testing.T, name string, clients int, try func() (int, http.Header)) (refused int64, took time.Duration) {
	began := time.Now()
	var refusals, late atomic.Int64
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			for t.Context().Err() == nil {
				status, header := try()
				if status/100 == 2 {
					return
				}
				seconds, err := strconv.Atoi(header.Get("Retry-After"))
				if status == http.StatusGatewayTimeout {
					late.Add(1)
					seconds, err, status = 1, nil, http.StatusTooManyRequests
				}
				if status != http.StatusTooManyRequests || err != nil {
					t.Errorf("%s: %d with Retry-After %q", name, status, header.Get("Retry-After"))
					return
				}
				refusals.Add(1)
				select {
				case <-t.Context().Done():
				case <-time.After(time.Duration(seconds) * time.Second):
				}
			}
		})
	}
	group.Wait()
	t.Logf("%s: %d refusals of %d are times that ended", name, late.Load(), refusals.Load())
	return refusals.Load(), time.Since(began)
}
