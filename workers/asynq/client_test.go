package asynq_test

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	hibiken "github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/workers/asynq"
)

// enqueuer is what a program calls of either client.
type enqueuer interface {
	Enqueue(task *hibiken.Task, opts ...hibiken.Option) (*hibiken.TaskInfo, error)
}

// TestMethodSet holds the methods of the client to those of asynq's.
func TestMethodSet(t *testing.T) {
	t.Parallel()
	theirs, ours := reflect.TypeFor[*hibiken.Client](), reflect.TypeFor[*asynq.Client]()
	for i := range theirs.NumMethod() {
		want := theirs.Method(i)
		got, ok := ours.MethodByName(want.Name)
		switch {
		case !ok:
			t.Errorf("the method %s is missing", want.Name)
		case strings.ReplaceAll(got.Type.String(), ours.String(), "") != strings.ReplaceAll(want.Type.String(), theirs.String(), ""):
			t.Errorf("%s is %s, want %s", want.Name, got.Type, want.Type)
		}
	}
	if theirs.NumMethod() == 0 {
		t.Error("asynq.Client has no methods: what are these compared with?")
	}
}

// step is one call of a row.
type step struct {
	task *hibiken.Task
	opts []hibiken.Option
}

// TestOptions runs every option and error through the client of asynq and through ours, on one Redis. Both give the same
// TaskInfo and the same error, or the documentation has the difference.
func TestOptions(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../../docs/asynq-reference.md"))(t)
	w := newWorld(t, func(b *shaper.Bucket, _ *asynq.Config) {
		b.DedupeWindow = time.Minute
		b.Retry = shaper.DefaultRetryPolicy()
		b.Retry.MaxAttempts = 26
	})
	theirs, ours := hibiken.NewClientFromRedisClient(w.redis), asynq.NewClient(w.producer)
	task := func(payload string) *hibiken.Task {
		return hibiken.NewTaskWithHeaders("email:send", []byte(payload), map[string]string{"traceparent": "00-1"})
	}
	one := func(payload string, opts ...hibiken.Option) []step {
		return []step{{task(payload), append(opts, hibiken.Queue(bucket))}}
	}
	twice := func(steps []step) []step { return append(steps, steps...) }
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	for _, row := range []struct {
		name  string
		steps []step
		fault string // of ours, where it is another one than that of asynq
		page  string // what the page says of the difference, "" if there is none
	}{
		{name: "no option but Queue", steps: one("plain")},
		{name: "Queue that is blank", steps: []step{{task("q"), []hibiken.Option{hibiken.Queue(" ")}}}},
		{name: "Queue that is no bucket", steps: []step{{task("q"), []hibiken.Option{hibiken.Queue("other")}}},
			fault: "unknown bucket", page: "`Queue` of a name that no bucket has"},
		{name: "the last option counts", steps: one("last", hibiken.MaxRetry(1), hibiken.MaxRetry(2))},
		{name: "MaxRetry", steps: one("mr", hibiken.MaxRetry(7))},
		{name: "MaxRetry below 0", steps: one("mr0", hibiken.MaxRetry(-7))},
		{name: "MaxRetry above 999", steps: one("mr1000", hibiken.MaxRetry(1000)), fault: "at most 999", page: "`MaxRetry` above 999"},
		{name: "Timeout", steps: one("t", hibiken.Timeout(90*time.Second))},
		{name: "Timeout with a fraction", steps: one("tf", hibiken.Timeout(1500*time.Millisecond))},
		{name: "Timeout of 0", steps: one("t0", hibiken.Timeout(0))},
		{name: "Timeout below a second", steps: one("t1", hibiken.Timeout(time.Millisecond)), fault: "whole seconds", page: "`Timeout` below a second"},
		{name: "Deadline", steps: one("d", hibiken.Deadline(soon))},
		{name: "Deadline and Timeout", steps: one("dt", hibiken.Deadline(soon), hibiken.Timeout(time.Minute))},
		{name: "Deadline that has passed", steps: one("dp", hibiken.Deadline(past)), fault: "has passed", page: "`Deadline` that has passed"},
		{name: "ProcessIn", steps: one("in", hibiken.ProcessIn(time.Hour))},
		{name: "ProcessIn below 0", steps: one("in0", hibiken.ProcessIn(-time.Hour))},
		{name: "ProcessAt", steps: one("at", hibiken.ProcessAt(soon))},
		{name: "ProcessAt in the past", steps: one("at0", hibiken.ProcessAt(past))},
		{name: "ProcessAt after 10 years", steps: one("at10", hibiken.ProcessAt(time.Now().AddDate(11, 0, 0))), fault: "10 years", page: "`ProcessAt` more than 10 years ahead"},
		{name: "TaskID", steps: one("id", hibiken.TaskID("my-id"))},
		{name: "TaskID twice", steps: twice(one("id2", hibiken.TaskID("my-id-2")))},
		{name: "TaskID with another payload", steps: append(one("a", hibiken.TaskID("my-id-3")), one("b", hibiken.TaskID("my-id-3"))...)},
		{name: "TaskID that is blank", steps: one("id0", hibiken.TaskID(" "))},
		{name: "TaskID with a colon", steps: one("idc", hibiken.TaskID("user:7"))},
		{name: "TaskID with other characters", steps: one("idx", hibiken.TaskID("user 7")), fault: "visible ASCII", page: "`TaskID` with a space"},
		{name: "Unique", steps: one("u", hibiken.Unique(time.Hour))},
		{name: "Unique twice", steps: twice(one("u2", hibiken.Unique(time.Hour)))},
		{name: "Unique with another payload", steps: append(one("u3", hibiken.Unique(time.Hour)), one("u4", hibiken.Unique(time.Hour))...)},
		{name: "Unique below a second", steps: one("u0", hibiken.Unique(time.Millisecond))},
		{name: "Unique below dedupe_window", steps: one("ud", hibiken.Unique(time.Second)), fault: "dedupe_window", page: "`Unique` with a TTL below `dedupe_window`"},
		{name: "Unique and TaskID", steps: one("ui", hibiken.Unique(time.Hour), hibiken.TaskID("x")), fault: "choose one", page: "`Unique` and `TaskID` together"},
		{name: "Retention", steps: one("r", hibiken.Retention(time.Hour)), fault: "asynq.retention", page: "`Retention`"},
		{name: "Retention of 0", steps: one("r0", hibiken.Retention(0))},
		{name: "Group", steps: one("g", hibiken.Group("g")), fault: "aggregate", page: "`Group`"},
		{name: "Flow", steps: one("f", asynq.Flow("tenant"))},
		{name: "no task", steps: []step{{nil, nil}}},
		{name: "no type", steps: []step{{hibiken.NewTask(" ", nil), nil}}},
		{name: "a header of ours", steps: []step{{hibiken.NewTaskWithHeaders("email:send", nil, map[string]string{"tundish-job": "x"}), []hibiken.Option{hibiken.Queue(bucket)}}},
			fault: "reserved", page: "begin with `tundish-`"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if (row.fault == "") != (row.page == "") || !strings.Contains(string(page), row.page) {
				t.Errorf("docs/asynq-reference.md does not have the difference %q", row.page)
			}
			for i, s := range row.steps {
				want, wantErr := theirs.Enqueue(s.task, s.opts...)
				got, err := enqueuer(ours).Enqueue(s.task, s.opts...)
				if row.fault != "" {
					if err == nil || !strings.Contains(err.Error(), row.fault) {
						t.Errorf("call %d: %v, want an error with %q", i+1, err, row.fault)
					}
					if wantErr != nil {
						t.Errorf("call %d: asynq has an error too, %v: there is no difference to write down", i+1, wantErr)
					}
					continue
				}
				sameError(t, err, wantErr)
				if err == nil && wantErr == nil {
					sameInfo(t, got, want, s.opts)
				}
			}
		})
	}
	if err := ours.Ping(); err != nil {
		t.Error(err)
	}
	if err := ours.Close(); err != nil {
		t.Error(err)
	}
	if _, err := ours.Enqueue(task("closed"), hibiken.Queue(bucket)); !errors.Is(err, shaper.ErrClosed) {
		t.Errorf("enqueue after Close: %v", err)
	}
}

// A client that has the name of its bucket only goes by the window and the attempts that dispatchers have stored, from its first call on.
func TestClientWithANameOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(b *shaper.Bucket, _ *asynq.Config) { b.DedupeWindow = time.Minute })
	w.dispatch()
	jobs := must.Get(producer.New(producer.Config{Redis: w.redis, Buckets: []shaper.Bucket{{Name: bucket}}}))(t)
	t.Cleanup(jobs.Close)
	w.await("the dispatcher's settings", func() bool { _, err := jobs.InForce(t.Context(), bucket); return err == nil })
	named := must.Get(producer.New(producer.Config{Redis: w.redis, Buckets: []shaper.Bucket{{Name: bucket}}}))(t)
	t.Cleanup(named.Close)
	c := asynq.NewClient(named)
	task := hibiken.NewTask("email:send", []byte("x"))
	if _, err := c.Enqueue(task, hibiken.Queue(bucket), hibiken.Unique(30*time.Second)); err == nil || !strings.Contains(err.Error(), "dedupe_window = 1m0s") {
		t.Errorf("Unique below the window in force, first call: %v", err)
	}
	info, err := c.Enqueue(task, hibiken.Queue(bucket), hibiken.Unique(2*time.Minute))
	if err != nil || info.MaxRetry != 2 {
		t.Errorf("%+v, %v, want MaxRetry 2", info, err)
	}
}

func sameError(t *testing.T, got, want error) {
	t.Helper()
	must.Equal(t, fmt.Sprint(got), fmt.Sprint(want), "error %v, want that of asynq, %v", got, want)
	for _, known := range []error{hibiken.ErrDuplicateTask, hibiken.ErrTaskIDConflict} {
		if errors.Is(got, known) != errors.Is(want, known) {
			t.Errorf("error %v is %v: %t, that of asynq: %t", got, known, errors.Is(got, known), errors.Is(want, known))
		}
	}
}

func sameInfo(t *testing.T, got, want *hibiken.TaskInfo, opts []hibiken.Option) {
	t.Helper()
	g, w := *got, *want
	named := false
	for _, o := range opts {
		named = named || o.Type() == hibiken.TaskIDOpt
	}
	if !named {
		if g.ID == "" {
			t.Error("the task has no id")
		}
		g.ID, w.ID = "", ""
	}
	if apart := g.NextProcessAt.Sub(w.NextProcessAt).Abs(); apart > 10*time.Second {
		t.Errorf("the task is processed at %s, want %s", g.NextProcessAt, w.NextProcessAt)
	}
	g.NextProcessAt, w.NextProcessAt = time.Time{}, time.Time{}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got\n%+v, want that of asynq,\n%+v", g, w)
	}
}

// TestRefusal has no counterpart in asynq.
func TestRefusal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(b *shaper.Bucket, _ *asynq.Config) { b.Capacity = 1 })
	client := asynq.NewClient(w.producer)
	must.Get(client.Enqueue(hibiken.NewTask("email:send", nil), hibiken.Queue(bucket)))(t)
	_, err := client.Enqueue(hibiken.NewTask("email:send", nil), hibiken.Queue(bucket))
	var refused *asynq.RefusedError
	if !errors.As(err, &refused) || refused.Refusal.Reason != shaper.ReasonBucketFull {
		t.Errorf("a full bucket answers %v", err)
	}
}
