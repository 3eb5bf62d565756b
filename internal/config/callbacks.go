package config

import (
	"slices"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// callbackSettings say where the callbacks of a bucket's jobs go.
type callbackSettings struct {
	Bucket     string    `setting:"bucket"`
	URL        SecretURL `setting:"url"`
	FailureURL SecretURL `setting:"failure_url"`
	Origins    []string  `setting:"origins"`
}

// minCallbackDedupe is the least time for which the bucket of callbacks has to remember ids: a dispatcher that does not know whether a callback was
// enqueued sends it again under its id.
const minCallbackDedupe = time.Minute

// callbacks returns the callbacks of a bucket. fillCallbacks adds the bounds of the other bucket when all buckets are known.
func (c *callbackSettings) callbacks() shaper.Callbacks {
	if c == nil {
		return shaper.Callbacks{}
	}
	return shaper.Callbacks{Bucket: c.Bucket, URL: c.URL.Reveal(), FailureURL: c.FailureURL.Reveal(), Origins: c.Origins}
}

// callbacks checks the bucket at p that has callbacks, and the bucket that delivers them.
func (l *loader) callbacks(s *settings, p place, b Bucket) {
	if b.CallbackTo == nil {
		return
	}
	p = p.key("callbacks")
	for _, given := range []struct{ key, url string }{{"url", b.CallbackTo.URL.Reveal()}, {"failure_url", b.CallbackTo.FailureURL.Reveal()}} {
		if given.url == "" {
			continue
		}
		if _, err := outgoing.ParseURL(given.url); err != nil { // it shows nothing of the URL, whose path may be a secret
			l.fail(p.key(given.key), "", "%v", err)
		}
	}
	for i, origin := range b.Callbacks.Origins {
		if reason := shaper.OriginFault(origin); reason != "" {
			l.fail(p.key("origins").element(i, ""), literal(origin), "%s", reason)
		}
	}
	var names []string
	for _, other := range s.Buckets {
		names = append(names, other.Name)
	}
	to := slices.Index(names, b.Callbacks.Bucket)
	fail := func(format string, args ...any) {
		l.fail(p.key("bucket"), literal(b.Callbacks.Bucket), format, args...)
	}
	switch {
	case b.Callbacks.Bucket == "":
		l.fail(p.key("bucket"), "", "is missing: want the name of the bucket that delivers")
		return
	case to < 0:
		fail("no [[buckets]] has this name%s", DidYouMean(b.Callbacks.Bucket, names))
		return
	}
	target := s.Buckets[to]
	switch limit := unmetLimit(s, target); {
	case b.Callbacks.Bucket == b.Name:
		fail("is the bucket itself: name another one, or its callbacks would wait for the places that they take")
	case target.CallbackTo != nil:
		fail("has callbacks itself: name a bucket without, or two buckets could wait for each other")
	case target.Worker != workerWebhook:
		fail("its worker is %s: name a bucket with the worker webhook", target.Worker)
	case !target.Webhook.JobURL:
		fail("its jobs may not name a URL (webhook.job_url = false), as callbacks do: name another bucket")
	case target.DedupeWindow < minCallbackDedupe:
		fail("it remembers ids for %s: want a dedupe_window of %s or more, or a callback could be sent twice", brief(target.DedupeWindow), brief(minCallbackDedupe))
	case target.MaxPayload < shaper.MinCallbackPayload:
		fail("it takes payloads of %s: want a max_payload of %s or more", literal(size(target.MaxPayload)), literal(size(shaper.MinCallbackPayload)))
	case target.Flow != nil && admission.HeaderOf(target.Flow.Key) != "" || target.Group != nil && admission.HeaderOf(target.Group.Key) != "":
		fail("its flows or groups are named by a header, which callbacks do not have: want key = job, host or caller")
	case limit != "":
		fail("its limit %q counts by what callbacks do not have: want a limit by caller or flow, or on_missing = share or exempt", limit)
	}
}

// unmetLimit names a limit of a bucket that refuses a job without an address and headers, "" if none does.
func unmetLimit(s *settings, b Bucket) string {
	for _, limit := range s.Limits {
		asks := slices.ContainsFunc(limit.Per, func(per string) bool { return per == admission.PerIP || admission.HeaderOf(per) != "" })
		if slices.Contains(b.LimitNames, limit.Name) && limit.OnMissing == admission.Refuse && asks {
			return limit.Name
		}
	}
	return ""
}

// fillCallbacks sets the largest size of callbacks.
func fillCallbacks(buckets []Bucket) {
	for i := range buckets {
		to := buckets[i].Callbacks.Bucket
		if to == "" {
			continue
		}
		if n := slices.IndexFunc(buckets, func(b Bucket) bool { return b.Name == to }); n >= 0 {
			buckets[i].Callbacks.MaxPayload = buckets[n].MaxPayload
		}
	}
}
