package config

import (
	"net/netip"
	"slices"
	"time"

	"github.com/tundish-io/tundish/internal/httpbound"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/httpworker"
	"github.com/tundish-io/tundish/workers/llm"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// HTTPSettings are the settings of a bucket whose worker is "http".
type HTTPSettings struct {
	BaseURL       SecretURL         `setting:"base_url"` // that jobs go below
	Timeout       time.Duration     `setting:"timeout"`  // of one attempt
	AllowNetworks []netip.Prefix    `setting:"allow_networks"`
	EgressProxy   Secret            `setting:"egress_proxy"`
	ServeProxy    bool              `setting:"serve_proxy"`
	ProxyTimeout  time.Duration     `setting:"proxy_timeout"` // how long a client of the proxy waits
	ProxyPriority string            `setting:"proxy_priority"`
	AllowInPath   []string          `setting:"allow_in_path"` // what paths may hold beyond the rules: see httpworker.Config
	Headers       map[string]Secret `setting:"headers"`       // of each request
	Auth          HTTPAuth          `setting:"auth"`
	TLS           WebhookTLS        `setting:"tls"`

	ConnectionMaxAge time.Duration `setting:"connection_max_age"` // 0: no maximum

	Files httpworker.Files `setting:"-"` // the sources of secrets
}

// HTTPAuth are the credentials of requests: one of the four, or none.
type HTTPAuth struct {
	Bearer Secret     `setting:"bearer"`
	Basic  HTTPBasic  `setting:"basic"`
	Header HTTPHeader `setting:"header"`
	OAuth2 HTTPOAuth2 `setting:"oauth2"`
}

// HTTPBasic are a user and a password.
type HTTPBasic struct {
	User     Secret `setting:"user"`
	Password Secret `setting:"password"`
}

// HTTPHeader is a header with a secret.
type HTTPHeader struct {
	Name  string `setting:"name"`
	Value Secret `setting:"value"`
}

// HTTPOAuth2 are client credentials of OAuth 2.
type HTTPOAuth2 struct {
	TokenURL     SecretURL `setting:"token_url"`
	ClientID     string    `setting:"client_id"`
	ClientSecret Secret    `setting:"client_secret"`
	Scopes       []string  `setting:"scopes"`

	Params map[string]Secret `setting:"params"` // further ones of a request for a token
	Style  string            `setting:"style"`  // basic, body
}

// Worker returns the settings as the worker has them, for a number of deliveries at a time. The policy is still to be set.
// It reveals the secrets.
func (h HTTPSettings) Worker(concurrency int) httpworker.Config {
	c := httpworker.Config{
		BaseURL: h.BaseURL.Reveal(), Timeout: h.Timeout, AllowNetworks: h.AllowNetworks, Concurrency: concurrency, EgressProxy: h.EgressProxy.Reveal(),
		TLS: outgoing.TLS(h.TLS), ConnectionMaxAge: h.ConnectionMaxAge, AllowInPath: h.AllowInPath, Headers: make(map[string]string, len(h.Headers)),
		Auth: httpworker.Auth{
			Bearer: h.Auth.Bearer.Reveal(),
			Basic:  httpworker.Basic{User: h.Auth.Basic.User.Reveal(), Password: h.Auth.Basic.Password.Reveal()},
			Header: httpworker.Header{Name: h.Auth.Header.Name, Value: h.Auth.Header.Value.Reveal()},
			OAuth2: httpworker.OAuth2{
				TokenURL: h.Auth.OAuth2.TokenURL.Reveal(), ClientID: h.Auth.OAuth2.ClientID, ClientSecret: h.Auth.OAuth2.ClientSecret.Reveal(),
				Scopes: h.Auth.OAuth2.Scopes, Params: map[string]string{}, Style: httpworker.OAuth2Style(h.Auth.OAuth2.Style),
			},
		},
		Files: h.Files,
	}
	for name, value := range h.Auth.OAuth2.Params {
		c.Auth.OAuth2.Params[name] = value.Reveal()
	}
	for name, value := range h.Headers {
		c.Headers[name] = value.Reveal()
	}
	return c
}

// byWorker sets the defaults of a bucket's kind of worker, where the file sets nothing else.
func (l *loader) byWorker(b *Bucket, at place) {
	if b.Batch.Has() && b.BatchFormat == "" {
		b.BatchFormat = workers.BatchArray
	}
	l.countsMaxTokens(b, at)
	if b.Worker != workerHTTP && b.Worker != workerLLM {
		return
	}
	if !l.set(at.key("retry").key("statuses")) {
		b.Statuses = httpworker.DefaultStatuses()
	}
	if !l.set(at.key("adapt").key("scope")) {
		b.Adapt.Scope = shaper.ScopeBucket
		if b.PoolName != "" {
			b.Adapt.Scope = shaper.ScopePool
		}
	}
}

// countsMaxTokens sets the counting of the bucket's API, if the file does not set it.
func (l *loader) countsMaxTokens(b *Bucket, at place) {
	if b.LLM != nil && !l.set(at.key("llm").key("count_max_tokens")) {
		b.LLM.CountMaxTokens = llm.DefaultConfig(llm.API(b.LLM.API)).CountMaxTokens
	}
}

// http checks the settings of the worker of the bucket at p, and reads the files that they name.
func (l *loader) http(p place, b Bucket, d Dispatcher) {
	if b.HTTP == nil {
		l.fail(p.key("http"), "", "is missing: a bucket with the worker http wants a table [buckets.http] with a base_url")
		return
	}
	timeout := p.key("http").key("timeout")
	inRange(l, timeout, b.HTTP.Timeout, minWebhookTimeout, maxLease)
	if b.HTTP.Timeout > d.Lease && !l.failed["dispatcher.lease"] {
		l.fail(timeout, literal(b.HTTP.Timeout), "want at most dispatcher.lease, which is %s", brief(d.Lease))
	}
	inRange(l, p.key("http").key("proxy_timeout"), b.HTTP.ProxyTimeout, time.Second, httpbound.MaxWait)
	l.oneOf(p.key("http").key("proxy_priority"), b.HTTP.ProxyPriority, priorities(ProxyFirst)...)
	worker := b.HTTP.Worker(1)
	worker.Policy = b.Policy()
	l.failAll(p, worker.Validate())
	l.failAll(p, worker.TLS.Check("http", l.readFile))
}

// ProxyFirst is the priority of clients' requests that depart before all queued jobs of their flow, for as long as they wait.
const ProxyFirst = "first"

// priorities returns the words for the priorities of clients' requests: some, then the priorities of jobs.
func priorities(some ...string) []string {
	for _, priority := range shaper.Priorities() {
		some = append(some, string(priority))
	}
	return some
}

// otherWorker refuses settings of another kind of worker than the bucket has.
func (l *loader) otherWorker(p place, b Bucket) {
	for _, kind := range workerKinds() {
		of := p.key(kind)
		if kind != b.Worker && slices.Contains(workerKinds(), b.Worker) && l.set(of) {
			l.fail(of, "", "is for the worker %s: the bucket has the worker %s", kind, b.Worker)
		}
	}
}

// defaultURL returns the target of jobs that name no receiver.
func (b *Bucket) defaultURL() string {
	switch {
	case b.Worker == workerAsynq, b.ByProgram():
		return ""
	case b.Worker == workerHTTP && b.HTTP != nil:
		return b.HTTP.BaseURL.Reveal()
	case b.Worker == workerLLM && b.LLM != nil:
		return b.LLM.BaseURL.Reveal()
	}
	return b.Webhook.URL.Reveal()
}

// timeout returns the timeout of one attempt, with its key; 0 if no worker of the dispatcher waits for it.
func (b *Bucket) timeout() (key string, timeout time.Duration) {
	switch {
	case b.Asynq != nil:
		return "asynq.timeout", 0
	case b.HTTP != nil:
		return "http.timeout", b.HTTP.Timeout
	case b.LLM != nil:
		return "llm.timeout", b.LLM.Timeout
	case b.ByProgram():
		return "worker", 0
	}
	return "webhook.timeout", b.Webhook.Timeout
}

// allowNetworks are networks beyond the public internet that deliveries may reach, with their key.
func (b *Bucket) allowNetworks() (key string, networks []netip.Prefix) {
	switch {
	case b.Asynq != nil:
		return "", nil
	case b.HTTP != nil:
		return "http.allow_networks", b.HTTP.AllowNetworks
	case b.LLM != nil:
		return "llm.allow_networks", b.LLM.AllowNetworks
	}
	return "webhook.allow_networks", b.Webhook.AllowNetworks
}
