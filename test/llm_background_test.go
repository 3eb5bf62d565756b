package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/llmprovider"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestBackgroundThroughTwoProducers: each of two producers sends responses in the background. Of these a third is polled at the other producer, a third
// at both at once, and a third after one producer was killed, each until it is done and twice more. The usage of each is charged once, as the provider
// counts it, and each counts as one call.
func TestBackgroundThroughTwoProducers(t *testing.T) {
	harness.BesideOthers(t)
	const responses = 12
	provider := llmprovider.New(llmprovider.Settings{CallTime: 2 * time.Second, UsedFrom: .2, UsedTo: .4})
	bucket := model{
		name: "background", keys: "budgets = [\"10000000 tokens/h\"]\nbudget_burst = \"100%\"\n", llm: "serve_proxy = true\n", provider: provider,
	}
	s := startLLM(t, llmPlan{models: []model{bucket}, dispatchers: 1, server: redistest.Start(t), isNear: true})
	var ids []string
	for n := range responses {
		body := fmt.Sprintf(`{"model":"m","background":true,"max_output_tokens":%d,"input":%q}`, 1000+n, strings.Repeat("word", inputTokens+n))
		one := s.response(http.MethodPost, s.producers[n%2], "", body)
		if one.Status != "queued" {
			t.Fatalf("response %d is %+v", n, one)
		}
		ids = append(ids, one.ID)
	}
	s.wantCharged(func(charged, calls int64) string {
		if charged < responses*1000 || calls != 0 {
			return "want each charged as it was reserved, and no call, until a poll reports its usage"
		}
		return ""
	})
	var polls sync.WaitGroup
	poll := func(producer, id string) {
		polls.Go(func() {
			for again := 0; again < 3; { // the last two are polls of a response that is done
				if one := s.response(http.MethodGet, producer, "/"+id, ""); one.Status == "completed" {
					again++
				}
			}
		})
	}
	for n, id := range ids { // producers 0 and 1 sent them in turn
		switch {
		case n < responses/3:
			poll(s.producers[(n+1)%2], id)
		case n < responses*2/3:
			poll(s.producers[0], id)
			poll(s.producers[1], id)
		}
	}
	polls.Wait()
	s.producing[0].Kill() // what its process knew of the rest is gone
	for _, id := range ids[responses*2/3:] {
		poll(s.producers[1], id)
		poll(s.producers[1], id)
	}
	polls.Wait()
	var counted int64
	for _, c := range provider.Log() {
		counted += c.Input + c.Output
	}
	s.wantCharged(func(charged, calls int64) string {
		if charged != counted || calls != responses {
			return fmt.Sprintf("the provider counts %d tokens of %d responses", counted, responses)
		}
		return ""
	})
}

// backgroundResponse is what a provider reports of a response.
type backgroundResponse struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

// response sends a request to the provider's API of responses through a producer.
func (s *llmSystem) response(method, producer, path, body string) (one backgroundResponse) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, producer+"/v1/proxy/background/v1/responses"+path, strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return one
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Error(err)
		return backgroundResponse{Status: "completed"} // the test has failed
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode == http.StatusOK {
		err = json.Unmarshal(text, &one)
	}
	if err != nil || one.ID == "" {
		s.t.Errorf("%s %s: %d %.300s, %v", method, path, response.StatusCode, text, err)
		one.Status = "completed"
	}
	return one
}

// wantCharged waits until fault finds none in what is charged and how many calls are counted: the last outcomes may be on their way.
func (s *llmSystem) wantCharged(fault func(charged, calls int64) string) {
	s.t.Helper()
	tick, late := time.NewTicker(100*time.Millisecond), time.After(harness.Patience*10*time.Second)
	defer tick.Stop()
	for {
		var used struct {
			Total struct {
				Calls int64 `json:"calls"`
			} `json:"total"`
		}
		n := s.numbers("background")
		if err := json.Unmarshal(s.ask(http.MethodGet, s.ops[0]+"/v1/buckets/background/usage", "", ""), &used); err != nil || len(n.Budgets) == 0 {
			s.t.Fatalf("%+v, %v", n, err)
		}
		charged, calls := n.Budgets[0].Charged, used.Total.Calls
		why := fault(charged, calls)
		if why == "" && n.Unfinished == 0 {
			s.t.Logf("%d tokens are charged, of %d calls", charged, calls)
			return
		}
		select {
		case <-tick.C:
		case <-late:
			s.t.Fatalf("%d tokens are charged, of %d calls, %d jobs are left: %s", charged, calls, n.Unfinished, why)
		}
	}
}
