package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// mending is how a sweep takes back what it found.
type mending struct {
	crash int   // 1 if a lost lease counts as a crash, 2 if it does only of a job that another process had started
	bound int64 // the latest time that it can be, microseconds; 0 unknown
}

// mended is what a sweep has mended.
type mended struct{ takenBack, poisoned, repaired, missing int64 }

// sweep has Redis look for what was lost, and take it back. These are two scripts: the
// first cannot know in which flow's places the jobs belong that it finds, and a
// script touches declared keys only.
func (d *bucketLoop) sweep(ctx context.Context, w *sweepWatch, latest int64, audit bool) error {
	start := time.Now()
	how := mending{crash: 1}
	if d.handsOver() {
		how.crash = 2
	}
	atMost := sweepNames
	if audit {
		atMost = sweepAtMost
	}
	if latest == 0 || start.Before(w.spare) || d.clock.jumpedSince(start.Add(-d.heartbeatSeen())) {
		atMost = 0
	}
	if start.Before(w.pardon) {
		how.crash = 0
	}
	if latest != 0 {
		how.bound = latest + sweepSlack.Microseconds()
	}
	cursor, flows := "", ""
	if audit {
		w.begin(d.HasFlows())
		cursor, flows = w.cursor, w.flows
	}
	reply, err := d.shared.Run(ctx, lua.Sweep, d.Keys.Of(lua.Sweep, ""), d.Levels(), atMost, cursor, flows, how.bound, d.Keys.Member, store.WakeChannel)
	if err != nil {
		return fmt.Errorf("bucket %q: %w", d.Name, err)
	}
	r := lua.NewReader(reply)
	now := r.Int()
	sum := mended{repaired: r.Int()}
	cursor, flows = r.Text(), r.Text()
	missing, unpurged, lost, retries, strays, full := r.Int(), r.Int(), r.Int(), r.Int(), r.Int(), r.Int()
	expired, waiting, astray, listed := readTexts(r, lost), readTexts(r, retries), readTexts(r, strays), readTexts(r, full)
	suspects := readTexts(r, int64(r.Left()))
	if r.Err() != nil {
		return fmt.Errorf("bucket %q: script sweep: %w", d.Name, r.Err())
	}
	d.clock.observe(start, time.Now(), now)
	if how.bound != 0 && now > how.bound {
		w.spare = time.Now().Add(d.heartbeatSeen())
		d.log.WarnContext(ctx, "the clock of Redis is ahead of ours: no lease is taken back for one heartbeat")
	}
	// Those that ran out on their own: their order at the head is made in one call. Of several calls, the last one
	// puts its jobs in front: these are to be those whose leases ran out first.
	slices.Reverse(expired)
	err = d.takeBack(ctx, how, expired, nil, &sum)
	w.more = sum.takenBack+sum.poisoned >= sweepMore
	if err == nil {
		suspects, err = d.offCalendar(ctx, suspects)
	}
	if err == nil {
		err = d.takeBack(ctx, how, waiting, append(astray, suspects...), &sum)
	}
	d.someDied(sum.poisoned)
	d.store.Metrics.CountSweep(d.Name, sum.takenBack, sum.poisoned, sum.repaired)
	if sum.takenBack+sum.poisoned+sum.repaired > 0 {
		d.log.WarnContext(ctx, "swept: leases ended without an outcome, as a dispatcher died, hung or was cut off from Redis; their jobs wait again",
			"taken_back", sum.takenBack, "poison", sum.poisoned, "repaired", sum.repaired)
	}
	if err != nil {
		return err
	}
	if audit {
		if err := d.findOldest(ctx, w, listed, flows); err != nil {
			return err
		}
		w.advance(cursor, flows, start)
		if missing += sum.missing; missing != w.missing {
			w.missing = missing
			d.log.WarnContext(ctx, "jobs without a place: were keys of this bucket deleted by hand?", "count", missing)
		}
	}
	if w.more { // what ran out comes first
		return nil
	}
	return d.goOnPurging(ctx, w, unpurged)
}

// begin begins an audit, unless one is under way.
func (w *sweepWatch) begin(hasFlows bool) {
	if w.auditing {
		return
	}
	w.auditing, w.cursor, w.flows, w.oldest = true, "0", "", oldestJob{}
	if hasFlows {
		w.flows = "0"
	}
}

// advance notes how far an audit came.
func (w *sweepWatch) advance(cursor, flows string, start time.Time) {
	if w.cursor = cursor; cursor == "0" {
		w.cursor = ""
	}
	if w.flows = flows; flows == "0" {
		w.flows = ""
	}
	if w.cursor == "" && w.flows == "" {
		w.auditing, w.nextAudit = false, start.Add(auditInterval)
	}
}

// offCalendar returns those of some flows that are not on the calendar of their group,
// which the script that named them could not see.
func (d *bucketLoop) offCalendar(ctx context.Context, flows []string) ([]string, error) {
	var off []string
	for some := range slices.Chunk(flows, store.MaxFlowSet) {
		args := make([]any, len(some))
		for i, flow := range some {
			args[i] = flow
		}
		reply, err := d.shared.Run(ctx, lua.OffCalendar, d.Keys.Of(lua.OffCalendar, some...), args...)
		if err != nil {
			return nil, fmt.Errorf("bucket %q: look for flows on the calendars of their groups: %w", d.Name, err)
		}
		found, err := lua.IntegersFor(reply, len(some))
		if err != nil {
			return nil, fmt.Errorf("bucket %q: look for flows on the calendars of their groups: %w", d.Name, err)
		}
		for i, flow := range some {
			if found[i] == 1 {
				off = append(off, flow)
			}
		}
	}
	return off, nil
}

func readTexts(r *lua.Reader, n int64) []string {
	var texts []string
	for range min(n, int64(r.Left())) {
		texts = append(texts, r.Text())
	}
	return texts
}

// takeBack has jobs and flows mended that a sweep has found.
func (d *bucketLoop) takeBack(ctx context.Context, how mending, ids, astray []string, sum *mended) error {
	names, err := d.shared.FlowsOf(ctx, d.Bucket, ids...)
	if err != nil {
		return err
	}
	var flows store.FlowSet
	var jobs []any
	send := func() error {
		if len(flows.Names) == 0 {
			return nil
		}
		err := d.sendTakeBack(ctx, how, &flows, jobs, sum)
		flows, jobs = store.FlowSet{}, nil
		return err
	}
	for i, id := range ids {
		jobs = append(jobs, id, flows.Number(names[i]))
		if len(flows.Names) == store.MaxFlowSet || len(jobs) == 2*sweepAtMost {
			if err := send(); err != nil {
				return err
			}
		}
	}
	for _, flow := range astray {
		if flows.Number(flow); len(flows.Names) == store.MaxFlowSet {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return send()
}

func (d *bucketLoop) sendTakeBack(ctx context.Context, how mending, flows *store.FlowSet, jobs []any, sum *mended) error {
	poison := shaper.LastResponse{Cause: shaper.CausePoison, Reason: shaper.CausePoison,
		Detail: fmt.Sprintf("the process that delivered it died %d times in a row", shaper.MaxCrashes)}
	args := slices.Concat([]any{store.WakeChannel, d.Name, d.Levels(), how.crash, shaper.MaxCrashes, poison.String(),
		d.Settings.Load().Retry.MaxBackoff.Microseconds(), how.bound, d.Keys.Member, len(flows.Names)}, flows.Args(), jobs)
	reply, err := d.shared.Run(ctx, lua.TakeBack, d.Keys.Of(lua.TakeBack, flows.Names...), args...)
	if err != nil {
		return fmt.Errorf("bucket %q: %w", d.Name, err)
	}
	r := lua.NewReader(reply)
	sum.takenBack += r.Int()
	sum.poisoned += r.Int()
	sum.repaired += r.Int()
	sum.missing += r.Int()
	for _, id := range readTexts(r, int64(r.Left())) {
		d.log.WarnContext(ctx, "a job is dead", "job", id, "cause", shaper.CausePoison)
	}
	if r.Err() != nil {
		return fmt.Errorf("bucket %q: script take_back: %w", d.Name, r.Err())
	}
	return nil
}
