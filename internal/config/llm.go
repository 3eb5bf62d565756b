package config

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/httpbound"
	"github.com/tundish-io/tundish/workers/httpworker"
	"github.com/tundish-io/tundish/workers/llm"
)

// LLMSettings are the settings of a bucket whose worker is "llm".
type LLMSettings struct {
	API            string            `setting:"api"`
	BaseURL        SecretURL         `setting:"base_url"` // that jobs go below
	Models         []string          `setting:"models"`   // patterns
	ExpectedOutput int64             `setting:"expected_output"`
	ExpectedInput  int64             `setting:"expected_input"` // tokens that are not in the body of a request
	CountMaxTokens bool              `setting:"count_max_tokens"`
	IncludeUsage   bool              `setting:"include_usage"` // adds stream_options to streams of clients
	Timeout        time.Duration     `setting:"timeout"`       // of one attempt; the heartbeat keeps its lease
	IdleTimeout    time.Duration     `setting:"idle_timeout"`
	ServeProxy     bool              `setting:"serve_proxy"`
	Route          string            `setting:"route"`         // "": the name of the bucket
	ProxyTimeout   time.Duration     `setting:"proxy_timeout"` // how long a client of the route waits until its request is sent
	ProxyPriority  string            `setting:"proxy_priority"`
	Fallback       string            `setting:"fallback"` // the bucket for a request that would wait longer than FallbackAfter; "": none
	FallbackAfter  time.Duration     `setting:"fallback_after"`
	FallbackModels map[string]string `setting:"fallback_models"` // by models of this bucket: the model of the fallback to use instead
	AllowNetworks  []netip.Prefix    `setting:"allow_networks"`
	EgressProxy    Secret            `setting:"egress_proxy"`
	Headers        map[string]Secret `setting:"headers"` // of each request
	Auth           HTTPAuth          `setting:"auth"`
	TLS            WebhookTLS        `setting:"tls"`

	ConnectionMaxAge time.Duration `setting:"connection_max_age"` // 0: no maximum

	Files httpworker.Files `setting:"-"` // the sources of secrets
}

// Worker returns the settings as the worker has them, for a number of deliveries at a time. The policy is still to be set.
// It reveals the secrets.
func (s LLMSettings) Worker(concurrency int) llm.Config {
	http := HTTPSettings{
		BaseURL: s.BaseURL, Timeout: s.Timeout, AllowNetworks: s.AllowNetworks, EgressProxy: s.EgressProxy, Headers: s.Headers, Auth: s.Auth, TLS: s.TLS,
		ConnectionMaxAge: s.ConnectionMaxAge, Files: s.Files,
	}
	return llm.Config{
		API: llm.API(s.API), HTTP: http.Worker(concurrency), Models: s.Models, ExpectedOutput: s.ExpectedOutput, CountMaxTokens: s.CountMaxTokens,
		ExpectedInput: s.ExpectedInput, IncludeUsage: s.IncludeUsage, IdleTimeout: s.IdleTimeout,
	}
}

// RouteOf returns the route of a bucket: its name, unless the settings have another one.
func (s LLMSettings) RouteOf(bucket string) string { return cmp.Or(s.Route, bucket) }

// llm checks the settings of the worker of the bucket at p, and reads the files that they name.
func (l *loader) llm(p place, b Bucket) {
	if b.LLM == nil {
		l.fail(p.key("llm"), "", "is missing: a bucket with the worker llm wants a table [buckets.llm] with an api and a base_url")
		return
	}
	worker := b.LLM.Worker(1)
	worker.HTTP.Policy = b.Policy()
	l.failAll(p, worker.Validate())
	l.failAll(p, worker.HTTP.TLS.Check("llm", l.readFile))
	inRange(l, p.key("llm").key("proxy_timeout"), b.LLM.ProxyTimeout, time.Second, httpbound.MaxWait)
	l.oneOf(p.key("llm").key("proxy_priority"), b.LLM.ProxyPriority, priorities()...)
	inRange(l, p.key("llm").key("fallback_after"), b.LLM.FallbackAfter, time.Millisecond, httpbound.MaxWait)
}

// llmRoutes checks that the buckets of a route have one API, and that no other bucket has its path.
func (l *loader) llmRoutes(s *settings) {
	first := map[string]*Bucket{}
	for i := range s.Buckets {
		b := &s.Buckets[i]
		if b.LLM == nil {
			continue
		}
		l.fallbackModels(at("buckets").element(i, b.Name).key("llm").key("fallback_models"), s, b)
		if !b.LLM.ServeProxy {
			continue
		}
		p, route := at("buckets").element(i, b.Name).key("llm").key("route"), b.LLM.RouteOf(b.Name)
		if !admission.ValidName(route) {
			l.fail(p, literal(route), "want a name as a bucket has: it is part of a path")
			continue
		}
		if at := slices.IndexFunc(s.Buckets, func(b Bucket) bool { return b.Name == route && b.HTTP != nil && b.HTTP.ServeProxy }); at >= 0 {
			l.fail(p, literal(route), "bucket %q has this path of the proxy (http.serve_proxy): choose another route", route)
		}
		if before := first[route]; before != nil && before.LLM.API != b.LLM.API {
			l.fail(p, literal(route), "bucket %q of this route has the api %q, and this one %q: want one API for all buckets of a route", before.Name, before.LLM.API, b.LLM.API)
		}
		if first[route] == nil {
			first[route] = b
		}
		l.fallback(at("buckets").element(i, b.Name).key("llm").key("fallback"), s, b)
	}
}

// fallback requires another bucket with the same API and without a fallback: a request falls back only once.
func (l *loader) fallback(p place, s *settings, b *Bucket) {
	name := b.LLM.Fallback
	if name == "" {
		return
	}
	at := slices.IndexFunc(s.Buckets, func(b Bucket) bool { return b.Name == name })
	switch {
	case at < 0 || name == b.Name || s.Buckets[at].LLM == nil:
		l.fail(p, literal(name), "want another bucket whose worker is llm")
	case s.Buckets[at].LLM.API != b.LLM.API:
		l.fail(p, literal(name), "has the api %q, and this bucket %q: want the same", s.Buckets[at].LLM.API, b.LLM.API)
	case s.Buckets[at].LLM.Fallback != "":
		l.fail(p, literal(name), "has a fallback itself: a request goes no further than one")
	}
}

// maxModelBytes bounds the name of a fallback's model: it is in a header of the response.
const maxModelBytes = 200

// fallbackModels requires names of models, not patterns. This bucket has to accept the model that is mapped, and its fallback the other.
func (l *loader) fallbackModels(p place, s *settings, b *Bucket) {
	at := slices.IndexFunc(s.Buckets, func(other Bucket) bool { return other.Name == b.LLM.Fallback && other.LLM != nil })
	if len(b.LLM.FallbackModels) > 0 && b.LLM.Fallback == "" {
		l.fail(p, "", "maps models for a fallback, and the bucket has none: set fallback, or remove fallback_models")
	}
	for _, asked := range slices.Sorted(maps.Keys(b.LLM.FallbackModels)) {
		sent, here := b.LLM.FallbackModels[asked], p.key(asked)
		isName := func(model string) bool {
			return model != "" && len(model) <= maxModelBytes && !strings.ContainsFunc(model, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`*?[\`, r) })
		}
		switch {
		case !isName(asked):
			l.fail(here, "", "want the name of a model as requests have it, not a pattern")
		case !isName(sent):
			l.fail(here, literal(sent), "want the name of a model as the fallback's API knows it, not a pattern")
		case sent == asked:
			l.fail(here, literal(sent), "maps a model to itself: remove it, as a model without an entry keeps its name")
		case !b.LLM.Worker(1).Takes(asked):
			l.fail(here, literal(sent), "no request for model %q reaches bucket %q, which takes the models %s: add it to llm.models, or remove this entry",
				asked, b.Name, strings.Join(b.LLM.Models, ", "))
		case at >= 0 && !s.Buckets[at].LLM.Worker(1).Takes(sent):
			l.fail(here, literal(sent), "the fallback %q takes the models %s: name one of them, or add the model to its llm.models",
				b.LLM.Fallback, strings.Join(s.Buckets[at].LLM.Models, ", "))
		}
	}
}
