package config

import (
	"slices"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/outgoing"
)

type hookSettings struct {
	Events []string  `setting:"events"`
	Bucket string    `setting:"bucket"`
	URL    SecretURL `setting:"url"`
}

// Hook is a URL to which dispatchers send the events of buckets.
type Hook struct {
	Events []shaper.Event
	Bucket string // that delivers the jobs of the hook
	URL    string // the target
	Flow   string // of these jobs, if the job names the flow in the bucket
	Group  string // the same for groups
}

// hookPart is the flow and the group of hook jobs, if the job has to name them.
const hookPart = "hooks"

// hooks checks the targets of events.
func (l *loader) hooks(s *settings) {
	var names, kinds []string
	for _, b := range s.Buckets {
		names = append(names, b.Name)
	}
	for _, event := range shaper.Events() {
		kinds = append(kinds, string(event))
	}
	for i, written := range s.Hooks {
		p := at("hooks").element(i, written.Bucket)
		if len(written.Events) == 0 {
			l.fail(p.key("events"), "", "is missing: want some of %v", kinds)
		}
		for n, event := range written.Events {
			of := p.key("events").element(n, "")
			l.oneOf(of, event, kinds...)
			if slices.Contains(written.Events[:n], event) {
				l.fail(of, literal(event), "is in the list twice")
			}
		}
		l.hookURL(p.key("url"), written.URL.Reveal())
		at := slices.Index(names, written.Bucket)
		switch {
		case written.Bucket == "":
			l.fail(p.key("bucket"), "", "is missing: want the name of the bucket that delivers")
		case at < 0:
			l.fail(p.key("bucket"), literal(written.Bucket), "no [[buckets]] has this name%s", DidYouMean(written.Bucket, names))
		case s.Buckets[at].Worker != workerWebhook:
			l.fail(p.key("bucket"), literal(written.Bucket), "its worker is %s: name a bucket with the worker webhook", s.Buckets[at].Worker)
		case !s.Buckets[at].Webhook.JobURL:
			l.fail(p.key("bucket"), literal(written.Bucket), "its jobs may not name a URL (webhook.job_url = false), and jobs of hooks do: name another bucket")
		}
	}
}

// hookURL requires a URL that jobs may have. It shows nothing of it: its path may be a secret.
func (l *loader) hookURL(p place, text string) {
	if text == "" {
		l.fail(p, "", "is missing: want the address that is to hear of the events")
	} else if _, err := outgoing.ParseURL(text); err != nil {
		l.fail(p, "", "%v", err)
	}
}

// eventsOf returns all kinds of events that some hook subscribes to.
func eventsOf(hooks []hookSettings) []shaper.Event {
	var events []shaper.Event
	for _, h := range hooks {
		for _, name := range h.Events {
			if event := shaper.Event(name); !slices.Contains(events, event) {
				events = append(events, event)
			}
		}
	}
	return events
}

func (h hookSettings) hook(buckets []Bucket) Hook {
	made := Hook{Bucket: h.Bucket, URL: h.URL.Reveal(), Events: eventsOf([]hookSettings{h})}
	if i := slices.IndexFunc(buckets, func(b Bucket) bool { return b.Name == h.Bucket }); i >= 0 {
		if f := buckets[i].Flow; f != nil && f.Key == shaper.FlowKeyJob {
			made.Flow = hookPart
		}
		if g := buckets[i].Group; g != nil && g.Key == shaper.FlowKeyJob {
			made.Group = hookPart
		}
	}
	return made
}
