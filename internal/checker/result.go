package checker

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Result is the verdict on a [History]. Lists of ids are sorted.
type Result struct {
	Admitted  int // different jobs accepted
	Refused   int // jobs refused
	Delivered int // deliveries, every one counted
	Dead      int // different dead letters

	// Lost jobs were admitted and neither delivered nor dead. A job that was
	// delivered and refused by the downstream is not lost.
	Lost []string

	// Unexpected jobs were delivered although no producer tried to enqueue them.
	Unexpected []string

	// Recovered jobs were delivered although their enqueue got no response.
	Recovered []string

	// Duplicated holds the jobs that were delivered more than once, with the number of deliveries beyond the first, and Extra is their sum. A retry that
	// the downstream asked for is among them. Repeated counts the deliveries of Extra with the attempt number of an earlier delivery: one attempt was
	// sent twice, which no retry explains.
	Duplicated map[string]int
	Extra      int
	Repeated   int

	// Rate is the mean of departures per second, from the first delivery to the last: (n-1)/(last-first). It is 0 if there are too few.
	Rate float64

	// Sorted, and counted from the first event of all.
	arrivals, refusals, departures []time.Duration
}

// Check judges the log so far.
func (h *History) Check() Result {
	h.mu.Lock()
	defer h.mu.Unlock()

	admitted := make(map[string]bool, len(h.admitted))
	for _, a := range h.admitted {
		admitted[a.id] = true
	}
	unknown := setOf(h.unknown)
	settled := setOf(h.dead) // dead or delivered
	r := Result{Admitted: len(admitted), Delivered: len(h.delivered), Dead: len(settled), Duplicated: map[string]int{}}
	for _, refused := range h.refused {
		r.Refused += refused.n
	}

	type attempt struct {
		id     string
		number int
	}
	tried := make(map[attempt]bool, len(h.delivered))
	times := make(map[string]int, len(h.delivered))
	for _, d := range h.delivered {
		if times[d.id]++; times[d.id] > 1 {
			r.Extra++
			r.Duplicated[d.id]++
		}
		this := attempt{d.id, d.attempt}
		if d.attempt > 0 && tried[this] {
			r.Repeated++
		}
		tried[this] = true
	}
	for id := range times {
		settled[id] = true
		switch {
		case admitted[id]:
		case unknown[id]:
			r.Recovered = append(r.Recovered, id)
		default:
			r.Unexpected = append(r.Unexpected, id)
		}
	}
	for id := range admitted {
		if !settled[id] {
			r.Lost = append(r.Lost, id)
		}
	}
	slices.Sort(r.Lost)
	slices.Sort(r.Unexpected)
	slices.Sort(r.Recovered)
	h.timeLocked(&r)
	return r
}

func setOf(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// timeLocked computes the times of the result. It requires that h.mu is held.
func (h *History) timeLocked(r *Result) {
	var start time.Time
	earliest := func(at time.Time) {
		if start.IsZero() || at.Before(start) {
			start = at
		}
	}
	for _, a := range h.admitted {
		earliest(a.at)
	}
	for _, refused := range h.refused {
		earliest(refused.at)
	}
	for _, d := range h.delivered {
		earliest(d.at)
	}

	for _, a := range h.admitted {
		r.arrivals = append(r.arrivals, a.at.Sub(start))
	}
	for _, refused := range h.refused {
		r.refusals = append(r.refusals, slices.Repeat([]time.Duration{refused.at.Sub(start)}, refused.n)...)
	}
	for _, d := range h.delivered {
		r.departures = append(r.departures, d.at.Sub(start))
	}
	slices.Sort(r.arrivals)
	slices.Sort(r.refusals)
	slices.Sort(r.departures)
	if n := len(r.departures); n > 1 && r.departures[n-1] > r.departures[0] {
		r.Rate = float64(n-1) / (r.departures[n-1] - r.departures[0]).Seconds()
	}
}

// Err returns nil, or an error that counts the lost and unexpected jobs and names some. It ignores duplicates: after a crash they are allowed.
func (r Result) Err() error {
	if len(r.Lost) == 0 && len(r.Unexpected) == 0 {
		return nil
	}
	return fmt.Errorf("checker: %s lost, %s unexpected", some(r.Lost), some(r.Unexpected))
}

// some returns the number of ids and the first few.
func some(ids []string) string {
	const shown = 3
	switch {
	case len(ids) == 0:
		return "0"
	case len(ids) <= shown:
		return fmt.Sprintf("%d (%s)", len(ids), strings.Join(ids, ", "))
	}
	return fmt.Sprintf("%d (%s, ...)", len(ids), strings.Join(ids[:shown], ", "))
}

// String returns the counts in one line.
func (r Result) String() string {
	return fmt.Sprintf("%d admitted, %d refused, %d delivered at %s/s, %d dead, %d lost, %d unexpected, %d duplicated, %d recovered",
		r.Admitted, r.Refused, r.Delivered, number(r.Rate), r.Dead, len(r.Lost), len(r.Unexpected), len(r.Duplicated), len(r.Recovered))
}

// MostIn returns the largest number of deliveries in any window of that length, wherever it begins. It is exact, not binned. A window holds its begin
// and not its end, so a window of 1 s holds only one of two deliveries at 0 s and 1 s.
func (r Result) MostIn(window time.Duration) int {
	most, first := 0, 0
	for i, at := range r.departures {
		for first <= i && at-r.departures[first] >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// ArrivalsPer counts the admissions in bins of that length. A bin includes its begin and excludes its end. [Result.RefusalsPer] and
// [Result.DeparturesPer] have the same bins: the first begins at the first event of all, and the last contains the last event.
func (r Result) ArrivalsPer(bin time.Duration) []int { return r.count(r.arrivals, bin) }

// RefusalsPer counts the refusals, in the bins of [Result.ArrivalsPer].
func (r Result) RefusalsPer(bin time.Duration) []int { return r.count(r.refusals, bin) }

// DeparturesPer counts the deliveries, in the bins of [Result.ArrivalsPer].
func (r Result) DeparturesPer(bin time.Duration) []int { return r.count(r.departures, bin) }

func (r Result) count(times []time.Duration, bin time.Duration) []int {
	last := time.Duration(-1)
	for _, sorted := range [][]time.Duration{r.arrivals, r.refusals, r.departures} {
		if len(sorted) > 0 {
			last = max(last, sorted[len(sorted)-1])
		}
	}
	if last < 0 || bin <= 0 {
		return nil
	}
	bins := make([]int, last/bin+1)
	for _, at := range times {
		bins[at/bin]++
	}
	return bins
}
