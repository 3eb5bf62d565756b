//go:build soak

package soak

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// moments are when jobs arrived at the receiver.
type moments struct {
	mu  sync.Mutex
	all []time.Time
}

func (m *moments) respond(http.ResponseWriter, *http.Request, string, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, time.Now())
}

// since are the arrivals as times from an instant on, sorted.
func (m *moments) since(origin time.Time) []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]time.Duration, len(m.all))
	for i, at := range m.all {
		all[i] = at.Sub(origin)
	}
	slices.Sort(all)
	return all
}

// mostWithin is how many lie in the fullest second between two times.
func mostWithin(all []time.Duration, from, to time.Duration) (most int) {
	for i, first := range all {
		if first < from || first+time.Second > to {
			continue
		}
		n := 0
		for i+n < len(all) && all[i+n] < first+time.Second {
			n++
		}
		most = max(most, n)
	}
	return most
}

func countWithin(all []time.Duration, from, to time.Duration) (n int) {
	for _, at := range all {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// opensAt is a whole second, and the cron line of it.
func opensAt(ahead time.Duration) (time.Time, string) {
	at := time.Now().UTC().Add(ahead + time.Second).Truncate(time.Second)
	return at, fmt.Sprintf("%d %d %d * * *", at.Second(), at.Minute(), at.Hour())
}

// slackOfArrival is how much later than it was sent the receiver may see a request.
const slackOfArrival = 25 * time.Millisecond

// TestWindowOpensOnABacklog: 20,000 jobs wait for a window of 30 s, and three dispatchers. The stream is even from the first second, and
// nothing arrives outside of the window.
func TestWindowOpensOnABacklog(t *testing.T) {
	const rate, jobs, length = 500, 20_000, 30 * time.Second
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		opens, cron := opensAt(25 * time.Second)
		var arrived moments
		s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Dispatchers: 3, Respond: arrived.respond, Bucket: fmt.Sprintf("shed = {low = 100, normal = 100, high = 100}\n[buckets.drain]\ncron = %q\nfor = %q", cron, length)})
		s.Post("w", jobs)
		if time.Now().After(opens.Add(-3 * time.Second)) {
			return "the jobs were enqueued too late"
		}
		closed := s.scriptCalls()
		<-time.After(time.Until(opens.Add(-time.Second)))
		closed = s.scriptCalls() - closed
		<-time.After(time.Until(opens.Add(length + 5*time.Second)))
		all := arrived.since(opens)
		if len(all) == 0 {
			t.Fatal("nothing arrived")
		}
		first, last, inFirst, fullest := all[0], all[len(all)-1], countWithin(all, 0, time.Second), mostWithin(all, 0, length)
		t.Logf("%d of %d jobs arrived; the first %s after the opening, the last %s before the end; in the first second %d, in the fullest %d; "+
			"%d scripts in the last seconds before the opening", len(all), jobs, first, length-last, inFirst, fullest, closed)
		if first < 0 || last > length+slackOfArrival {
			t.Errorf("the first arrived %s after the opening, the last %s after the end", first, last-length)
		}
		switch {
		case inFirst < rate*90/100 || fullest > rate*110/100:
			return fmt.Sprintf("%d in the first second, %d in the fullest, at %d/s", inFirst, fullest, rate)
		case len(all) < rate*int(length/time.Second)*98/100:
			return fmt.Sprintf("%d arrived in %s at %d/s", len(all), length, rate)
		}
		return ""
	})
}

// TestFinishBy: 10,000 jobs are to have left within 20 s, and at half time 5,000 more come. The last leaves in the last twentieth of the
// time, and no second between two changes of the backlog has a tenth more than that stretch's mean.
func TestFinishBy(t *testing.T) {
	const rate, jobs, more, length = 2000, 10_000, 5000, 20 * time.Second
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		opens, cron := opensAt(15 * time.Second)
		var arrived moments
		s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Dispatchers: 3, Respond: arrived.respond, Bucket: fmt.Sprintf("burst = 20\nshed = {low = 100, normal = 100, high = 100}\n[buckets.drain]\ncron = %q\nfor = \"1m\"\nfinish_by = %q", cron, length)})
		s.Post("a", jobs)
		if time.Now().After(opens.Add(-2 * time.Second)) {
			return "the jobs were enqueued too late"
		}
		<-time.After(time.Until(opens.Add(length / 2)))
		began := time.Since(opens)
		s.Post("b", more)
		came := time.Since(opens)
		<-time.After(time.Until(opens.Add(length + 3*time.Second)))
		all := arrived.since(opens)
		if len(all) != jobs+more {
			return fmt.Sprintf("%d of %d arrived in time", len(all), jobs+more)
		}
		last, settled := all[len(all)-1], came+200*time.Millisecond // what was claimed before has its slots
		before, after := countWithin(all, 0, began), countWithin(all, settled, last)
		meanBefore, meanAfter := float64(before)/began.Seconds(), float64(after)/(last-settled).Seconds()
		mostBefore, mostAfter := mostWithin(all, 0, began), mostWithin(all, settled, length)
		t.Logf("the last of %d jobs arrived %s before the finish; before half time %.1f/s and at most %d in a second, after it %.1f/s and at most %d; the %d more came within %s",
			len(all), length-last, meanBefore, mostBefore, meanAfter, mostAfter, more, came-began)
		switch {
		case all[0] < 0 || last > length:
			t.Errorf("the first arrived %s after the opening, the last %s after the finish", all[0], last-length)
		case last < length*95/100:
			return fmt.Sprintf("the last arrived %s before the finish", length-last)
		case float64(mostBefore) > 1.1*meanBefore || float64(mostAfter) > 1.1*meanAfter:
			return "a second is more than 10 % above the mean"
		}
		return ""
	})
}
