package asynq

import "github.com/hibiken/asynq"

// KeepsTaskID reports whether the option TaskID(id) of a task is kept.
func KeepsTaskID(id string) (found bool) {
	taskOptions.Range(func(_, opts any) bool {
		for _, o := range opts.([]asynq.Option) {
			found = found || o.Type() == asynq.TaskIDOpt && o.Value() == id
		}
		return !found
	})
	return found
}
