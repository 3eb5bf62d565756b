package dispatcher

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// foresee looks whether jobs will be left at the finish of open windows, by the verdict that operators see, logs it, and has hooks told. Any number
// of dispatchers look, and each finish is reported once. It costs a look at each bucket with an open window that has a finish, none without: see
// [operator.Operator.Verdicts].
func (d *Dispatcher) foresee(ctx context.Context, loops []*bucketLoop) {
	if d.member == nil || d.cfg.Registerer == nil {
		return // it tells the fleet no deliveries, of which a verdict is made
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
	infos, err := d.operator.BucketInfos(ctx, names...) // also with an error those that it could look at
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

// noteLate logs once that a finish will not be met, and once that it will be after all. It has the event noted.
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
				l.log.ErrorContext(ctx, "hooks were not told that a finish will not be met: they will be later", "error", err)
			}
			return
		}
	}
	l.log.WarnContext(ctx, "jobs will be left at the finish", "finish", v.Finish, "left", v.Left, "why", words, "verdict", v.Sentence())
	l.late = v.Finish
}

// finishBy is what the configuration here says; "" where the plan in force is that of another one.
func (c *bucketConn) finishBy() string {
	if plan := c.Settings.Load().Drain; plan != nil {
		return plan.FinishBy
	}
	return ""
}
