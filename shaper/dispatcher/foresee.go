package dispatcher

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// foresee checks whether jobs will be left at the finish of open windows, by the same verdict as operators see. It logs the result and passes it to
// hooks. Any number of dispatchers check, and each finish is reported once. It costs one look per bucket with a finish in its configuration, and
// nothing without: see [operator.Operator.Verdicts].
func (d *Dispatcher) foresee(ctx context.Context, loops []*bucketLoop) {
	if d.member == nil || d.cfg.Registerer == nil {
		return // the verdict needs the deliveries that the fleet reports
	}
	byName := map[string]*bucketLoop{}
	var names []string
	for _, l := range loops {
		if l.finishBy() != "" {
			byName[l.Name], names = l, append(names, l.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	infos, err := d.operator.BucketInfos(ctx, names...) // with an error it still returns the buckets that it could read
	infos = slices.DeleteFunc(infos, func(b operator.BucketInfo) bool {
		hasFinish := b.Hours != nil && b.Hours.Open && !b.Hours.Finish.IsZero()
		if !hasFinish {
			byName[b.Name].late = time.Time{}
		}
		return !hasFinish
	})
	var verdicts []operator.Verdict
	if err == nil {
		verdicts, err = d.operator.Verdicts(ctx, infos)
	}
	if err != nil && ctx.Err() == nil {
		d.store.Log.WarnContext(ctx, "it is not known whether finishes will be met: asked again in 30 s", "error", err)
	}
	for i := range verdicts {
		d.noteLate(ctx, byName[verdicts[i].Bucket], &verdicts[i])
	}
}

// noteLate logs once that jobs will be left at a finish, and once that none will be after all. It also records the event.
func (d *Dispatcher) noteLate(ctx context.Context, l *bucketLoop, v *operator.Verdict) {
	if v.Finish.Equal(l.late) {
		return
	}
	if v.Left == 0 {
		l.log.InfoContext(ctx, "no job will be left at the finish any more", "finish", l.late)
		l.late = time.Time{}
		return
	}
	var why []string
	for _, code := range v.KeptBy() {
		why = append(why, string(code))
	}
	words := strings.Join(why, " ")
	if slices.Contains(l.Settings.Load().Events, shaper.EventFinishLate) {
		if err := d.store.NoteLate(ctx, l.Bucket, v.Finish, v.Left, words, v.Sentence()); err != nil {
			if ctx.Err() == nil {
				l.log.ErrorContext(ctx, "hooks were not notified that a finish will be late: the dispatcher tries again", "error", err)
			}
			return
		}
	}
	l.log.WarnContext(ctx, "jobs will be left at the finish", "finish", v.Finish, "left", v.Left, "why", words, "verdict", v.Sentence())
	l.late = v.Finish
}

// finishBy returns the finish in this process's configuration, "" if it has none. The effective plan may be another process's.
func (c *bucketConn) finishBy() string {
	if plan := c.Settings.Load().Drain; plan != nil {
		return plan.FinishBy
	}
	return ""
}
