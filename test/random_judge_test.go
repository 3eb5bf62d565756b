package test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/test/harness"
)

// rounding is by how much slots, which are whole microseconds, may seem to be above their bound.
const rounding = 0.01

// judge holds what happened to what is promised.
func (s *soak) judge() {
	s.judgeJobs()
	grants, leases := s.watched.All()
	byPath := map[string]harness.Slots{}
	byID := map[string][]harness.Grant{}
	for _, g := range grants {
		for _, path := range pathsOf(g.ID) {
			byPath[path] = append(byPath[path], g.Slot)
		}
		byID[g.ID] = append(byID[g.ID], g)
	}
	fullest := map[string]float64{}
	for path, all := range byPath {
		slices.Sort(all)
		p := s.pacer(path)
		above, window := p.crowded(all)
		if above > rounding {
			s.t.Errorf("%s: %.2f slots more than rate and burst allow in a window of %s, of %d slots in all", path, above, window, len(all))
		}
		for _, q := range p.quotas {
			if most := all.Most(q.Per); most > int(q.Count) {
				s.t.Errorf("%s: %d slots in %s, its quota allows %d", path, most, q.Per, q.Count)
			}
		}
		if top, _, _ := strings.Cut(path, "/"); top == path {
			fullest[path] = float64(all.Most(2*time.Second)) / 2
		}
	}
	s.t.Logf("%d slots; most of 2 s, a second: %v", len(grants), fullest)
	s.judgeLeases(leases)
	s.judgePauses(grants)
	s.judgeArrivals(byID)
}

// judgeLeases holds every bound of jobs in flight, after each step that Redis made.
func (s *soak) judgeLeases(changes []harness.LeaseChange) {
	leased, most, count := map[string]bool{}, map[string]int{}, map[string]int{}
	for _, c := range changes {
		key := c.Bucket + " " + c.ID
		if leased[key] == c.Begins { // a lease that is extended, or one that ends twice
			continue
		}
		leased[key] = c.Begins
		for _, path := range pathsOf(c.ID) {
			if c.Begins {
				count[path]++
			} else {
				count[path]--
			}
			most[path] = max(most[path], count[path])
		}
	}
	tops := map[string]string{}
	for path, n := range most {
		bound := s.pacer(path).inFlight
		if bound > 0 && n > bound {
			s.t.Errorf("%s: %d in flight, its bound is %d", path, n, bound)
		}
		if top, _, _ := strings.Cut(path, "/"); top == path {
			tops[path] = fmt.Sprintf("%d of %d", n, bound)
		}
	}
	for path, n := range count {
		if n != 0 {
			s.t.Errorf("%s: %d leases have no end", path, n)
		}
	}
	s.t.Logf("most in flight: %v", tops)
}

// judgePauses holds that nothing was claimed that was paused, or cancelled.
func (s *soak) judgePauses(grants []harness.Grant) {
	for _, g := range grants {
		at := time.UnixMicro(g.At)
		for _, p := range s.pauses {
			if at.After(p.from) && at.Before(p.to) && slices.Contains(pathsOf(g.ID), p.path) {
				s.t.Errorf("job %s was claimed at %s, and %s was paused from %s to %s", g.ID, s.since(at), p.path, s.since(p.from), s.since(p.to))
			}
		}
		s.book.change(g.ID, func(j *soakJob) {
			if !j.cancelled.IsZero() && at.After(j.cancelled) {
				s.t.Errorf("job %s was claimed at %s, and cancelled at %s", g.ID, s.since(at), s.since(j.cancelled))
			}
		})
	}
}

func (s *soak) since(at time.Time) time.Duration { return at.Sub(s.began).Round(time.Microsecond) }

// judgeArrivals holds that each delivery has a slot of its own, and does not come before it. A dispatcher knows the
// clock of Redis as exactly as its fastest call was, which may be none of the first ones: so some
// may be early by as much as is claimed ahead, and half of them by hardly anything.
func (s *soak) judgeArrivals(granted map[string][]harness.Grant) {
	var early []time.Duration
	for _, job := range s.book.all() {
		var given harness.Slots
		for _, g := range granted[job.ID] {
			given = append(given, g.Slot)
		}
		slices.Sort(given)
		if len(job.deliveries) > len(given) {
			s.t.Errorf("job %s was delivered %d times and had %d slots", job.ID, len(job.deliveries), len(given))
			continue
		}
		for i, d := range job.deliveries { // wrongEnd has sorted them
			early = append(early, time.UnixMicro(given[i]).Sub(d.at))
		}
	}
	if len(early) == 0 {
		return
	}
	slices.Sort(early)
	median, worst, stall := early[len(early)/2], early[len(early)-1], s.stall.SoFar()
	if median > 10*time.Millisecond+stall || worst > soakHorizon+stall {
		s.t.Errorf("deliveries come before their slots: half of them by %s or more, one by %s", median, worst)
	}
	s.t.Logf("arrivals came %s to %s after their slots, half of them %s or less; the machine was late by %s at most", -worst, -early[0], -median, stall)
}

// judgeJobs holds that each job that was let in has an end, and one that somebody gave it.
func (s *soak) judgeJobs() {
	ends, cancelled, spent, open := map[string]int{}, 0, int64(0), 0
	for _, job := range s.book.all() {
		info, err := s.operator.Bucket(job.Bucket).Job(job.ID).Info(s.t.Context())
		if err != nil && !errors.Is(err, shaper.ErrNotFound) {
			s.t.Fatal(err)
		}
		gotIn := err == nil
		switch {
		case job.in && !gotIn:
			s.t.Errorf("job %s is lost: it was let in, was delivered %d times, and Redis does not know it", job.ID, len(job.deliveries))
			continue
		case !gotIn:
			continue
		case job.first > 1:
			s.t.Errorf("job %s was taken in %d times", job.ID, job.first)
		case !job.in:
			open++
		}
		if job.Bucket == plainBucket && job.Identity.Tier == "" {
			spent += job.Cost
		}
		ends[string(info.State)]++
		switch info.State {
		case shaper.StateDead:
			s.history.Dead(job.ID)
			ends["dead: "+info.Last.Cause]++
		case shaper.StateCancelled, shaper.StateDropped:
			s.history.Dead(job.ID) // as told
		}
		if info.State == shaper.StateCancelled && job.cancelled.IsZero() {
			cancelled++
		}
		if fault := s.wrongEnd(job, info); fault != "" {
			s.t.Errorf("job %s is %s: %s", job.ID, info.State, fault)
		}
	}
	infos, err := s.operator.BucketInfos(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	purged := int64(0)
	for _, info := range infos {
		purged += info.Purged
	}
	// Who cancels a job that was purged is told that it is cancelled.
	if all := ends[string(shaper.StateCancelled)]; purged < int64(cancelled) || purged > int64(all) {
		s.t.Errorf("%d jobs are cancelled, %d of them by nobody who cancels, and %d were purged", all, cancelled, purged)
	}
	if spent > soakSpends || s.book.full && spent < soakSpends-2 {
		s.t.Errorf("a caller that may spend %d spent %d; refused: %v", soakSpends, spent, s.book.full)
	}
	r := s.history.Check()
	s.t.Logf("%s; of those without an answer %d were in; how they ended: %v; %d purged", r, open, ends, purged)
	if err := r.Err(); err != nil {
		s.t.Error(err)
	}
	if r.Repeated > 0 {
		s.t.Errorf("%d deliveries had the number of an earlier one", r.Repeated)
	}
}

// wrongEnd says what is wrong with the end of a job, "" if nothing is.
func (s *soak) wrongEnd(job *soakJob, info shaper.JobInfo) string {
	ended := func(results ...shaper.Result) (n int) {
		for _, d := range job.deliveries {
			if slices.Contains(results, d.result) {
				n++
			}
		}
		return n
	}
	switch info.State {
	case shaper.StateDone:
		if ended(shaper.ResultDone) == 0 {
			return "no worker said so"
		}
	case shaper.StateDropped:
		if !job.dropped {
			return "nobody dropped it"
		}
	case shaper.StateCancelled: // counted with what was purged
	case shaper.StateDead:
		switch cause := info.Last.Cause; {
		case cause == shaper.CausePermanent && ended(shaper.ResultDead) > 0,
			cause == shaper.CauseExhausted && ended(shaper.ResultRetry) > 0,
			cause == shaper.CauseExpired && job.ExpiresIn > 0,
			cause == shaper.CausePoison && s.counts["kill dispatcher"]+s.counts["freeze dispatcher"] > 0:
		default:
			return fmt.Sprintf("of %q, which nobody caused; it was delivered %d times", cause, len(job.deliveries))
		}
	default:
		return "it has no end"
	}
	return s.explained(job)
}

// explained says if a job was delivered after it was done without a fault that explains it.
func (s *soak) explained(job *soakJob) string {
	slices.SortFunc(job.deliveries, func(a, b soakDelivery) int { return a.at.Compare(b.at) })
	for i, d := range job.deliveries {
		if d.result != shaper.ResultDone || i == len(job.deliveries)-1 || s.stall.SoFar() > soakLease/2 {
			continue
		}
		next := job.deliveries[i+1]
		faulty := slices.ContainsFunc(s.faults, func(f soakFault) bool {
			return f.process == d.process && f.from.Before(next.at) && f.to.After(d.at.Add(-soakLease))
		})
		if !faulty {
			return fmt.Sprintf("delivered at %s, done, and again at %s, without a fault of its dispatcher", s.since(d.at), s.since(next.at))
		}
	}
	return ""
}

// mayRemain are the keys that are left of buckets and pools without jobs; all others expire.
var mayRemain = regexp.MustCompile(`^tundish:(buckets|pools|\{[^}]*\}:(b:[^:]*:(conf|settings|pace|count|seen|seen_window|seen_minute|claims|flows|groups|idle|flow_settings|expiries)|p:[^:]*:(conf|pace|buckets|busy)))$`)

// wantNoKeys drops the dead letters and holds that no key is left that should not be.
func (s *soak) wantNoKeys() {
	for _, b := range s.buckets {
		if _, err := s.operator.As("soak").Bucket(b.Name).Dead().DropAll(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
	client := s.server.Client()
	keys, err := client.Keys(s.t.Context(), "*").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(keys)
	for _, key := range keys {
		ttl, err := client.PTTL(s.t.Context(), key).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		if ttl <= 0 && ttl != -2 && !mayRemain.MatchString(key) {
			s.t.Errorf("key %s is left and never expires", key)
		}
		if !strings.HasSuffix(key, ":flows") && !strings.HasSuffix(key, ":groups") {
			continue
		}
		states, err := client.HGetAll(s.t.Context(), key).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		for name, state := range states {
			if !strings.Contains(state, " 0 0 0 .") {
				s.t.Errorf("%s counts %q of %q, which has no jobs", key, state, name)
			}
		}
	}
	s.t.Logf("keys that are left: %s", strings.Join(keys, " "))
}
