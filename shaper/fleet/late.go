package fleet

import (
	"strconv"
	"strings"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
)

// isLess reports whether any counter is lower than before.
func isLess(is, before metrics.Late) bool {
	for i := range is {
		if is[i] < before[i] {
			return true
		}
	}
	return false
}

// lateText returns the late permits of each slot of the last minute, which follow the departures; "" if there are none.
func lateText(lates [Slots]metrics.Late) string {
	if lates == ([Slots]metrics.Late{}) {
		return ""
	}
	var text strings.Builder
	for _, late := range lates {
		for _, n := range late {
			text.WriteString(" " + strconv.FormatInt(n, 10))
		}
	}
	return text.String()
}

// Permits returns the departed and late permits of a bucket in the last minute.
func (s *Snapshot) Permits(bucket string) shaper.LatePermits {
	permits := shaper.LatePermits{Late: map[string]int64{}}
	for _, n := range s.Minute(bucket) {
		permits.Departed += n
	}
	newest := s.lastSlot()
	for i := range s.Processes {
		c, ok := s.Processes[i].counts[bucket]
		if !ok || len(c.slots) < Slots {
			continue
		}
		reasons := shaper.LateReasons()
		for j, n := range c.slots[Slots:] {
			if age := int(newest-c.slot) + j/len(reasons); age >= 0 && age < Slots && n > 0 {
				permits.Late[reasons[j%len(reasons)]] += n
			}
		}
	}
	return permits
}
