package app

import (
	"context"
	"errors"
)

// stage is a part of a daemon that runs until its ctx ends.
type stage func(ctx context.Context) error

// runStages runs all stages at once until ctx ends or one of them returns. Then it stops them in order, each after the previous one has ended. So no
// stage accepts work while the next one drains. It returns their errors, joined, and leaves no goroutine behind.
func runStages(ctx context.Context, stages ...stage) error {
	running, ended := context.WithCancel(ctx)
	defer ended()
	stops := make([]context.CancelFunc, len(stages))
	results := make([]chan error, len(stages))
	for i, run := range stages {
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		stops[i], results[i] = stop, make(chan error, 1)
		go func() {
			defer ended()
			results[i] <- run(own)
		}()
	}
	<-running.Done()
	var errs []error
	for i, stop := range stops {
		stop()
		errs = append(errs, <-results[i])
	}
	return errors.Join(errs...)
}
