package store

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// isLost reports whether Redis has lost the earlier settings, also if a process has written them again since.
func isLost(before, now map[string]string) bool {
	return before != nil && (now[FieldRateCount] == "" || before[fieldCreated] != "" && before[fieldCreated] != now[fieldCreated])
}

// lostNames bounds the names of buckets in a log line.
const lostNames = 20

// Loss is a loss of data in Redis: the first buckets whose settings are missing, and their number.
type Loss struct {
	At      time.Time
	Buckets []string
	Count   int
}

// reportLost logs and counts the buckets and pools whose settings Redis has lost, in one line.
func (s *Store) reportLost(ctx context.Context, list []*watched) {
	var buckets, pools []string
	for _, w := range list {
		for i, watch := range w.watches {
			switch {
			case !watch.lost:
			case i == 0:
				buckets = append(buckets, w.b.Name)
				s.Metrics.CountSettingsLost(w.b.Name)
			default:
				pools = append(pools, w.b.Keys.Pool)
			}
			watch.lost = false
		}
	}
	if s.OnLost != nil {
		s.OnLost(ctx, Loss{time.Now(), buckets[:min(len(buckets), lostNames)], len(buckets)})
	}
	s.Log.ErrorContext(ctx, "redis has lost data: the settings of buckets or pools that were in force are gone, and jobs, dead letters, pauses "+
		"and changes by operators of these may be gone with them; each dispatcher writes the settings of its configuration again and goes on. "+
		"Find out whether Redis was restarted without persistence (it needs appendonly yes) or flushed, pause and set again what operators had "+
		"changed, and enqueue again what is missing",
		"buckets", namesText(buckets), "pools", namesText(pools), "count", len(buckets))
}

// namesText returns the first names of a list, and how many more there are.
func namesText(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	text := strings.Join(names[:min(len(names), lostNames)], ", ")
	if more := len(names) - lostNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
