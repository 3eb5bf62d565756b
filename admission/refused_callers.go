package admission

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds of a [RefusedCallers].
const (
	RefusedMinutes = 10  // the period that a process remembers
	maxRefused     = 200 // distinct callers per limit and minute: the first ones
	maxRefusedName = 256 // bytes of the name of one
	maxRefusing    = 200 // limits
)

// RefusedCallers counts the callers that limits refuse, in the memory of a process, so a refusal writes nothing. It has a count for each of the
// first 200 callers per limit and minute, and one for all others. A nil *RefusedCallers counts nothing. It is safe for concurrent use.
type RefusedCallers struct {
	mu     sync.RWMutex
	limits map[string]*refusedBy
	desc   *prometheus.Desc
}

// refusedBy counts the callers that one limit refuses.
type refusedBy struct {
	mu      sync.Mutex
	minutes [RefusedMinutes]refusedMinute // by the number of the minute
}

type refusedMinute struct {
	number  int64
	callers map[string]int64
	others  int64
}

// RefusedCaller is how often a caller was refused. Caller is "" for all callers without a count of their own.
type RefusedCaller struct {
	Caller string `json:"caller"`

	// In the last minute, in the previous one, and so on.
	Minutes [RefusedMinutes]int64 `json:"minutes"`
}

// Sum returns the number of refusals in all minutes.
func (c *RefusedCaller) Sum() (n int64) {
	for _, in := range c.Minutes {
		n += in
	}
	return n
}

// RefusedCallersOf returns the counter of a registry, which limiters and clients with this registry share. It is nil for a nil registry.
func RefusedCallersOf(reg prometheus.Registerer) (*RefusedCallers, error) {
	if reg == nil {
		return nil, nil //nolint:nilnil // a nil *RefusedCallers counts nothing
	}
	r := &RefusedCallers{
		limits: map[string]*refusedBy{},
		desc:   prometheus.NewDesc("tundish_limit_refused_callers", "Callers that a limit refused in the last ten minutes, of each minute the first 200.", []string{"limit"}, nil),
	}
	err := reg.Register(r)
	if there, isThere := errors.AsType[prometheus.AlreadyRegisteredError](err); isThere {
		if known, isOne := there.ExistingCollector.(*RefusedCallers); isOne {
			return known, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("register the callers that limits refuse: %w", err)
	}
	return r, nil
}

// Describe implements [prometheus.Collector].
func (r *RefusedCallers) Describe(ch chan<- *prometheus.Desc) { ch <- r.desc }

// Collect implements [prometheus.Collector].
func (r *RefusedCallers) Collect(ch chan<- prometheus.Metric) {
	for limit, callers := range r.Top(time.Now(), maxRefused) {
		ch <- prometheus.MustNewConstMetric(r.desc, prometheus.GaugeValue, float64(len(callers)), limit)
	}
}

// Count counts a refusal of a limit.
func (r *RefusedCallers) Count(limit, caller string, now time.Time) {
	if r == nil {
		return
	}
	r.mu.RLock()
	by := r.limits[limit]
	r.mu.RUnlock()
	if by == nil {
		if by = r.add(limit); by == nil {
			return
		}
	}
	if len(caller) > maxRefusedName {
		caller = strings.ToValidUTF8(caller[:maxRefusedName], "")
	}
	by.mu.Lock()
	defer by.mu.Unlock()
	number := minuteOf(now)
	m := &by.minutes[number%RefusedMinutes]
	if m.number != number || m.callers == nil {
		*m = refusedMinute{number: number, callers: map[string]int64{}}
	}
	if _, known := m.callers[caller]; !known && len(m.callers) >= maxRefused {
		m.others++
		return
	}
	m.callers[caller]++
}

func minuteOf(now time.Time) int64 { return max(now.Unix()/int64(time.Minute/time.Second), 0) }

func (r *RefusedCallers) add(limit string) *refusedBy {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limits[limit] == nil {
		if len(r.limits) >= maxRefusing {
			return nil
		}
		r.limits[limit] = &refusedBy{}
	}
	return r.limits[limit]
}

// Top returns, for each limit, the callers that it refused most often in the last ten minutes: up to most, and then all others as one without a name.
func (r *RefusedCallers) Top(now time.Time, most int) map[string][]RefusedCaller {
	if r == nil {
		return nil
	}
	r.mu.RLock()
	limits := maps.Clone(r.limits)
	r.mu.RUnlock()
	all := map[string][]RefusedCaller{}
	for limit, by := range limits {
		if callers := by.callers(minuteOf(now)); len(callers) > 0 {
			all[limit] = TopRefused(callers, most)
		}
	}
	return all
}

// callers returns all callers of the last minutes.
func (b *refusedBy) callers(last int64) []RefusedCaller {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := map[string]*RefusedCaller{}
	note := func(caller string, age, n int64) {
		if n == 0 {
			return
		}
		if found[caller] == nil {
			found[caller] = &RefusedCaller{Caller: caller}
		}
		found[caller].Minutes[age] += n
	}
	for i := range b.minutes {
		m := &b.minutes[i]
		age := last - m.number
		if m.callers == nil || age < 0 || age >= RefusedMinutes {
			*m = refusedMinute{} // its memory is free
			continue
		}
		for caller, n := range m.callers {
			note(caller, age, n)
		}
		note("", age, m.others)
	}
	callers := make([]RefusedCaller, 0, len(found))
	for _, c := range found {
		callers = append(callers, *c)
	}
	return callers
}

// TopRefused returns the callers with most refusals, in that order: up to most, and then all others as one without a name.
func TopRefused(callers []RefusedCaller, most int) []RefusedCaller {
	slices.SortFunc(callers, func(a, b RefusedCaller) int {
		return cmp.Or(cmp.Compare(min(len(b.Caller), 1), min(len(a.Caller), 1)), cmp.Compare(b.Sum(), a.Sum()), strings.Compare(a.Caller, b.Caller))
	})
	var top []RefusedCaller
	others := RefusedCaller{}
	for _, c := range callers {
		if c.Caller != "" && len(top) < most {
			top = append(top, c)
			continue
		}
		for i, n := range c.Minutes {
			others.Minutes[i] += n
		}
	}
	if others.Sum() > 0 {
		top = append(top, others)
	}
	return top
}
