package test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// arrivalLog notes when jobs arrive, by the prefix of their ids and by these.
type arrivalLog struct {
	mu    sync.Mutex
	times map[string][]time.Time
	ids   map[string][]time.Time
}

func (a *arrivalLog) respond(_ http.ResponseWriter, _ *http.Request, id string, _ int) {
	prefix, _, _ := strings.Cut(id, "-")
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.times == nil {
		a.times, a.ids = map[string][]time.Time{}, map[string][]time.Time{}
	}
	now := time.Now()
	a.times[prefix], a.ids[id] = append(a.times[prefix], now), append(a.ids[id], now)
}

func (a *arrivalLog) of(prefix string) []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.times[prefix])
}

// byID are the arrivals of each job, the first one first.
func (a *arrivalLog) byID() map[string][]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := make(map[string][]time.Time, len(a.ids))
	for id, times := range a.ids {
		ids[id] = slices.SortedFunc(slices.Values(times), time.Time.Compare)
	}
	return ids
}

// latest is when the last one of a prefix arrived, zero if none did.
func (a *arrivalLog) latest(prefix string) time.Time {
	times := a.of(prefix)
	if len(times) == 0 {
		return time.Time{}
	}
	return slices.MaxFunc(times, time.Time.Compare)
}

// mostOf is how many instants lie in the worst window.
func mostOf(times []time.Time, window time.Duration) (most int) {
	first := 0
	for i, at := range times {
		for at.Sub(times[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
