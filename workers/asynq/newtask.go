package asynq

import (
	"reflect"
	"runtime"
	"slices"
	"sync"
	"weak"

	"github.com/hibiken/asynq"
)

// fieldOpts is the field of asynq.Task that holds its options. asynq does not export it.
const fieldOpts = "opts"

// taskOptions maps each task of NewTask to its options. The map does not keep a task alive: an entry goes with its task.
var taskOptions sync.Map // weak.Pointer[asynq.Task] → []asynq.Option

// NewTask is asynq.NewTask for a program that enqueues by a [Client], which reads the options of the task, as the client of asynq does. Options passed
// to Enqueue come after the task's own: of conflicting options the last one counts.
func NewTask(typename string, payload []byte, opts ...asynq.Option) *asynq.Task {
	return NewTaskWithHeaders(typename, payload, nil, opts...)
}

// NewTaskWithHeaders is asynq.NewTaskWithHeaders, with options as in [NewTask].
func NewTaskWithHeaders(typename string, payload []byte, headers map[string]string, opts ...asynq.Option) *asynq.Task {
	task := asynq.NewTaskWithHeaders(typename, payload, headers, opts...)
	if len(opts) > 0 {
		key := weak.Make(task)
		taskOptions.Store(key, slices.Clone(opts))
		runtime.AddCleanup(task, func(key weak.Pointer[asynq.Task]) { taskOptions.Delete(key) }, key)
	}
	return task
}

// optionsOf returns the options of a task. ok is false if the task has options that cannot be read, because asynq.NewTask made it.
func optionsOf(task *asynq.Task) (opts []asynq.Option, ok bool) {
	if opts, ok := taskOptions.Load(weak.Make(task)); ok {
		return opts.([]asynq.Option), true
	}
	field := reflect.ValueOf(task).Elem().FieldByName(fieldOpts)
	return nil, !field.IsValid() || field.Len() == 0
}
