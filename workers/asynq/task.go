package asynq

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/shaper"
)

// Headers of a job that this worker reads. They are not passed on.
const (
	HeaderTask     = "Asynq-Task"      // the type name of the task
	HeaderTimeout  = "Asynq-Timeout"   // how long the handler may run, in whole seconds, such as "90s"; "0s" becomes asynq's default of 30 minutes
	HeaderDeadline = "Asynq-Deadline"  // when the handler must have ended, RFC 3339
	HeaderMaxRetry = "Asynq-Max-Retry" // of asynq; with SettleHandover only, at least 1
)

// Headers of each task, in addition to the job's.
const (
	HeaderJob     = "tundish-job"     // the job's id
	HeaderBucket  = "tundish-bucket"  // the job's bucket
	HeaderFlow    = "tundish-flow"    // the job's flow, if it has one
	HeaderAttempt = "tundish-attempt" // the number of the delivery, from 1
	HeaderLease   = "tundish-lease"   // what Middleware needs to settle; with SettleHandler only
)

const ownPrefix = "tundish-"

// spec holds the settings of a task from its job.
type spec struct {
	name     string
	timeout  time.Duration // 0: none
	deadline time.Time     // zero: none
	maxRetry int           // -1: asynq's default
	headers  map[string]string
}

// isOver reports whether the deadline has passed. asynq runs no such task.
func (s spec) isOver() bool { return !s.deadline.IsZero() && time.Now().After(s.deadline) }

// specOf reads a job. Each fault is a [*shaper.FieldError].
func (c Config) specOf(jobURL, method string, headers map[string][]string) (spec, error) {
	s := spec{name: c.Task, timeout: c.Timeout, maxRetry: -1, headers: make(map[string]string, len(headers)+5)}
	var errs []error
	fail := func(field, format string, args ...any) {
		errs = append(errs, &shaper.FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	if jobURL != "" {
		fail("url", "is for requests: a job of an asynq bucket goes to the bucket's queue; leave it out")
	}
	if method != "" {
		fail("method", "is for requests: leave it out for an asynq bucket")
	}
	timed := false
	for name, values := range headers {
		field := "headers." + name
		if len(values) != 1 {
			fail(field, "has %d values: a header of an asynq task has one", len(values))
			continue
		}
		value := values[0]
		var err error
		switch lower := strings.ToLower(name); {
		case lower == strings.ToLower(HeaderTask):
			s.name = value
		case lower == strings.ToLower(HeaderTimeout):
			timed = true
			if s.timeout, err = time.ParseDuration(value); err != nil || s.timeout < 0 || s.timeout > MaxTimeout || s.timeout%time.Second != 0 {
				fail(field, "%q: want whole seconds, 0s to %s", value, MaxTimeout)
			}
		case lower == strings.ToLower(HeaderDeadline):
			if s.deadline, err = time.Parse(time.RFC3339, value); err != nil {
				fail(field, "%q: want a time such as 2030-01-02T15:04:05Z", value)
			}
		case lower == strings.ToLower(HeaderMaxRetry):
			if s.maxRetry, err = strconv.Atoi(value); err != nil || s.maxRetry < 0 {
				fail(field, "%q: want 0 or more", value)
			}
		case strings.HasPrefix(lower, ownPrefix):
			fail(field, "is set by Tundish: headers that begin with %q are reserved", ownPrefix)
		default:
			s.headers[name] = value
		}
	}
	if strings.TrimSpace(s.name) == "" {
		fail("headers."+HeaderTask, "is missing, and the bucket names no asynq.task: say which type of task the job becomes")
	}
	if !s.deadline.IsZero() && !timed {
		s.timeout = 0 // as in asynq: its default applies only if neither is given
	}
	return s, errors.Join(errs...)
}

// CheckJob returns every fault of a job for this worker, joined, each a [*shaper.FieldError]; or nil. Enqueue calls it, and Deliver checks again,
// because the settings may have changed since.
func (c Config) CheckJob(job *shaper.Job) error {
	_, err := c.specOf(job.URL, job.Method, job.Headers)
	return err
}

// CheckFlow refuses settings of a flow's own for deliveries: an asynq bucket has one queue.
func (c Config) CheckFlow(own *shaper.OwnDelivery) error {
	var errs []error
	for field, isSet := range map[string]bool{"url": own.URL != "", "headers": len(own.Headers) > 0, "secrets": len(own.Secrets) > 0} {
		if isSet {
			errs = append(errs, &shaper.FieldError{Field: field, Reason: "is for requests: a flow of an asynq bucket has none"})
		}
	}
	return errors.Join(errs...)
}

// task builds the task of an attempt, and returns the job's settings for it.
func (c Config) task(a *shaper.Attempt, lease string) (*asynq.Task, spec, error) {
	s, err := c.specOf(a.URL, a.Method, a.Headers)
	if err != nil {
		return nil, s, err
	}
	s.headers[HeaderJob], s.headers[HeaderBucket], s.headers[HeaderAttempt] = a.ID, a.Bucket, strconv.Itoa(a.Number)
	if a.Flow != "" {
		s.headers[HeaderFlow] = a.Flow
	}
	if lease != "" {
		s.headers[HeaderLease] = lease
	}
	return asynq.NewTaskWithHeaders(s.name, a.Payload, s.headers), s, nil
}

// options returns the options of a task, except its id.
func (c Config) options(s spec) []asynq.Option {
	opts := []asynq.Option{asynq.Queue(c.Queue), asynq.Timeout(s.timeout)}
	if !s.deadline.IsZero() {
		opts = append(opts, asynq.Deadline(s.deadline))
	}
	retention := c.Retention
	if !c.byHandler() {
		retention = max(retention, handoverRetention)
	}
	if retention > 0 {
		opts = append(opts, asynq.Retention(retention))
	}
	if !c.byHandler() && s.maxRetry >= 0 {
		// Without any retry, a reply of Redis that asynq loses archives a task that never ran.
		opts = append(opts, asynq.MaxRetry(max(s.maxRetry, 1)))
	}
	return opts
}
