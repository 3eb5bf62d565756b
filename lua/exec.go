package lua

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Exec runs a pipeline. The commands hold the results and the errors, also where nothing was sent: a connection that cannot be made, or a password
// that Redis refuses, is an error of the pipeline, and go-redis leaves the commands without one.
func Exec(ctx context.Context, pipe redis.Pipeliner) {
	cmds, err := pipe.Exec(ctx)
	if err == nil {
		return
	}
	for _, cmd := range cmds {
		if cmd.Err() != nil {
			return // they have their own
		}
	}
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
}
