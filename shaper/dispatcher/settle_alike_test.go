package dispatcher

import (
	"testing"

	"github.com/tundish-io/tundish/shaper"
)

// Outcomes stand together in a script only if they differ in nothing but the job: any other difference would be lost.
func TestOutcomesThatStandTogether(t *testing.T) {
	t.Parallel()
	same := func() *settlement {
		return &settlement{job: &leased{claim: "c", epoch: 1}, result: shaper.ResultRetry, delay: 5, last: "{}", reason: "status", line: "l"}
	}
	if !isAlike(same(), same()) {
		t.Error("outcomes that differ in nothing do not stand together")
	}
	for name, change := range map[string]func(s *settlement){
		"claim":  func(s *settlement) { s.job.claim = "d" },
		"batch":  func(s *settlement) { s.job.batch++ },
		"epoch":  func(s *settlement) { s.job.epoch++ },
		"result": func(s *settlement) { s.result = shaper.ResultDead },
		"spent":  func(s *settlement) { s.result, s.spent = shaper.ResultDead, true },
		"delay":  func(s *settlement) { s.delay++ },
		"last":   func(s *settlement) { s.last = "{ }" },
		"signal": func(s *settlement) { s.signal++ },
		"reason": func(s *settlement) { s.reason = "timeout" },
		"line":   func(s *settlement) { s.line = "m" },
		"answer": func(s *settlement) { s.answered.head = "h" },
	} {
		other := same()
		change(other)
		if isAlike(same(), other) || isAlike(other, same()) {
			t.Errorf("outcomes with another %s stand together", name)
		}
	}
}
