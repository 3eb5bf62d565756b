package fleet

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
)

// Bounds of the refused callers that a process reports.
const (
	refusedCallers = 20 // of each limit
	refusedLimits  = 50
)

// refusedOf returns the name under which a process reports the callers that a limit refused. No bucket has a colon in its name.
func refusedOf(limit string) string { return "refused:" + limit }

// refused reports the callers of each limit whose list has changed, and "" for a limit without refusals any more.
func (m *Member) refused(add func(name, text string)) {
	top := m.counts.RefusedCallers(time.Now(), refusedCallers)
	limits := slices.Sorted(maps.Keys(top))
	limits = limits[:min(len(limits), refusedLimits)]
	for limit := range m.refusedReported {
		if !slices.Contains(limits, limit) {
			delete(m.refusedReported, limit)
			add(refusedOf(limit), "")
		}
	}
	for _, limit := range limits {
		text, err := json.Marshal(top[limit])
		if err == nil && m.refusedReported[limit] != string(text) { // texts and numbers always marshal
			m.refusedReported[limit] = string(text)
			add(refusedOf(limit), string(text))
		}
	}
}

// addRefused adds the refused callers that one process reports for a limit. at is the time of the report, in microseconds by the clock of Redis.
func (s *Snapshot) addRefused(limit, at, text string) {
	sentAt, err := strconv.ParseInt(at, 10, 64)
	var callers []admission.RefusedCaller
	if err != nil || json.Unmarshal([]byte(text), &callers) != nil {
		return // of a version with another format
	}
	older := max(int(s.Now.Sub(time.UnixMicro(sentAt))/time.Minute), 0)
	if s.refused[limit] == nil {
		s.refused[limit] = map[string]int64{}
	}
	for i := range callers {
		c := &callers[i]
		for age, n := range c.Minutes {
			if age+older < admission.RefusedMinutes {
				s.refused[limit][c.Caller] += n
			}
		}
	}
}

// Refusals counts how often a limit refused a caller.
type Refusals struct {
	Caller  string `json:"caller"`
	Refused int64  `json:"refused"`
}

// Refused returns the callers that a limit refused most in the last ten minutes, over all processes, and the number of refusals of all others. Each
// process reports 20 callers per limit, so refusals of a caller of many processes may be partly among the others.
func (s *Snapshot) Refused(limit string) (most []Refusals, others int64) {
	for caller, n := range s.refused[limit] {
		switch {
		case caller == "":
			others = n
		case n > 0:
			most = append(most, Refusals{caller, n})
		}
	}
	slices.SortFunc(most, func(a, b Refusals) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), strings.Compare(a.Caller, b.Caller))
	})
	return most, others
}
