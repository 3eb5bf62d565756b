package config

import (
	"errors"
	"slices"
	"time"

	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
)

type scheduleSettings struct {
	Name        string            `setting:"name"`
	Cron        string            `setting:"cron"`
	Timezone    string            `setting:"timezone"`
	Bucket      string            `setting:"bucket"`
	CatchUp     string            `setting:"catch_up"`
	Overlap     string            `setting:"overlap"`
	Payload     withheld          `setting:"payload"`
	URL         SecretURL         `setting:"url"`
	Method      string            `setting:"method"`
	Flow        string            `setting:"flow"`
	Group       string            `setting:"group"`
	Priority    string            `setting:"priority"`
	MaxAttempts int               `setting:"max_attempts"` // 0: the bucket's
	ExpiresIn   time.Duration     `setting:"expires_in"`   // 0: never
	Headers     map[string]Secret `setting:"headers"`
}

// schedule reveals the secrets.
func (s scheduleSettings) schedule() shaper.Schedule {
	made := shaper.Schedule{
		Name: s.Name, Cron: s.Cron, Timezone: s.Timezone, CatchUp: schedule.CatchUp(s.CatchUp), Overlap: schedule.Overlap(s.Overlap),
		Job: shaper.ScheduledJob{
			Flow: s.Flow, Group: s.Group, URL: s.URL.Reveal(), Method: s.Method, Payload: []byte(s.Payload), Priority: shaper.Priority(s.Priority),
			MaxAttempts: s.MaxAttempts, ExpiresIn: s.ExpiresIn,
		},
	}
	for name, value := range s.Headers {
		if made.Job.Headers == nil {
			made.Job.Headers = make(map[string][]string, len(s.Headers))
		}
		made.Job.Headers[name] = []string{value.Reveal()}
	}
	return made
}

// schedules checks each schedule: its times, and that the worker of its bucket accepts its job.
func (l *loader) schedules(s *settings) {
	names, perBucket := map[string]place{}, map[string]int{}
	var buckets []string
	for _, b := range s.Buckets {
		buckets = append(buckets, b.Name)
	}
	for i, written := range s.Schedules {
		p := at("schedules").element(i, written.Name)
		l.unique(p, written.Name, names)
		if written.Cron == "" {
			l.fail(p.key("cron"), "", `is missing: want a cron line such as "0 2 * * *", or "@every 10m"`)
			written.Cron = "@daily"
		}
		at := slices.Index(buckets, written.Bucket)
		switch {
		case written.Bucket == "":
			l.fail(p.key("bucket"), "", "is missing: want the name of the bucket that the jobs go into")
			continue
		case at < 0:
			l.fail(p.key("bucket"), literal(written.Bucket), "no [[buckets]] has this name%s", DidYouMean(written.Bucket, buckets))
			continue
		}
		if perBucket[written.Bucket]++; perBucket[written.Bucket] == shaper.MaxSchedules+1 {
			l.fail(p.key("bucket"), literal(written.Bucket), "has more than %d schedules: spread them over several buckets", shaper.MaxSchedules)
		}
		l.scheduledJob(p, written.schedule(), s.Buckets[at])
	}
}

func (l *loader) scheduledJob(p place, made shaper.Schedule, b Bucket) {
	err := made.Validate(&b.Bucket)
	l.failAll(p, err)
	if err != nil {
		return
	}
	job := made.JobOf(b.Name)
	switch {
	case b.Worker == workerHTTP && b.HTTP != nil:
		l.failAll(p, pathAsURL(b.HTTP.Worker(1).CheckJob(&job)))
	case b.Worker == workerLLM && b.LLM != nil:
		l.failAll(p, pathAsURL(b.LLM.Worker(1).CheckJob(&job)))
	case b.Worker == workerAsynq && b.Asynq != nil:
		l.failAll(p, b.Asynq.Worker().CheckJob(&job))
	case b.Worker == workerWebhook:
		l.failAll(p, b.Webhook.Worker(1).CheckJob(&job))
	}
}

// warnOfCron warns of cron lines and time zones with a surprising meaning.
func warnOfCron(warn func(string, ...any), p place, b Bucket) {
	for _, text := range b.Plan().Warnings(b.Name) {
		warn("%s: %s", p.shown, text)
	}
	for _, s := range b.Schedules {
		rule, err := s.Rule()
		if err != nil {
			continue // a fault of the configuration
		}
		for _, text := range rule.Warnings() {
			warn("schedules %q: %s", s.Name, text)
		}
	}
}

// pathAsURL reports the faults of a path as faults of url, the key in which a schedule has it.
func pathAsURL(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, err := range joined.Unwrap() {
			errs = append(errs, pathAsURL(err))
		}
		return errors.Join(errs...)
	}
	if fault, ok := errors.AsType[*shaper.FieldError](err); ok && fault.Field == "path" {
		return &shaper.FieldError{Field: "url", Reason: fault.Reason}
	}
	return err
}
