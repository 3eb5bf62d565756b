package shaper

import "fmt"

// Bounds of learned estimates.
const (
	MaxLearnedEstimates     = 51 // per bucket: 50 subjects, plus one for all others. A caller holds at most as many as are free
	MaxSubjectBytes         = 200
	MaxLearnedEstimateBytes = 400
)

// LearnedEstimates are the estimates that a bucket's workers have learned from responses, by subject: the worker llm learns how many tokens requests to
// each model use. Redis keeps them with the bucket for 31 days, so all processes share them.
type LearnedEstimates map[string]LearnedEstimate

// LearnedEstimate is one learned estimate.
type LearnedEstimate struct {
	Answers int64  // how many responses it is based on. Of two estimates for a subject, Redis keeps the one with more
	Text    string // in the worker's own format
	Caller  string // the mark of the caller whose job was the first on the subject, "" none (see [CallerMark]): the estimate counts towards its share
}

// Validate returns the first fault, or nil.
func (l LearnedEstimates) Validate() error {
	if len(l) > MaxLearnedEstimates {
		return fmt.Errorf("%d learned estimates: want at most %d of a bucket", len(l), MaxLearnedEstimates)
	}
	for subject, estimate := range l {
		switch {
		case len(subject) > MaxSubjectBytes:
			return fmt.Errorf("learned estimate of %.20q…: its name is too long: want at most %d bytes", subject, MaxSubjectBytes)
		case estimate.Answers < 1:
			return fmt.Errorf("learned estimate of %q: %d answers: want at least 1", subject, estimate.Answers)
		case len(estimate.Text) > MaxLearnedEstimateBytes:
			return fmt.Errorf("learned estimate of %q: want a text of at most %d bytes", subject, MaxLearnedEstimateBytes)
		}
	}
	return nil
}
