package asynq_test

import (
	"strings"
	"testing"
	"time"

	hibiken "github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/asynq"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	valid := asynq.DefaultConfig()
	valid.Queue = "default"
	must.OK(t, valid.Validate())
	for want, change := range map[string]func(*asynq.Config){
		"asynq.queue: is missing":            func(c *asynq.Config) { c.Queue = " " },
		`asynq.queue: "{a}": braces`:         func(c *asynq.Config) { c.Queue = "{a}" },
		"asynq.timeout: 1.5s: want":          func(c *asynq.Config) { c.Timeout = 1500 * time.Millisecond },
		"asynq.retention: -1s: want":         func(c *asynq.Config) { c.Retention = -time.Second },
		`asynq.settle: "both": want handler`: func(c *asynq.Config) { c.Settle = "both" },
	} {
		c := valid
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestCheckJob(t *testing.T) {
	t.Parallel()
	config := asynq.DefaultConfig()
	config.Queue = queue
	header := func(name string, values ...string) map[string][]string {
		return map[string][]string{asynq.HeaderTask: {"email:send"}, name: values}
	}
	for _, test := range []struct {
		name  string
		job   shaper.Job
		fault string // "" where the job is good
	}{
		{"a type", shaper.Job{Headers: header("traceparent", "00-1")}, ""},
		{"a type in small letters", shaper.Job{Headers: map[string][]string{"asynq-task": {"email:send"}}}, ""},
		{"no type", shaper.Job{}, "headers.Asynq-Task: is missing"},
		{"a blank type", shaper.Job{Headers: map[string][]string{asynq.HeaderTask: {" "}}}, "headers.Asynq-Task: is missing"},
		{"a URL", shaper.Job{URL: "https://example.com", Headers: header("a", "b")}, "url: "},
		{"a method", shaper.Job{Method: "GET", Headers: header("a", "b")}, "method: "},
		{"two values", shaper.Job{Headers: header("a", "b", "c")}, "headers.a: has 2 values"},
		{"a reserved header", shaper.Job{Headers: header("Tundish-Lease", "x")}, "headers.Tundish-Lease: is set by Tundish"},
		{"a timeout", shaper.Job{Headers: header(asynq.HeaderTimeout, "90s")}, ""},
		{"a timeout with a fraction", shaper.Job{Headers: header(asynq.HeaderTimeout, "1.5s")}, "headers.Asynq-Timeout: "},
		{"a timeout without a unit", shaper.Job{Headers: header(asynq.HeaderTimeout, "90")}, "headers.Asynq-Timeout: "},
		{"a deadline", shaper.Job{Headers: header(asynq.HeaderDeadline, "2030-01-02T15:04:05Z")}, ""},
		{"a deadline that is no time", shaper.Job{Headers: header(asynq.HeaderDeadline, "tomorrow")}, "headers.Asynq-Deadline: "},
		{"retries", shaper.Job{Headers: header(asynq.HeaderMaxRetry, "-1")}, "headers.Asynq-Max-Retry: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := config.CheckJob(&test.job)
			if test.fault == "" && err != nil || test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)) {
				t.Errorf("%v, want %q", err, test.fault)
			}
		})
	}
	own := &shaper.OwnDelivery{URL: "https://example.com"}
	if err := config.CheckFlow(own); err == nil {
		t.Error("a flow of an asynq bucket has a URL")
	}
	if err := config.CheckFlow(&shaper.OwnDelivery{}); err != nil {
		t.Error(err)
	}
}

// TestInvalidJobIsDead has settings that changed after the enqueue: the job cannot become a task.
func TestInvalidJobIsDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *shaper.Bucket, c *asynq.Config) { c.Task = "" })
	w.dispatch()
	w.enqueue(shaper.Job{Bucket: bucket, ID: "a"})
	if info := w.awaitState("a", shaper.StateDead); info.Last.Reason != "invalid" {
		t.Errorf("the dead letter says %+v", info.Last)
	}
}

func TestLateHandover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	worker := must.Get(asynq.New(w.config))(t)
	attempt := shaper.NewAttempt(time.Now().Add(-time.Minute), time.Second, nil)
	attempt.ID, attempt.Bucket = "a", bucket
	if outcome := worker.Deliver(t.Context(), attempt); outcome.Result != shaper.ResultReturned {
		t.Errorf("a permit that is void: %+v", outcome)
	}
	must.Equal(t, w.queueHolds(hibiken.TaskStatePending), 0, "the task is there")
}

// A handler ran the first attempt, and the deadline passed before the second: the dead letter does not say that no handler had started.
func TestDeadlineBeforeASecondAttempt(t *testing.T) {
	t.Parallel()
	config := asynq.DefaultConfig()
	config.Queue = queue
	deadline := time.Now().Add(-time.Second).Format(time.RFC3339)
	for number, want := range map[int]string{1: "before a handler started attempt 1", 2: "before a handler started attempt 2"} {
		attempt := shaper.NewAttempt(time.Now().Add(time.Minute), time.Second, nil)
		attempt.ID, attempt.Bucket, attempt.Number = "a", bucket, number
		attempt.Headers = map[string][]string{asynq.HeaderTask: {"email:send"}, asynq.HeaderDeadline: {deadline}}
		outcome := asynq.FromHandler(config, hibiken.NotFoundHandler()).Deliver(t.Context(), attempt)
		if outcome.Reason != asynq.ReasonDeadline || !strings.Contains(outcome.Detail, want) {
			t.Errorf("attempt %d: %+v", number, outcome)
		}
	}
}

// TestDeadlineOfAWaitingTask has no asynq server: a task waits until its deadline has passed. asynq would retry it for days. A job whose deadline
// has passed already becomes no task.
func TestDeadlineOfAWaitingTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatch()
	for id, in := range map[string]time.Duration{"waits": 2 * time.Second, "late": -time.Second} {
		w.enqueue(shaper.Job{Bucket: bucket, ID: id, Headers: map[string][]string{asynq.HeaderDeadline: {time.Now().Add(in).Format(time.RFC3339)}}})
		if info := w.awaitState(id, shaper.StateDead); info.Last.Reason != asynq.ReasonDeadline || info.Last.Detail == "" {
			t.Errorf("the dead letter of job %s says %+v", id, info.Last)
		}
	}
	w.wantNoTrace()
}
