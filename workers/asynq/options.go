package asynq

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/shaper"
)

// defaultQueue is where asynq enqueues a task without the option Queue.
const defaultQueue = "default"

// flowOption is an option of Tundish. asynq ignores options that it does not know.
type flowOption string

// Flow returns an option that names the flow of a task: see [shaper.Job]. The client of asynq ignores it.
func Flow(name string) asynq.Option { return flowOption(name) }

func (f flowOption) String() string       { return fmt.Sprintf("Flow(%q)", string(f)) }
func (flowOption) Type() asynq.OptionType { return -1 }
func (f flowOption) Value() any           { return string(f) }

// options are the options of one Enqueue.
type options struct {
	queue       string
	id          string
	flow        string
	hasMaxRetry bool
	maxRetry    int
	timeout     time.Duration
	deadline    time.Time
	unique      time.Duration
	processAt   time.Time
}

// readOptions reads options as asynq does: the last one of a kind counts. Where asynq has the same fault, the text is asynq's.
func readOptions(opts []asynq.Option) (*options, error) {
	o := &options{queue: defaultQueue}
	for _, opt := range opts {
		var err error
		switch value := opt.Value(); opt.Type() {
		case asynq.MaxRetryOpt:
			o.maxRetry, o.hasMaxRetry = value.(int), true
		case asynq.QueueOpt:
			if o.queue = value.(string); strings.TrimSpace(o.queue) == "" {
				err = errors.New("queue name must contain one or more characters")
			}
		case asynq.TimeoutOpt:
			if o.timeout = value.(time.Duration); o.timeout < 0 || o.timeout > 0 && o.timeout < time.Second || o.timeout > MaxTimeout {
				err = fmt.Errorf("%s: asynq counts whole seconds; want 1s to %s, or 0 for the default", opt, MaxTimeout)
			}
		case asynq.DeadlineOpt:
			o.deadline = value.(time.Time)
		case asynq.UniqueOpt:
			if o.unique = value.(time.Duration); o.unique < time.Second {
				err = errors.New("Unique TTL cannot be less than 1s") //nolint:staticcheck // the words of asynq
			}
		case asynq.ProcessAtOpt:
			o.processAt = value.(time.Time)
		case asynq.ProcessInOpt:
			o.processAt = time.Now().Add(value.(time.Duration))
		case asynq.TaskIDOpt:
			if o.id = value.(string); strings.TrimSpace(o.id) == "" {
				err = errors.New("task ID cannot be empty")
			} else if !shaper.ValidID(o.id) {
				err = fmt.Errorf("%s: is no id of a job: %s", opt, shaper.WantID)
			}
		case asynq.RetentionOpt:
			if value.(time.Duration) > 0 {
				err = fmt.Errorf("%s: Tundish does not keep tasks: set asynq.retention of the bucket, which keeps them in asynq", opt)
			}
		case asynq.GroupOpt:
			err = fmt.Errorf("%s: Tundish does not aggregate tasks: leave it out, or enqueue the task with the client of asynq", opt)
		default:
			if flow, ok := opt.(flowOption); ok {
				o.flow = string(flow)
			} // asynq ignores unknown options
		}
		if err != nil {
			return nil, err
		}
	}
	if o.id != "" && o.unique > 0 {
		return nil, errors.New("TaskID and Unique together: Tundish identifies a task by one id; choose one of the two")
	}
	return o, nil
}

// job builds the job of a task.
func (o *options) job(task *asynq.Task, bucket *shaper.Bucket) (shaper.Job, error) {
	job := shaper.Job{
		Bucket: o.queue, ID: o.id, Flow: o.flow, Payload: task.Payload(),
		Headers: make(map[string][]string, len(task.Headers())+4),
	}
	for name, value := range maps.All(task.Headers()) {
		for _, own := range []string{HeaderTask, HeaderTimeout, HeaderDeadline, HeaderMaxRetry} {
			if strings.EqualFold(name, own) {
				return job, fmt.Errorf("the task has the header %q, which Tundish uses for an option: give the option to Enqueue, or rename the header", name)
			}
		}
		job.Headers[name] = []string{value}
	}
	set := func(name, value string) { job.Headers[name] = []string{value} }
	set(HeaderTask, task.Type())
	if o.hasMaxRetry {
		if job.MaxAttempts = o.maxRetry + 1; job.MaxAttempts > shaper.MaxTries {
			return job, fmt.Errorf("MaxRetry(%d): want at most %d", o.maxRetry, shaper.MaxTries-1)
		}
		set(HeaderMaxRetry, strconv.Itoa(o.maxRetry))
	}
	if o.timeout > 0 {
		set(HeaderTimeout, o.timeout.Truncate(time.Second).String())
	}
	now := time.Now()
	if !o.deadline.IsZero() {
		left := o.deadline.Sub(now).Truncate(time.Microsecond)
		if left <= 0 {
			return job, fmt.Errorf("Deadline(%s) has passed: no handler would end in time", o.deadline.Format(time.RFC3339))
		}
		set(HeaderDeadline, o.deadline.UTC().Format(time.RFC3339))
		if left <= shaper.MaxDelay {
			job.ExpiresIn = left
		}
	}
	if o.processAt.After(now) {
		job.NotBefore = o.processAt
	}
	if o.unique > 0 {
		if bucket.DedupeWindow > o.unique {
			return job, fmt.Errorf("Unique(%s): bucket %q remembers ids for longer (dedupe_window = %s): raise the TTL, or lower dedupe_window",
				o.unique, o.queue, bucket.DedupeWindow)
		}
		job.ID = contentID(o.queue, task)
	}
	_, err := DefaultConfig().specOf(job.URL, job.Method, job.Headers)
	return job, err
}

// contentID returns an id from the fields that make a task unique for asynq: its queue, type and payload.
func contentID(queue string, task *asynq.Task) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%d:%s%d:%s", len(queue), queue, len(task.Type()), task.Type())
	sum.Write(task.Payload())
	return "unique-" + base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
}
