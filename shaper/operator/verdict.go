package operator

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/fleet"
)

// Verdict says whether jobs of a bucket are delivered, and what keeps the waiting ones. Every view of a bucket shows it.
type Verdict struct {
	Bucket string

	// Code is [WhySends] only if the deliveries that succeeded in the last 30 seconds are at least 90 % of the rate; [WhyEmpty] if nothing
	// waits; else the code of the cause that keeps most jobs.
	Code WhyCode

	Rate      admission.Rate // the effective rate, without its downstream and its pool
	Succeeded float64        // successful deliveries a second in the last 30 seconds
	Waits     int64          // jobs that wait, also for a later time
	Due       int64          // of these, the jobs that are due
	OldestAge time.Duration  // of the oldest job that was read; 0: not known

	// Blocked lists what keeps the waiting jobs, most jobs first: at most 20 causes, then one per code for all other flows. The sum of their jobs is
	// Waits.
	Blocked []Blocked

	// Looked and Flows are how many flows were examined, and how many exist. If not all were, Blocked is an estimate from a sample. Both are 0 in a
	// bucket without flows.
	Looked, Flows int64

	Attempts, Failed int64  // attempts that ended in the last minute; of these, the unsuccessful ones
	Reason           string // of the last unsuccessful one

	Empty        time.Time // when the last of the waiting jobs is sent, at the earliest; zero: none waits, or not known
	EmptyUnknown string    // why it is not known, such as "4 flows are blocked"
	Grows        float64   // by how many jobs a second the backlog grows; 0: it does not
	Full         time.Time // when it has reached the capacity at that pace; zero: it does not grow

	Left   int64       // jobs that will be left at the finish of the delivery window, as it goes now; 0: none, or the bucket has no finish
	Late   shaper.Late // why, by the rate alone; Blocked has what keeps them
	Finish time.Time   // zero where Left is 0

	now      time.Time
	dead     int64
	isPaused bool
	hours    *shaper.Hours
	notes    []string // for the sentence
}

// Blocked is one cause that keeps jobs from being delivered.
type Blocked struct {
	Code  WhyCode
	Scope shaper.Scope
	Name  string // of the scope; "" if Flows is above 1
	Group string // of a flow in a group
	Flows int64  // flows that share the entry; 0 of a cause of another scope

	Jobs      int64
	OldestAge time.Duration // 0: not known
	Since     time.Time     // zero: not known
	Until     time.Time     // when it ends at the earliest; zero: not known, or not before somebody acts
	Reason    string        // of a receiver's response: one word such as http_500

	// Action is the command that ends the cause, or shows what has to be repaired: its words, without the name of the program. Empty: the cause ends
	// by itself.
	Action []string

	// Then is the command to run after the repair that Action shows, as its words: it makes jobs due that wait for another attempt. Empty: jobs are
	// sent without it.
	Then []string

	detail string // for the sentence
	isLeft bool   // most requests in flight are with no running process
}

// IsProblem reports whether people should look at the bucket. It is true if due jobs are not delivered at the bucket's rate, and the cause is neither
// its timetable nor the rate itself; or if jobs will be left at the finish of its window.
func (v *Verdict) IsProblem() bool {
	switch v.Code {
	case WhySends, WhyEmpty, WhyLater, WhyStarting, WhyRate:
		return v.Left > 0
	case WhyClosed: // without a time only a drain opens it
		return v.Blocked[0].Until.IsZero()
	default:
		return true
	}
}

// IsStalled reports whether jobs are due and no delivery has succeeded in the last 30 seconds, though one should have.
func (v *Verdict) IsStalled() bool {
	return v.IsProblem() && v.Succeeded == 0 && (v.Due > 0 || v.Code == WhyFailing) && v.Code != WhyPaused && v.Code != WhyClosed && v.Code != WhyQuota && v.Code != WhyBudget
}

// Verdicts returns the verdict of each of the buckets. It costs five or six round trips: what waits of 1000 flows of one bucket, or of 200 flows of each of
// several, fewer where the store is slow, and what all processes report.
func (o *Operator) Verdicts(ctx context.Context, infos []BucketInfo) ([]Verdict, error) {
	if len(infos) == 0 {
		return nil, nil
	}
	snapshot, err := o.Fleet().Look(ctx)
	if err != nil {
		return nil, err
	}
	return o.verdicts(ctx, infos, snapshot)
}

func (o *Operator) verdicts(ctx context.Context, infos []BucketInfo, snapshot *fleet.Snapshot) ([]Verdict, error) {
	seen, err := o.lookAtWaiting(ctx, infos)
	if err != nil {
		return nil, err
	}
	verdicts := make([]Verdict, len(infos))
	for i := range infos {
		for _, other := range []string{infos[i].FirstName, infos[i].EffectiveName} {
			if other != "" && other != infos[i].Name {
				snapshot.Rename(other, infos[i].Name)
			}
		}
		verdicts[i] = decide(&infos[i], &seen[i], snapshot)
	}
	return verdicts, nil
}

// judgement is a verdict in the making.
type judgement struct {
	*BucketInfo

	seen     *waiting
	progress fleet.Progress
	fleet    *fleet.Snapshot
	busy     time.Duration // for how long deliveries could have been counted
	asked    float64       // requests a second that deliveries are compared with
	keepsUp  bool          // enough deliveries succeed
	stop     *Blocked      // the cause that keeps all jobs of the bucket; nil: there is none in the bucket or its pool
	rest     Blocked       // of due jobs that nothing of their flow keeps
	oldest   time.Time     // when the oldest job that was read was enqueued
	causes   []Blocked
}

// decide decides whether a bucket delivers, and what keeps it. No other function does.
func decide(b *BucketInfo, seen *waiting, s *fleet.Snapshot) Verdict {
	j := &judgement{BucketInfo: b, seen: seen, fleet: s, progress: s.Progress(b.Name)}
	v := Verdict{
		Bucket: b.Name, Rate: b.rateInForce(), Waits: b.waits(), Looked: seen.looked, Flows: seen.known, now: b.Now, dead: b.Dead, isPaused: b.Pause != nil, hours: b.Hours,
		Succeeded: float64(j.progress.Succeeded) / j.progress.Window.Seconds(),
		Attempts:  j.progress.Attempts, Failed: j.progress.Unsuccessful, Reason: j.progress.Reason, Empty: b.Empty,
	}
	v.grows(j)
	if v.Waits == 0 {
		v.Code = WhyEmpty
		if closed := v.closed(); closed != "" {
			v.notes = append(v.notes, closed)
		}
		v.noteUsedUp(b)
		return v
	}
	for i := range seen.flows {
		if at := seen.flows[i].oldest; !at.IsZero() && (j.oldest.IsZero() || at.Before(j.oldest)) {
			j.oldest = at
		}
	}
	if !j.oldest.IsZero() {
		v.OldestAge = max(b.Now.Sub(j.oldest), 0)
	} else {
		v.OldestAge = b.OldestAge
	}
	j.busy = j.couldSendFor(v.OldestAge)
	j.asked = j.lately(v.Rate)
	j.keepsUp = j.succeedsEnough()
	j.stop, j.rest = j.ofBucket(), j.ofRest(v.Rate)
	moves := int64(0)
	sum := int64(0)
	for i := range seen.flows {
		due, kept := j.flow(&seen.flows[i])
		v.Due, moves, sum = v.Due+due, moves+due-kept, sum+seen.flows[i].waits
	}
	if sum == 0 { // the sample has none of the flows that wait
		j.rest.Jobs, v.Due, moves, sum = v.Waits, v.Waits, v.Waits, v.Waits
		j.add(j.rest, shaper.ScopeBucket, b.Name, "", v.Waits, time.Time{})
	}
	if !seen.isSample() {
		v.Waits = sum
	}
	v.Due = int64(math.Round(float64(v.Due) * float64(v.Waits) / float64(sum)))
	v.Blocked = scaled(merged(j.causes, seen.isSample()), v.Waits, sum, float64(max(seen.known, 1))/float64(max(seen.looked, 1)))
	for i := range v.Blocked {
		v.Blocked[i].Action = j.action(&v.Blocked[i])
		v.Blocked[i].Then = j.afterRepair(&v.Blocked[i])
	}
	v.Code = v.Blocked[0].Code
	if j.keepsUp && moves > 0 && j.stop == nil {
		v.Code = WhySends
	}
	v.noteEmpty()
	v.noteHost(j)
	v.foresee(j)
	return v
}

// flow adds what keeps the jobs of a flow. It returns how many are due, and how many of these do not move at all.
func (j *judgement) flow(f *waitingFlow) (due, kept int64) {
	due = max(f.waits-f.later, 0)
	later := f.later
	cause := j.ofFlow(f)
	takes := func(c Blocked, jobs int64) {
		scope, name, group := c.Scope, c.Name, ""
		if scope == shaper.ScopeFlow {
			name, group = f.name, f.group
		}
		j.add(c, scope, name, group, jobs, f.oldest)
	}
	switch {
	case cause == nil:
		takes(j.restOf(f), due)
	case cause.Code.needsAPerson(): // jobs that become due wait too
		takes(*cause, due+later)
		return due, due
	case cause.Code == WhyBreaker || cause.Code == WhyHeld: // an attempt that failed waits for the same receiver
		takes(*cause, due+f.retries)
		later -= f.retries
		kept = due
	default:
		takes(*cause, due)
		if cause.Code != WhyRate && cause.Code != WhyAdaptiveRate {
			kept = due
		}
	}
	retries := min(f.retries, later)
	scope, name := shaper.ScopeBucket, j.Name
	if f.own != nil {
		scope, name = shaper.ScopeFlow, f.name
	}
	reason := j.progress.Reason
	if f.own != nil && f.own.downstream != nil && f.own.downstream.Reason != "" {
		reason = f.own.downstream.Reason
	}
	takes(Blocked{Code: WhyFailing, Scope: scope, Name: name, Reason: reason, Until: f.nextDue}, retries)
	takes(Blocked{Code: WhyLater, Scope: scope, Name: name, Until: f.nextDue}, later-retries)
	return due, kept
}

// add adds jobs to a cause.
func (j *judgement) add(c Blocked, scope shaper.Scope, name, group string, jobs int64, oldest time.Time) {
	if jobs <= 0 {
		return
	}
	c.Scope, c.Name, c.Group, c.Jobs = scope, name, group, jobs
	if scope == shaper.ScopeFlow {
		c.Flows = 1
	}
	if !oldest.IsZero() {
		c.OldestAge = max(j.Now.Sub(oldest), 0)
	}
	for i := range j.causes {
		if known := &j.causes[i]; known.Code == c.Code && known.Scope == scope && known.Name == name && known.Group == group {
			known.take(&c)
			return
		}
	}
	j.causes = append(j.causes, c)
}

// take adds the jobs of the same cause.
func (c *Blocked) take(o *Blocked) {
	c.Jobs += o.Jobs
	c.OldestAge = max(c.OldestAge, o.OldestAge)
	if !o.Since.IsZero() && (c.Since.IsZero() || o.Since.Before(c.Since)) {
		c.Since = o.Since
	}
	if c.Until.IsZero() || !o.Until.IsZero() && o.Until.Before(c.Until) {
		c.Until = o.Until
	}
}

// mostBlocked is how many causes a verdict lists separately.
const mostBlocked = 20

// merged returns causes, most jobs first. Flows after the first causes are one cause for each code; in a sample, all flows are.
func merged(causes []Blocked, isSample bool) []Blocked {
	byJobs := func(a, b Blocked) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(slices.Index(WhyCodes(), a.Code), slices.Index(WhyCodes(), b.Code)), cmp.Compare(a.Name, b.Name))
	}
	slices.SortFunc(causes, byJobs)
	var list []Blocked
	others := map[WhyCode]int{} // where the cause of other flows is in the list
	for i := range causes {
		c := causes[i]
		if c.Scope != shaper.ScopeFlow || i < mostBlocked && !isSample {
			list = append(list, c)
			continue
		}
		if at, known := others[c.Code]; known {
			list[at].take(&c)
			list[at].Flows++
			list[at].Name, list[at].Group, list[at].Reason, list[at].detail = "", "", "", ""
			continue
		}
		others[c.Code] = len(list)
		list = append(list, c)
	}
	slices.SortFunc(list, byJobs)
	return list
}

// scaled scales the causes of a sample with sum jobs to all waiting jobs. flows is how many flows each flow of the sample represents.
func scaled(causes []Blocked, waits, sum int64, flows float64) []Blocked {
	if waits == sum {
		return causes
	}
	left := waits
	for i := range causes {
		c := &causes[i]
		c.Jobs = int64(float64(c.Jobs) * float64(waits) / float64(sum))
		left -= c.Jobs
		if c.Flows > 1 {
			c.Flows = int64(math.Round(float64(c.Flows) * flows))
		}
	}
	causes[0].Jobs += left
	return slices.DeleteFunc(causes, func(c Blocked) bool { return c.Jobs <= 0 })
}

// grows sets by how much the backlog grows, and when it is full.
func (v *Verdict) grows(j *judgement) {
	more := j.progress.Arrived - j.progress.Gone
	free := j.Capacity - j.Unfinished - j.Callbacks
	const least = 3 // jobs: a smaller change is chance
	if more < least || v.Waits == 0 || free <= 0 {
		return
	}
	if j.Now.Sub(j.resumed) < j.progress.Window {
		return // it grew while it was paused
	}
	v.Grows = float64(more) / j.progress.Window.Seconds()
	const furthest = 30 * 24 * time.Hour
	if in := float64(free) / v.Grows; in < furthest.Seconds() {
		v.Full = j.Now.Add(time.Duration(in * float64(time.Second)))
	}
}

// noteUsedUp notes which quota or budget of an empty bucket is used up: a client of a proxy was perhaps refused, and its user asks why.
func (v *Verdict) noteUsedUp(b *BucketInfo) {
	if used := usedUp(b.Quotas, b.Budgets, b.Now); used != nil {
		what := "the quota of %s is used up, until %s"
		if used.Code == WhyBudget {
			what = "the budget of %s, makes the next job wait, until %s"
		}
		v.notes = append(v.notes, fmt.Sprintf(what, used.detail, used.Until.UTC().Format(time.RFC3339)))
	}
}

// noteEmpty notes why it is unknown when the last job is sent.
func (v *Verdict) noteEmpty() {
	flows := int64(0)
	for i := range v.Blocked {
		c := &v.Blocked[i]
		switch c.Code {
		case WhyRate, WhyAdaptiveRate, WhyLater, WhyStarting, WhyClosed, WhyQuota, WhyBudget:
			continue
		}
		if c.Scope == shaper.ScopeFlow {
			flows += c.Flows
			continue
		}
		v.Empty, v.EmptyUnknown = time.Time{}, c.Code.words()
		if where := c.where(v.Bucket); where != "it" {
			v.EmptyUnknown = where + ": " + v.EmptyUnknown
		}
		return
	}
	switch {
	case flows == 1:
		v.Empty, v.EmptyUnknown = time.Time{}, "1 flow is blocked"
	case flows > 1:
		v.Empty, v.EmptyUnknown = time.Time{}, fmt.Sprintf("%s flows are blocked", number(flows))
	case v.Empty.IsZero():
		v.EmptyUnknown = "the time is not known"
	}
}

// noteHost adds that some hosts cannot connect.
func (v *Verdict) noteHost(j *judgement) {
	if fault, isAll := j.fleet.HostFault(v.Bucket); fault != "" && !isAll {
		v.notes = append(v.notes, "not all dispatchers can connect to receivers: "+fault)
	}
}
