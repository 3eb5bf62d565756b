package harness

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// ArrivalLog records when jobs arrive, by the prefix of their ids and by their ids.
type ArrivalLog struct {
	mu    sync.Mutex
	times map[string][]time.Time
	ids   map[string][]time.Time
}

// Respond records an arrival; it can be the Respond of a Plan.
func (a *ArrivalLog) Respond(_ http.ResponseWriter, _ *http.Request, id string, _ int) {
	prefix, _, _ := strings.Cut(id, "-")
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.times == nil {
		a.times, a.ids = map[string][]time.Time{}, map[string][]time.Time{}
	}
	now := time.Now()
	a.times[prefix], a.ids[id] = append(a.times[prefix], now), append(a.ids[id], now)
}

// Of returns when the jobs arrived whose ids begin with prefix.
func (a *ArrivalLog) Of(prefix string) []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.times[prefix])
}

// ByID are the arrivals of each job, the first one first.
func (a *ArrivalLog) ByID() map[string][]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := make(map[string][]time.Time, len(a.ids))
	for id, times := range a.ids {
		ids[id] = slices.SortedFunc(slices.Values(times), time.Time.Compare)
	}
	return ids
}

// Latest returns when the last job of a prefix arrived, zero if none did.
func (a *ArrivalLog) Latest(prefix string) time.Time {
	times := a.Of(prefix)
	if len(times) == 0 {
		return time.Time{}
	}
	return slices.MaxFunc(times, time.Time.Compare)
}

// MostOf returns the number of instants in the worst window.
func MostOf(times []time.Time, window time.Duration) (most int) {
	first := 0
	for i, at := range times {
		for at.Sub(times[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// Sorted are the arrivals of a prefix, the first one first.
func (a *ArrivalLog) Sorted(prefix string) []time.Time {
	times := a.Of(prefix)
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// All are the arrivals of all, the first one first.
func (a *ArrivalLog) All() []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []time.Time
	for _, times := range a.times {
		all = append(all, times...)
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// Crowded names a flow that has a window with more arrivals than its rate explains.
func (a *ArrivalLog) Crowded(stall *StallWatch, flows []string, rate int, spread time.Duration, windows ...time.Duration) string {
	for _, flow := range flows {
		times := a.Sorted(flow)
		if fault := stall.Crowded(func(window time.Duration) int { return MostOf(times, window) }, rate, spread, windows...); fault != "" {
			return "flow " + flow + ": " + fault
		}
	}
	return ""
}

// MostOfEach returns the highest number of arrivals of a single flow in a window.
func (a *ArrivalLog) MostOfEach(flows []string, window time.Duration) (most int) {
	for _, flow := range flows {
		most = max(most, MostOf(a.Sorted(flow), window))
	}
	return most
}

// ByFlow returns the arrivals of each flow that has some, the first one first.
func (a *ArrivalLog) ByFlow() map[string][]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	flows := make(map[string][]time.Time, len(a.times))
	for flow, times := range a.times {
		flows[flow] = slices.SortedFunc(slices.Values(times), time.Time.Compare)
	}
	return flows
}

// ByGroup returns the arrivals of each group.
func (a *ArrivalLog) ByGroup() map[string][]time.Time {
	groups := map[string][]time.Time{}
	for flow, times := range a.ByFlow() {
		group, _, _ := strings.Cut(flow, "_")
		groups[group] = append(groups[group], times...)
	}
	for _, times := range groups {
		slices.SortFunc(times, time.Time.Compare)
	}
	return groups
}

// Ahead returns by how much time the worst window of any length is ahead of a rate. A window with n arrivals beyond the first is ahead by the time of n
// at that rate, less its length. Departures that are even and arrive at most d late are never ahead by more than d.
func Ahead(times []time.Time, perSecond float64) (worst time.Duration) {
	if len(times) == 0 {
		return 0
	}
	var least time.Duration // the least lead of an earlier departure over the rate since the first
	for i, at := range times {
		due := time.Duration(float64(i) / perSecond * float64(time.Second))
		now := due - at.Sub(times[0])
		least = min(least, now)
		worst = max(worst, now-least)
	}
	return worst
}

// Early returns a fault if the arrivals of all are ahead of the rate of the pool in some window, otherwise "".
func (a *ArrivalLog) Early(stall *StallWatch, rate int, spread time.Duration) string {
	if worst, most := Ahead(a.All(), float64(rate)), spread+stall.SoFar(); worst > most {
		return fmt.Sprintf("some window has more in it than the rate explains: ahead by %s, want at most %s", worst, most)
	}
	return ""
}
