package llm_test

import (
	"fmt"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/llm"
)

// A program that enqueues by itself estimates what its jobs reserve of the bucket's budgets.
func ExampleEstimate() {
	config := llm.DefaultConfig(llm.Anthropic)
	body := []byte(`{"model": "claude-haiku-4-5", "max_tokens": 4096, "messages": [{"role": "user", "content": "Write a haiku about queues."}]}`)
	units, err := llm.Estimate(config, "", body, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	job := shaper.Job{Bucket: "model", URL: "/v1/messages", Payload: body, Units: units}
	fmt.Println(job.Units)
	// Output: input:13,output:500
}
