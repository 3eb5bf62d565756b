package opsview

import (
	"fmt"
	"time"

	"github.com/tundish-io/tundish/shaper/operator"
)

// KeptResults are the results that a bucket keeps, with their bounds.
type KeptResults struct {
	Kept  int64 `json:"kept"`
	Bytes int64 `json:"bytes"`

	// When the oldest one was kept. Absent if there is none.
	Oldest *time.Time `json:"oldest,omitempty"`

	// The bounds of both: results_max and results_bytes. The flow with the most results, or bytes, drops its oldest ones.
	Max      int64 `json:"max"`
	MaxBytes int64 `json:"max_bytes"`

	// All results ever dropped by the bounds, before their retention had ended.
	Dropped int64 `json:"dropped"`

	// How long each is kept within the bounds: result_retention.
	Retention float64 `json:"retention_seconds"`

	// The bounds let results end before their retention.
	Short bool `json:"short,omitempty"`
}

// resultsOf shows the results of a bucket; nil of one that keeps none.
func resultsOf(k *operator.KeptResults, now time.Time) *KeptResults {
	if k.Retention == 0 {
		return nil
	}
	return &KeptResults{
		Kept: k.Kept, Bytes: k.Bytes, Oldest: instant(k.Oldest), Max: k.Max, MaxBytes: k.MaxBytes, Dropped: k.Dropped, Retention: k.Retention.Seconds(), Short: k.IsShort(now),
	}
}

// NoneDone explains an empty list of done jobs: the query, how many results the bucket keeps, and since when.
func (v *Bucket) NoneDone(asked string) string {
	k := v.Results
	switch {
	case v.Unused:
		return fmt.Sprintf("bucket %q has taken no job yet", v.Name)
	case k == nil:
		return fmt.Sprintf("bucket %q keeps no jobs that are done: set result_retention", v.Name)
	case k.Oldest == nil:
		return fmt.Sprintf("bucket %q keeps no job that is done yet: it keeps each for %s (result_retention) from its end on", v.Name, retention(k.Retention))
	}
	text := fmt.Sprintf("bucket %q keeps no job that is done%s. Results that it keeps: %d, the oldest of %s", v.Name, asked, k.Kept, k.Oldest.Format(time.RFC3339))
	if k.Short {
		return text + ": results_max or results_bytes is used up"
	}
	return text + fmt.Sprintf(" (result_retention is %s)", retention(k.Retention))
}

func retention(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// Text returns how many results there are, and how far back they go.
func (k *KeptResults) Text() string {
	text := fmt.Sprintf("%d of %d kept, %d of %d bytes", k.Kept, k.Max, k.Bytes, k.MaxBytes)
	if k.Oldest != nil {
		text += ", the oldest of " + k.Oldest.Format(time.RFC3339)
	}
	if k.Dropped > 0 {
		text += fmt.Sprintf("; %d dropped by these bounds", k.Dropped)
	}
	if k.Short {
		text += fmt.Sprintf(": they do not reach back result_retention (%s): raise results_max and results_bytes", retention(k.Retention))
	}
	return text
}
