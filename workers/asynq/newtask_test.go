package asynq_test

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	hibiken "github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/workers/asynq"
)

// TestNewTask enqueues tasks with options of their own by the client of asynq and by ours: both read the options, and those of Enqueue
// come after them.
func TestNewTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	theirs, ours := hibiken.NewClientFromRedisClient(w.redis), asynq.NewClient(w.producer)
	for i, row := range []struct{ task, enqueue []hibiken.Option }{
		{task: []hibiken.Option{hibiken.Queue(bucket), hibiken.MaxRetry(1)}},
		{task: []hibiken.Option{hibiken.Queue(bucket), hibiken.MaxRetry(1)}, enqueue: []hibiken.Option{hibiken.MaxRetry(2)}},
		{task: []hibiken.Option{hibiken.Queue("other"), hibiken.MaxRetry(1), hibiken.Timeout(time.Minute)}, enqueue: []hibiken.Option{hibiken.Queue(bucket)}},
		{task: []hibiken.Option{hibiken.TaskID("mine"), hibiken.MaxRetry(1), hibiken.ProcessIn(time.Hour)}, enqueue: []hibiken.Option{hibiken.Queue(bucket)}},
		{task: []hibiken.Option{hibiken.MaxRetry(1), hibiken.Unique(time.Millisecond)}, enqueue: []hibiken.Option{hibiken.Queue(bucket)}}, // an error
	} {
		payload := []byte(fmt.Sprint(i))
		for name, task := range map[string]*hibiken.Task{
			"NewTask":            asynq.NewTask("email:send", payload, row.task...),
			"NewTaskWithHeaders": asynq.NewTaskWithHeaders("email:send", payload, map[string]string{"traceparent": "00-1"}, append(row.task, hibiken.Timeout(time.Hour))...),
		} {
			if name != "NewTask" && i == 3 {
				continue // the same id again
			}
			runtime.GC() // the task is alive, and so are its options
			want, wantErr := theirs.Enqueue(task, row.enqueue...)
			got, err := ours.Enqueue(task, row.enqueue...)
			sameError(t, err, wantErr)
			if err == nil && wantErr == nil {
				sameInfo(t, got, want, append(row.task, row.enqueue...))
			}
		}
	}
}

// TestNewTaskCopiesOptions changes the slice of options after the task was made.
func TestNewTaskCopiesOptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	opts := []hibiken.Option{hibiken.Queue(bucket)}
	task := asynq.NewTask("email:send", nil, opts...)
	opts[0] = hibiken.Queue("other")
	if _, err := asynq.NewClient(w.producer).Enqueue(task); err != nil {
		t.Error(err)
	}
}

// TestTheirNewTask fails when the field goes by which the options of asynq.NewTask are found.
func TestTheirNewTask(t *testing.T) {
	t.Parallel()
	field, ok := reflect.TypeFor[hibiken.Task]().FieldByName("opts")
	if !ok || field.Type != reflect.TypeFor[[]hibiken.Option]() {
		t.Fatal("asynq.Task keeps its options elsewhere: options inside a task would be dropped in silence")
	}
	w := newWorld(t)
	client := asynq.NewClient(w.producer)
	copied := *asynq.NewTask("email:send", nil, hibiken.MaxRetry(3))
	for _, task := range []*hibiken.Task{hibiken.NewTask("email:send", nil, hibiken.MaxRetry(3)), &copied} {
		_, err := client.Enqueue(task, hibiken.Queue(bucket))
		if err == nil || !strings.Contains(err.Error(), "make the task with NewTask of github.com/tundish-io/tundish/workers/asynq") {
			t.Errorf("options inside a task: %v", err)
		}
	}
	if _, err := client.Enqueue(hibiken.NewTask("email:send", nil), hibiken.Queue(bucket)); err != nil {
		t.Errorf("a task of asynq without options: %v", err)
	}
}

// TestNewTaskForgets makes a task that goes out of use. It ends once its options are gone, too.
func TestNewTaskForgets(t *testing.T) {
	t.Parallel()
	task := asynq.NewTask("email:send", nil, hibiken.TaskID("forgotten"))
	if !asynq.KeepsTaskID("forgotten") {
		t.Fatal("the options are not kept")
	}
	runtime.KeepAlive(task)
	for asynq.KeepsTaskID("forgotten") {
		runtime.GC()
	}
}
