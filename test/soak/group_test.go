//go:build soak

package soak

import (
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// The case of https://github.com/graphile/worker/issues/118: a sender of messages may send 3,000 a minute
// in all, 6 a second from each phone number, and 1,000 a minute for each of its clients. One client
// has 100,000 waiting, others a few.
const (
	senderRate  = 50 // 3,000/min
	numberRate  = 6
	clientRate  = 1000.0 / 60
	clientQuota = 1000

	bigBacklog, bigNumbers                  = 100_000, 100
	smallClients, smallNumbers, smallOfEach = 50, 3, 2 // jobs of each number
	busyJobs                                = 60       // of a client with one number
)

// senderRound is a round of turns: one departure of each client that has something waiting, which are the
// small ones, the big one and the busy one.
const senderRound = time.Duration(smallClients+2) * time.Second / senderRate

// besides is what a rate comes to at least beside one other client: with a burst of 1, each departure may have to
// wait for the next slot of the bucket behind one of the other, and the rate counts from then on.
func besides(rate float64) float64 { return 1 / (1/rate + 1.0/senderRate) }

func clientName(i int) string { return fmt.Sprint("c", i) }

// TestSenderWithClients holds what is promised to a group by its rate: each of the limits of bucket, group and
// flow in every window of any length, as the receiver sees it, and that what the big client has waiting is
// nobody else's wait.
func TestSenderWithClients(t *testing.T) {
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		s, a := startSender(t, `rate = "1000/m"`)
		first, fault := s.firstWave(a, stall)
		calm := time.Now()
		harness.Await(t, 20*time.Second, "the busy client is through", func() bool { return len(a.Of("busy_0")) == busyJobs })
		done := a.Latest("busy_0")
		big, busy := paceOf(between(a.ByGroup()["big"], calm, done)), paceOf(between(a.Sorted("busy_0"), calm, done))
		second, late := s.secondWave(a, stall)
		again := s.settledAs(s.purgeGroup("big"))

		bucket := harness.Ahead(a.All(), senderRate)
		flow, flowAhead := mostAhead(a.ByFlow(), numberRate)
		group, groupAhead := mostAhead(a.ByGroup(), clientRate)
		t.Logf("first wave: %s; second wave: %s; of the big client %.2f/s of %.2f/s, of the busy number %.2f/s of %d/s", first, second, big, clientRate, busy, numberRate)
		t.Logf("ahead of its rate in the worst window: the bucket %s, client %s %s, number %s %s", bucket, group, groupAhead, flow, flowAhead)
		may := harness.Steady + stall.SoFar()
		switch {
		case fault+late+again != "":
			return fault + late + again
		case max(bucket, groupAhead, flowAhead) > may:
			return fmt.Sprintf("some window has more in it than its rate explains: ahead by %s, want at most %s", max(bucket, groupAhead, flowAhead), may)
		case big < .98*besides(clientRate) || busy < .98*besides(numberRate):
			return fmt.Sprintf("%.2f/s of the big client and %.2f/s of the busy number: want 98 %% of %.2f/s and %.2f/s",
				big, busy, besides(clientRate), besides(numberRate))
		}
		return ""
	})
}

// TestSenderWithQuotas is the same with 1,000 in any minute instead of a rate: the big client may have them all
// at once, at the pace of the bucket, and then waits without anybody else being held up.
func TestSenderWithQuotas(t *testing.T) {
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		s, a := startSender(t, fmt.Sprintf(`quotas = ["%d/m"]`, clientQuota))
		first, fault := s.firstWave(a, stall)
		waved := time.Now()
		harness.Await(t, 40*time.Second, "the big client has used its quota up", func() bool { return len(a.ByGroup()["big"]) >= clientQuota })
		used := time.Now()
		bucket := paceOf(between(a.All(), waved, used))
		harness.Await(t, 20*time.Second, "the busy client is through", func() bool { return len(a.Of("busy_0")) == busyJobs })
		second, late := s.secondWave(a, stall)
		quietFor(t, used, 5*time.Second)
		again := s.settledAs(s.purgeGroup("big"), "big")

		groups := a.ByGroup()
		most := 0
		for _, times := range groups {
			most = max(most, harness.MostOf(times, time.Minute-harness.Steady-stall.SoFar())) // what is late makes a window shorter
		}
		all := harness.Ahead(a.All(), senderRate)
		flow, flowAhead := mostAhead(a.ByFlow(), numberRate)
		t.Logf("first wave: %s; second wave: %s; the quota was used up after %s, at %.2f/s of %d/s; most of a client in a minute %d",
			first, second, used.Sub(groups["big"][0]).Round(time.Millisecond), bucket, senderRate, most)
		t.Logf("ahead of its rate in the worst window: the bucket %s, number %s %s", all, flow, flowAhead)
		switch may := harness.Steady + stall.SoFar(); {
		case fault+late+again != "":
			return fault + late + again
		case most > clientQuota:
			return fmt.Sprintf("%d of a client in a minute, want %d", most, clientQuota)
		case max(all, flowAhead) > may:
			return fmt.Sprintf("some window has more in it than its rate explains: ahead by %s, want at most %s", max(all, flowAhead), may)
		case bucket < .95*senderRate:
			return fmt.Sprintf("%.2f/s while the big client had something left: want 95 %% of %d/s", bucket, senderRate)
		}
		return ""
	})
}

// startSender starts the system with the backlog of the big client.
func startSender(t *testing.T, ofClients string) (*system, *harness.ArrivalLog) {
	t.Helper()
	a := &harness.ArrivalLog{}
	s := start(t, redistest.Start(t), harness.Plan{
		Rate: senderRate, Dispatchers: 2, Capacity: 2 * bigBacklog, Respond: a.Respond,
		Bucket: flowTable(fmt.Sprintf(`rate = "%d/s"`, numberRate)) + groupTable(ofClients),
	})
	var numbers [][]string
	for n := range bigNumbers {
		numbers = append(numbers, inGroup("big", n, 0, bigBacklog/bigNumbers))
	}
	s.PostLines(inTurn(numbers...))
	return s, a
}

// firstWave has the small clients come with a few jobs each, of several numbers, and the busy one with more.
//
// A client waits a round for each of its turns, and one more where it comes while the slots of the first are
// given already: two rounds for a turn. So with k jobs it is through after k+1 rounds.
func (s *system) firstWave(a *harness.ArrivalLog, stall *harness.StallWatch) (figures, fault string) {
	s.T.Helper()
	const jobs = smallNumbers * smallOfEach
	lists := [][]string{inGroup("busy", 0, 0, busyJobs)}
	for i := range smallClients {
		for n := range smallNumbers {
			lists = append(lists, inGroup(clientName(i), n, 0, smallOfEach))
		}
	}
	posted := time.Now()
	s.PostLines(inTurn(lists...))
	last, longest := s.turnsFrom(a, posted, jobs)
	figures = fmt.Sprintf("%d jobs of each small client took %s, %d rounds are %s; the longest wait for a turn was %s",
		jobs, last.Round(time.Millisecond), jobs, jobs*senderRound, longest.Round(time.Millisecond))
	switch {
	case last > (jobs+1)*senderRound+stall.Cost():
		fault = fmt.Sprintf("the small clients were through after %s, want %s", last, (jobs+1)*senderRound)
	case longest > 2*senderRound+stall.Cost():
		fault = fmt.Sprintf("one waited %s for its turn, want %s", longest, 2*senderRound)
	}
	return figures, fault
}

// secondWave has each small client come with one job more: it is through within two rounds.
func (s *system) secondWave(a *harness.ArrivalLog, stall *harness.StallWatch) (figures, fault string) {
	s.T.Helper()
	var lines []string
	for i := range smallClients {
		lines = append(lines, inGroup(clientName(i), 0, smallOfEach, 1)...)
	}
	posted := time.Now()
	s.PostLines(lines)
	last, _ := s.turnsFrom(a, posted, 1)
	if last > 2*senderRound+stall.Cost() {
		fault = fmt.Sprintf("one of each took %s, want %s", last, 2*senderRound)
	}
	return fmt.Sprintf("one job of each took %s, two rounds are %s", last.Round(time.Millisecond), 2*senderRound), fault
}

// turnsFrom waits until so many jobs of each small client have arrived since they began to be posted, and says
// after how long the last one did, and how long one waited for its turn.
func (s *system) turnsFrom(a *harness.ArrivalLog, posted time.Time, jobs int) (last, longest time.Duration) {
	s.T.Helper()
	since := func() map[string][]time.Time {
		groups := a.ByGroup()
		for name, times := range groups {
			groups[name] = between(times, posted, time.Now())
		}
		return groups
	}
	harness.Await(s.T, 20*time.Second, "the small clients are through", func() bool {
		groups := since()
		for i := range smallClients {
			if len(groups[clientName(i)]) < jobs {
				return false
			}
		}
		return true
	})
	groups := since()
	for i := range smallClients {
		before := posted
		for _, at := range groups[clientName(i)] {
			longest = max(longest, at.Sub(before))
			before = at
		}
		last = max(last, before.Sub(posted))
	}
	return last, longest
}
