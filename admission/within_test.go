package admission

import (
	"context"
	"errors"
	"testing"
	"time"
)

// What is sent ends with nobody's patience but in time, and has the values of
// who sends it.
func TestWithin(t *testing.T) {
	t.Parallel()
	type name struct{}
	const timeout = time.Minute
	l := &Limiter{timeout: timeout}
	caller, cancel := context.WithCancel(context.WithValue(t.Context(), name{}, "first"))
	cancel()
	start := time.Now()
	var timers = map[time.Time]bool{}
	for i := range 64 {
		until := start.Add(timeout + time.Duration(i)*timeout/64)
		ctx := l.within(context.WithValue(caller, name{}, i), until)
		deadline, ok := ctx.Deadline()
		if early := until.Sub(deadline); !ok || early < 0 || early > timeout/16 {
			t.Errorf("question %d ends %s early", i, early)
		}
		if ctx.Err() != nil || context.Cause(ctx) != nil || ctx.Value(name{}) != i {
			t.Errorf("question %d: %v, value %v", i, context.Cause(ctx), ctx.Value(name{}))
		}
		timers[deadline] = true
	}
	if len(timers) > 16 {
		t.Errorf("%d timers", len(timers))
	}
	// One that waited for its turn ends before those that came after it.
	if deadline, _ := l.within(caller, start.Add(time.Second)).Deadline(); deadline.After(start.Add(time.Second)) {
		t.Errorf("it ends at %s", deadline)
	}
	ctx := l.within(caller, start)
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		t.Errorf("ended by %v", context.Cause(ctx))
	}
}
