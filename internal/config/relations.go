package config

import (
	"maps"
	"slices"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/webhook"
)

func (l *loader) limits(s *settings) {
	names := map[string]place{}
	for i, written := range s.Limits {
		p := at("limits").element(i, written.Name)
		l.unique(p, written.Name, names)
		burst, precision := p.key("burst"), p.key("precision")
		hasBurst := written.Algorithm.HasBurst()
		if l.set(burst) && hasBurst && written.Burst == 0 {
			l.fail(burst, "0", "want 1 to 1000000, or leave it out to have the limit's number")
		}
		if written.Precision == 0 {
			l.fail(precision, "0", "want 1 to 100")
		}
		if written.MaxKeys == 0 {
			l.fail(p.key("max_keys"), "0", "want 1 to %d", admission.MaxMaxKeys)
		}
		limit := written.WithDefaults()
		if limit.Limit.IsZero() {
			l.fail(p.key("limit"), "", `is missing: want a rate such as "100/m"`)
			if hasBurst {
				limit.Burst = max(limit.Burst, 1)
			}
		} else if unit := limit.Limit.Unit; unit != admission.UnitRequests {
			l.fail(p.key("limit"), literal(limit.Limit), "counting %s %s; want requests", unit, notYet)
		}
		l.failAll(p, limit.Validate())
		for _, tier := range slices.Sorted(maps.Keys(written.Tiers)) {
			here, rate := p.key("tiers").key(tier), written.Tiers[tier]
			if unit := rate.Unit; unit != admission.UnitRequests {
				l.fail(here, literal(rate), "counting %s %s; want requests", unit, notYet)
			}
			if admission.ValidName(tier) && !slices.ContainsFunc(s.Keys, func(k keySettings) bool { return k.Tier == tier }) {
				l.fail(here, "", "no [[keys]] has this tier%s", DidYouMean(tier, keyTiers(s)))
			}
		}
	}
}

func (l *loader) buckets(s *settings) {
	names := map[string]place{}
	var limits []string
	for _, limit := range s.Limits {
		limits = append(limits, limit.Name)
	}
	var pools []string
	for _, pool := range s.Pools {
		pools = append(pools, pool.Name)
	}
	for i, written := range s.Buckets {
		p := at("buckets").element(i, written.Name)
		l.unique(p, written.Name, names)
		l.firstName(s, i, p)
		l.callbacks(s, p, written) // it says more than the bucket
		l.failAll(p, besidePool(written.Validate()))
		l.oneOf(p.key("worker"), written.Worker, workerKinds()...)
		l.scope(p.key("adapt").key("scope"), written)
		l.references(p.key("limits"), written.LimitNames, limits, "limits")
		l.sharing(p, written, pools)
		l.otherWorker(p, written)
		l.batch(p, written)
		l.proxy(p, written)
		if (written.Worker == workerAsynq || written.Worker == workerProgram) && len(written.Responses) > 0 {
			l.fail(p.key("responses"), "", "is for the workers webhook, http and llm: the bucket has the worker %s", written.Worker)
		}
		switch written.Worker {
		case workerHTTP:
			l.http(p, written, s.Dispatcher)
		case workerLLM:
			l.llm(p, written)
		case workerAsynq:
			l.asynq(p, written)
		case workerProgram:
		default:
			l.webhook(p, written, s.Dispatcher)
		}
	}
	l.llmRoutes(s)
}

// proxy refuses flows and groups that a client of the proxy cannot name: its body is the API's, so that each of its requests would be refused.
func (l *loader) proxy(p place, b Bucket) {
	var served string
	switch {
	case b.HTTP != nil && b.HTTP.ServeProxy:
		served = "http.serve_proxy"
	case b.LLM != nil && b.LLM.ServeProxy:
		served = "llm.serve_proxy"
	default:
		return
	}
	const reason = `cannot be together with %s: a client of the proxy sends the request of the API, which names no %s; want "caller" or "header:X-Name"`
	if b.Flow != nil && b.Flow.Key == shaper.FlowKeyJob {
		l.fail(p.key("flow").key("key"), literal(b.Flow.Key), reason, served, "flow")
	}
	if b.Group != nil && b.Group.Key == shaper.FlowKeyJob {
		l.fail(p.key("group").key("key"), literal(b.Group.Key), reason, served, "group")
	}
}

// scope requires that jobs of one scope go to one receiver.
func (l *loader) scope(p place, b Bucket) {
	scope := b.Adapt.Scope
	l.oneOf(p, string(scope), string(shaper.ScopeFlow), string(shaper.ScopeBucket), string(shaper.ScopePool))
	if b.Worker == workerWebhook && b.Webhook.JobURL && (scope == shaper.ScopeBucket || scope == shaper.ScopePool) {
		l.fail(p, literal(scope), "one receiver would slow all others: jobs may name their own URLs (webhook.job_url); want flow, or job_url = false")
	}
}

// webhook checks the settings of the worker of the bucket at p, and reads the files that they name.
func (l *loader) webhook(p place, b Bucket, d Dispatcher) {
	w, of := b.Webhook, p.key("webhook")
	l.webhookURL(of.key("url"), w.URL.Reveal())
	if w.URL == "" && !w.JobURL && !w.FlowURLs {
		l.fail(of.key("url"), `""`, "is empty while job_url is false: want a URL, which also takes the jobs of flows that have no URL of their own; or flow.must_exist = true, and a URL for each flow")
	}
	timeout := of.key("timeout")
	inRange(l, timeout, w.Timeout, minWebhookTimeout, maxLease)
	if w.Timeout > d.Lease && !l.failed["dispatcher.lease"] {
		l.fail(timeout, literal(w.Timeout), "want at most dispatcher.lease, which is %s", brief(d.Lease))
	}
	var formats []string
	for _, format := range webhook.Formats() {
		formats = append(formats, string(format))
	}
	l.oneOf(of.key("format"), w.Format, formats...)
	worker := w.Worker(1)
	worker.Policy = b.Policy()
	l.failAll(p, worker.Validate())
	l.failAll(p, worker.TLS.Check("webhook", l.readFile))
}
