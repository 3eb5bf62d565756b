package dispatcher

import (
	"fmt"
	"testing"
	"time"
)

// The first failed attempt of a flow is logged, then one in 10 s with the number of the others. Many flows share one turn.
func TestFailuresAreSampled(t *testing.T) {
	t.Parallel()
	var l failureLog
	at := time.Now()
	for _, step := range []struct {
		flow  string
		after time.Duration
		logs  bool
		more  int
	}{
		{"a", 0, true, 0}, {"a", 0, false, 0}, {"b", time.Second, true, 0}, {"a", 9 * time.Second, false, 0},
		{"a", 10 * time.Second, true, 2}, {"a", 19 * time.Second, false, 0}, {"b", 20 * time.Second, true, 0}, {"a", time.Minute, true, 1},
	} {
		if logs, more := l.note(step.flow, at.Add(step.after)); logs != step.logs || more != step.more {
			t.Errorf("%+v: %t, %d", step, logs, more)
		}
	}
	at = at.Add(time.Hour)
	logged := 0
	for i := range 3 * failureLogFlows {
		if logs, _ := l.note(fmt.Sprint("flow", i), at); logs {
			logged++
		}
	}
	if len(l.flows) != failureLogFlows || logged != failureLogFlows+1 {
		t.Errorf("%d flows, %d logged", len(l.flows), logged)
	}
	if logs, more := l.note("new", at.Add(failureLogEvery)); !logs || more != 0 || len(l.flows) != 1 {
		t.Errorf("%t, %d; %d flows", logs, more, len(l.flows))
	}
}
