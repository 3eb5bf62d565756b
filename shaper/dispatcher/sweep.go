package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// mending says how a sweep returns what it found.
type mending struct {
	crash int   // 1: a lost lease counts as a crash; 2: only if another process had started the job; 0: it does not
	bound int64 // the latest time that Redis can have, in microseconds; 0: unknown
}

// found is the reply of sweep.lua: what it repaired itself, and the jobs and flows for other scripts to repair.
type found struct {
	now, repaired, missing, unpurged           int64
	cursor, flows                              string // where the next part of an audit begins
	expired, waiting, astray, listed, suspects []string
}

func (f *found) read(r *lua.Reader) {
	f.now, f.repaired = r.Int(), r.Int()
	f.cursor, f.flows = r.Text(), r.Text()
	missing, unpurged, lost, retries, strays, full := r.Int(), r.Int(), r.Int(), r.Int(), r.Int(), r.Int()
	f.missing, f.unpurged = missing, unpurged
	f.expired, f.waiting, f.astray, f.listed = readTexts(r, lost), readTexts(r, retries), readTexts(r, strays), readTexts(r, full)
	f.suspects = readTexts(r, int64(r.Left()))
}

// mended counts what a sweep has repaired.
type mended struct{ takenBack, poisoned, repaired, missing int64 }

// sweep finds lost leases and misplaced jobs, and returns them. It takes two scripts: the first one cannot know to which flow the jobs belong that it
// finds, and a script touches declared keys only.
func (p *bucketPatrol) sweep(ctx context.Context, latest int64, audit bool) error {
	start := time.Now()
	how, atMost := p.mending(start, latest)
	cursor, flows := "", ""
	if audit {
		p.begin(p.HasFlows())
		cursor, flows, atMost = p.cursor, p.flows, min(atMost, sweepAtMost)
	}
	var f found
	err := p.run(ctx, p.shared, lua.Sweep, []string{""}, f.read, p.Levels(), atMost, cursor, flows, how.bound, p.Keys.Member, store.WakeChannel)
	if err != nil {
		return err
	}
	p.clock.observe(start, time.Now(), f.now)
	if how.bound != 0 && f.now > how.bound {
		p.spare = time.Now().Add(p.heartbeatSeen())
		p.log.WarnContext(ctx, "the clock of Redis is ahead of ours: no lease is taken back for one heartbeat")
	}
	// Expired leases: one call returns them in order at the head. Of several calls, the last one puts its jobs first, so it gets the leases that
	// expired first.
	sum := mended{repaired: f.repaired}
	slices.Reverse(f.expired)
	err = p.takeBack(ctx, how, f.expired, nil, &sum)
	p.more = sum.takenBack+sum.poisoned >= sweepMore
	if err == nil {
		f.suspects, err = p.outsideTurnQueue(ctx, f.suspects)
	}
	if err == nil {
		err = p.takeBack(ctx, how, f.waiting, append(f.astray, f.suspects...), &sum)
	}
	p.reportRepairs(ctx, &sum)
	if err != nil {
		return err
	}
	if audit {
		if err := p.findOldest(ctx, f.listed, f.flows); err != nil {
			return err
		}
		p.advance(f.cursor, f.flows, start)
		if missing := f.missing + sum.missing; missing != p.missing {
			p.missing = missing
			p.log.WarnContext(ctx, "jobs without a place: were keys of this bucket deleted by hand?", "count", missing)
		}
	}
	if p.more { // expired leases come first
		return nil
	}
	return p.goOnPurging(ctx, f.unpurged)
}

// mending returns how to treat what a sweep finds, and how many leases it may name.
func (p *bucketPatrol) mending(start time.Time, latest int64) (how mending, atMost int) {
	how, atMost = mending{crash: 1}, sweepNames
	if p.claims.deliveries.handsOver() {
		how.crash = 2
	}
	if latest == 0 || start.Before(p.spare) || p.clock.jumpedSince(start.Add(-p.heartbeatSeen())) {
		atMost = 0
	}
	if start.Before(p.pardon) {
		how.crash = 0
	}
	if latest != 0 {
		how.bound = latest + sweepSlack.Microseconds()
	}
	return how, atMost
}

// reportRepairs counts and logs what a sweep has repaired.
func (p *bucketPatrol) reportRepairs(ctx context.Context, sum *mended) {
	p.deaths.note(sum.poisoned)
	p.store.Metrics.CountSweep(p.Name, sum.takenBack, sum.poisoned, sum.repaired)
	if sum.takenBack+sum.poisoned+sum.repaired > 0 {
		p.log.WarnContext(ctx, "swept: leases ended without an outcome, as a dispatcher died, hung or was cut off from Redis; their jobs wait again",
			"taken_back", sum.takenBack, "poison", sum.poisoned, "repaired", sum.repaired)
	}
}

// begin starts an audit, unless one is under way.
func (w *sweepWatch) begin(hasFlows bool) {
	if w.auditing {
		return
	}
	w.auditing, w.cursor, w.flows, w.oldest = true, "0", "", oldestJob{}
	if hasFlows {
		w.flows = "0"
	}
}

// advance records how far an audit got.
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

// outsideTurnQueue returns the flows that are missing from the turn queue of their group, which the script that named them could not see.
func (p *bucketPatrol) outsideTurnQueue(ctx context.Context, flows []string) ([]string, error) {
	var off []string
	err := lua.InParts(flows, store.MaxFlowSet, func(some []string) error {
		args := make([]any, len(some))
		for i, flow := range some {
			args[i] = flow
		}
		return p.run(ctx, p.shared, lua.OutsideTurnQueue, some, func(r *lua.Reader) {
			for _, flow := range some {
				if r.Int() == 1 {
					off = append(off, flow)
				}
			}
		}, args...)
	})
	return off, err
}

func readTexts(r *lua.Reader, n int64) []string {
	var texts []string
	for range min(n, int64(r.Left())) {
		texts = append(texts, r.Text())
	}
	return texts
}

// takeBack returns the jobs and repairs the flows that a sweep has found.
func (p *bucketPatrol) takeBack(ctx context.Context, how mending, ids, astray []string, sum *mended) error {
	err := lua.InParts(ids, sweepAtMost, func(some []string) error {
		flows, jobs, err := p.jobsOf(ctx, some)
		if err == nil {
			err = p.sendTakeBack(ctx, how, &flows, jobs, sum)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(astray)
	return lua.InParts(slices.Compact(astray), store.MaxFlowSet, func(some []string) error {
		return p.sendTakeBack(ctx, how, &store.FlowSet{Names: some}, nil, sum)
	})
}

// jobsOf returns ids as arguments of a script, each with the number of its flow.
func (p *bucketPatrol) jobsOf(ctx context.Context, ids []string) (flows store.FlowSet, jobs []any, err error) {
	names, err := p.shared.FlowsOf(ctx, p.Bucket, ids...)
	for i, name := range names {
		jobs = append(jobs, ids[i], flows.Number(name))
	}
	return flows, jobs, err
}

func (p *bucketPatrol) sendTakeBack(ctx context.Context, how mending, flows *store.FlowSet, jobs []any, sum *mended) error {
	poison := shaper.LastResponse{Cause: shaper.CausePoison, Reason: shaper.CausePoison,
		Detail: fmt.Sprintf("the process that delivered it died %d times in a row", shaper.MaxCrashes)}
	args := slices.Concat([]any{store.WakeChannel, p.Keys.Name, p.Levels(), how.crash, shaper.MaxCrashes, poison.String(),
		p.Settings.Load().Retry.MaxBackoff.Microseconds(), how.bound, p.Keys.Member, len(flows.Names)}, flows.Args(), jobs)
	return p.run(ctx, p.shared, lua.TakeBack, flows.Names, func(r *lua.Reader) {
		sum.takenBack += r.Int()
		sum.poisoned += r.Int()
		sum.repaired += r.Int()
		sum.missing += r.Int()
		for _, id := range readTexts(r, int64(r.Left())) {
			p.log.WarnContext(ctx, "a job is dead", "job", id, "cause", shaper.CausePoison)
		}
	}, args...)
}

// goOnPurging continues a purge whose process died, for up to purgeTurn.
func (p *bucketPatrol) goOnPurging(ctx context.Context, unpurged int64) error {
	if unpurged == 0 {
		return nil
	}
	var left int64
	none := codec.PathOf(p.Levels(), "", "")
	for began := time.Now(); ; {
		r, err := p.store.RunConfigured(ctx, p.Bucket, lua.Purge, p.Keys.Of(lua.Purge, none), "", 0, store.PurgeBatch, store.ScriptBytes, p.Levels(), none)
		if err == nil {
			_, _, _, left = r.Int(), r.Int(), r.Int(), r.Int()
			err = r.Err()
		}
		if err != nil {
			return fmt.Errorf("bucket %q: go on with a purge: %w", p.Name, err)
		}
		if left == 0 || time.Since(began) > purgeTurn {
			break
		}
	}
	p.log.WarnContext(ctx, "a purge was left unfinished and goes on", "entries", unpurged, "left", left)
	if left > 0 {
		p.nextAudit = time.Time{}
	}
	return nil
}
