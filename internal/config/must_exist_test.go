package config

import "testing"

// Where flows have to exist, and have URLs of their own, the bucket needs none.
func TestFlowsThatExistNeedNoURLOfTheBucket(t *testing.T) {
	t.Parallel()
	const flow = "[buckets.flow]\nkey = \"job\"\nmust_exist = true\n"
	for _, c := range []struct {
		webhook string
		needs   bool // a URL, each flow
	}{
		{"job_url = false\n", true},
		{"", true},
		{"url = \"https://a.example/\"\n", false},
	} {
		cfg, err := load("[[buckets]]\nname = \"b\"\nrate = \"1/s\"\n[buckets.webhook]\n" + c.webhook + flow)
		if err != nil {
			t.Fatal(c.webhook, err)
		}
		b := cfg.Buckets[0]
		if !b.Flow.MustExist || b.Flow.NeedsURL != c.needs || b.Webhook.Worker(1).FlowURLs != c.needs {
			t.Errorf("%q: %+v, FlowURLs %t", c.webhook, b.Flow, b.Webhook.Worker(1).FlowURLs)
		}
	}
}
