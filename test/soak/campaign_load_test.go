//go:build soak

package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/test/harness"
)

// The buckets of the campaign, all of one pool. The first has the schedule, the second sends batches, the third calls a model.
const (
	batchedBucket, modelBucket  = "batched", "model"
	finishedPath                = "/finished"
	campaignFlow, campaignGroup = "X-Flow", "X-Group"
)

var campaignBuckets = []string{harness.BucketName, batchedBucket, modelBucket}

// campaignShared is what all three buckets have. It ends in the table of groups. A client of the proxy names its flow by a header, since its body is the API's.
func campaignShared(flowKey, groupKey string) string {
	return fmt.Sprintf(`pool = %q
result_retention = "1h"
[buckets.callbacks]
bucket = "told"
origins = ["*"]
[buckets.flow]
key = %q
max_in_flight = %d
quotas = ["50000/m"]
[buckets.group]
key = %q
max_in_flight = %d
`, campaignPool, flowKey, flowInFlight, groupKey, groupInFlight)
}

var campaignBucket = "limits = [\"many\"]\nbudgets = [\"400000 units/m\"]\n" + campaignShared("job", "job") + "budgets = [\"500000 units/m\"]\n"

func campaignOthers(receiver string) string {
	bucket := func(name, keys, shared, tables string) string {
		return fmt.Sprintf("[[buckets]]\nname = %q\nrate = \"200/s\"\ncapacity = 100000\nmax_in_flight = %d\n%s%s%s[buckets.retry]\nmin_backoff = \"100ms\"\nmax_backoff = \"1s\"\n",
			name, campaignInFlight, keys, shared, tables)
	}
	return harness.LimitTable("many", "token_bucket", "1000000/s") +
		fmt.Sprintf("[[pools]]\nname = %q\nrate = \"350/s\"\nmax_in_flight = %d\n", campaignPool, poolInFlight) +
		bucket(batchedBucket, "", campaignShared("job", "job"), fmt.Sprintf("[buckets.batch]\nmax_size = 10\nmax_wait = \"200ms\"\n[buckets.webhook]\ntimeout = \"2s\"\nurl = %q\nallow_networks = [\"127.0.0.0/8\"]\n", receiver+"/batched")) +
		bucket(modelBucket, "worker = \"llm\"\nbudgets = [\"5000000 tokens/m\"]\n", campaignShared("header:"+campaignFlow, "header:"+campaignGroup),
			fmt.Sprintf("budgets = [\"5000000 tokens/m\"]\n[buckets.llm]\napi = \"openai\"\nbase_url = %q\nserve_proxy = true\ntimeout = \"2s\"\nallow_networks = [\"127.0.0.0/8\"]\n", receiver)) +
		"[[buckets]]\nname = \"told\"\nrate = \"1000/s\"\n[buckets.webhook]\ntimeout = \"2s\"\nurl = \"http://127.0.0.1:9/\"\nallow_networks = [\"127.0.0.0/8\"]\n" +
		"[[schedules]]\nname = \"tick\"\ncron = \"@every 1s\"\nbucket = \"" + harness.BucketName + "\"\nflow = \"f0\"\ngroup = \"g0\"\npayload = '{}'\n"
}

func campaignPrompt(id string) string {
	return fmt.Sprintf(`{"model":"gpt-5","max_tokens":20,"messages":[{"role":"user","content":%q}]}`, id)
}

// finished is the id under which the report of a bundle is looked for.
func finished(bundle string) string { return "bundle " + bundle }

// load enqueues jobs as long as ctx goes on. What was not answered is sent again under the same id, as a client does.
func (c *campaign) load(ctx context.Context) {
	random, n := rand.New(rand.NewPCG(c.seed, 2)), 0
	for ctx.Err() == nil {
		bucket := campaignBuckets[[]int{0, 0, 0, 1, 2}[random.IntN(5)]]
		count := 1 + random.IntN(30)
		bundle := ""
		if random.IntN(4) == 0 {
			bundle = c.openBundle(ctx, bucket, fmt.Sprintf("k-%d", n), count)
		}
		var lines []string
		for range count {
			n++
			lines = append(lines, c.job(random, bucket, bundle, n))
		}
		for ctx.Err() == nil && !c.enqueue(bucket, lines) {
			letPass(ctx, 200*time.Millisecond)
		}
		letPass(ctx, time.Duration(random.IntN(80))*time.Millisecond)
	}
}

// job is one line of a batch.
func (c *campaign) job(random *rand.Rand, bucket, bundle string, n int) string {
	id := fmt.Sprintf("c-%d", n)
	payload := fmt.Sprintf(`{"n":%d}`, n)
	if bucket == modelBucket {
		payload = campaignPrompt(id)
	}
	line := fmt.Sprintf(`{"id":%q,"payload":%s`, id, payload)
	switch bucket {
	case modelBucket:
		line += `,"path":"/v1/chat/completions"`
	case harness.BucketName:
		line += fmt.Sprintf(`,"cost":{"units":%d}`, 1+random.IntN(5))
		fallthrough
	default:
		line += fmt.Sprintf(`,"flow":"f%d","group":"g%d"`, random.IntN(12), random.IntN(4))
	}
	if bundle != "" {
		line += fmt.Sprintf(`,"bundle":%q`, bundle)
		c.mu.Lock()
		c.bundles[bundle] = append(c.bundles[bundle], id)
		c.mu.Unlock()
	}
	switch random.IntN(6) {
	case 0:
		line += fmt.Sprintf(`,"delay":"%dms"`, random.IntN(3000))
	case 1:
		line += `,"callback_url":"` + c.Receiver.URL + `/told"`
	case 2:
		line += `,"priority":"high"`
	}
	return line + "}"
}

// openBundle returns the name of the bundle, "" if Redis or the producer is away.
func (c *campaign) openBundle(ctx context.Context, bucket, name string, size int) string {
	body := fmt.Sprintf(`{"size":%d,"callback_url":%q}`, size, c.Receiver.URL+finishedPath+"?"+name)
	for range 3 {
		if status, _ := c.Request(http.MethodPut, "/v1/buckets/"+bucket+"/bundles/"+name, "application/json", strings.NewReader(body)); status == http.StatusOK || status == http.StatusCreated {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.acked[finished(name)] = time.Now()
			c.bundles[name] = nil
			return name
		}
		letPass(ctx, 100*time.Millisecond)
	}
	return ""
}

// enqueue reports whether each line has a final answer.
func (c *campaign) enqueue(bucket string, lines []string) bool {
	status, answer := c.requestOf(len(lines), "/v1/buckets/"+bucket+"/jobs/batch", "application/x-ndjson", strings.Join(lines, "\n")+"\n")
	if status != http.StatusOK && status != http.StatusBadRequest { // 400: none is admitted, such as those of a bundle that a flush removed
		return false
	}
	var results struct {
		Results []struct {
			Status int    `json:"status"`
			ID     string `json:"id"`
		} `json:"results"`
	}
	if json.Unmarshal(answer, &results) != nil {
		return false
	}
	final := true
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range results.Results {
		switch r.Status {
		case http.StatusAccepted:
			c.acked[r.ID] = time.Now()
		case http.StatusServiceUnavailable:
			final = false
		}
	}
	return final
}

// callModel is a client of the model's API, through the proxy.
func (c *campaign) callModel(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		status, _ := c.requestOf(n, "/v1/proxy/"+modelBucket+"/v1/chat/completions", "application/json", campaignPrompt(fmt.Sprintf("p-%d", n)))
		if status == http.StatusOK {
			c.calls.Add(1)
		}
		letPass(ctx, 100*time.Millisecond)
	}
}

// requestOf posts body in the n-th flow of the bucket of the model. Other buckets ignore that.
func (c *campaign) requestOf(n int, path, contentType, body string) (status int, answer []byte) {
	r, err := http.NewRequestWithContext(c.T.Context(), http.MethodPost, c.API+path, strings.NewReader(body))
	if err != nil {
		c.T.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set(campaignFlow, fmt.Sprintf("f%d", n%12))
	r.Header.Set(campaignGroup, fmt.Sprintf("g%d", n%4))
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	if answer, err = io.ReadAll(response.Body); err != nil {
		return 0, nil
	}
	return response.StatusCode, answer
}

// respondOthers is the receiver of batches and the API of the model.
func (c *campaign) respondOthers(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the dispatcher died
	}
	if r.URL.Path == "/batched" {
		var items []harness.SentItem
		if err := json.Unmarshal(body, &items); err != nil {
			c.T.Errorf("a batch: %v: %.100s", err, body)
		}
		for _, item := range items {
			c.arrived.Store(item.ID, true)
		}
		letPass(r.Context(), 20*time.Millisecond)
		return
	}
	var prompt struct {
		Messages []struct {
			Content string `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &prompt); err != nil || len(prompt.Messages) == 0 {
		c.T.Errorf("a call of the model: %v: %.100s", err, body)
		return
	}
	id := prompt.Messages[0].Content
	c.arrived.Store(id, true)
	letPass(r.Context(), 20*time.Millisecond)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"id":"r","object":"chat.completion","model":"gpt-5","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}`)
}

// unreported are bundles all of whose jobs were acknowledged and kept, and of whose end nothing was heard.
func (c *campaign) unreported() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, jobs := range c.bundles {
		kept := func(id string) bool { return !c.acked[id].IsZero() && !c.excused[id] }
		if _, ok := c.arrived.Load(finished(name)); !ok && kept(finished(name)) && !slices.ContainsFunc(jobs, func(id string) bool { return !kept(id) }) {
			names = append(names, name)
		}
	}
	return names
}
