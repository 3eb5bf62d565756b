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

// Bounds of what a process tells of whom limits refuse.
const (
	refusedCallers = 20 // of each limit
	refusedLimits  = 50
)

// refusedOf is the name under which a process tells whom a limit has refused. No bucket has a colon in its name.
func refusedOf(limit string) string { return "refused:" + limit }

// refused appends what is new of whom limits refuse, by the name of the limit, "" where it is over.
func (m *Member) refused(tell func(name, text string)) {
	top := m.counts.RefusedCallers(time.Now(), refusedCallers)
	limits := slices.Sorted(maps.Keys(top))
	limits = limits[:min(len(limits), refusedLimits)]
	for limit := range m.refusedTold {
		if !slices.Contains(limits, limit) {
			delete(m.refusedTold, limit)
			tell(refusedOf(limit), "")
		}
	}
	for _, limit := range limits {
		text, err := json.Marshal(top[limit])
		if err == nil && m.refusedTold[limit] != string(text) { // texts and numbers always marshal
			m.refusedTold[limit] = string(text)
			tell(refusedOf(limit), string(text))
		}
	}
}

// addRefused takes in whom a process tells that a limit has refused. at is when it told it, in microseconds by the clock of Redis.
func (s *Snapshot) addRefused(limit, at, text string) {
	told, err := strconv.ParseInt(at, 10, 64)
	var callers []admission.RefusedCaller
	if err != nil || json.Unmarshal([]byte(text), &callers) != nil {
		return // of a version that tells something else
	}
	older := max(int(s.Now.Sub(time.UnixMicro(told))/time.Minute), 0)
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

// Refusals is how often a limit refused a caller.
type Refusals struct {
	Caller  string `json:"caller"`
	Refused int64  `json:"refused"`
}

// Refused is whom a limit has refused most in the last ten minutes, in all processes, and how often it has refused others. Each process tells of
// 20 callers, so of one that comes to many processes some may be among the others.
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
