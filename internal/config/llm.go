package config

import (
	"net/netip"
	"time"

	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/llm"
)

// LLMSettings are the settings of a bucket whose worker is "llm".
type LLMSettings struct {
	API            string            `setting:"api"`
	BaseURL        SecretURL         `setting:"base_url"` // that jobs go below
	Models         []string          `setting:"models"`   // patterns
	ExpectedOutput int64             `setting:"expected_output"`
	CountMaxTokens bool              `setting:"count_max_tokens"`
	Timeout        time.Duration     `setting:"timeout"` // of one attempt; the heartbeat keeps its lease
	AllowNetworks  []netip.Prefix    `setting:"allow_networks"`
	EgressProxy    Secret            `setting:"egress_proxy"`
	Headers        map[string]Secret `setting:"headers"` // of each request
	Auth           HTTPAuth          `setting:"auth"`
	TLS            WebhookTLS        `setting:"tls"`
}

// Worker returns the settings as the worker has them, for a number of deliveries at a time. The policy is still to be set.
// It reveals the secrets.
func (s LLMSettings) Worker(concurrency int) llm.Config {
	http := HTTPSettings{
		BaseURL: s.BaseURL, Timeout: s.Timeout, AllowNetworks: s.AllowNetworks, EgressProxy: s.EgressProxy, Headers: s.Headers, Auth: s.Auth, TLS: s.TLS,
	}
	return llm.Config{
		API: llm.API(s.API), HTTP: http.Worker(concurrency), Models: s.Models, ExpectedOutput: s.ExpectedOutput, CountMaxTokens: s.CountMaxTokens,
	}
}

// llm checks the settings of the worker of the bucket at p, and reads the files that they name.
func (l *loader) llm(p place, b Bucket) {
	if b.LLM == nil {
		l.fail(p.key("llm"), "", "is missing: a bucket with the worker llm wants a table [buckets.llm] with an api and a base_url")
		return
	}
	worker := b.LLM.Worker(1)
	worker.HTTP.Policy = workers.Policy{Statuses: b.Statuses}
	l.failAll(p, worker.Validate())
	l.failAll(p, worker.HTTP.TLS.Check("llm", l.readFile))
}
