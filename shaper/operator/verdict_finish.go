package operator

import (
	"slices"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// foresee sets how many jobs will be left at the finish of the window: jobs that are kept beyond it, jobs that the allowed rate can no longer send,
// and jobs that are sent too slowly. Views, metrics, logs and the event finish.late all use it.
func (v *Verdict) foresee(j *judgement) {
	h := j.Hours
	if h == nil || !h.Open || h.Finish.IsZero() || h.FinishJobs == 0 {
		return
	}
	left := int64(0)
	for i := range v.Blocked {
		c := &v.Blocked[i]
		if c.Code.needsAPerson() || c.Code != WhyLater && c.Until.After(h.Finish) {
			left += c.Jobs
		}
	}
	// behind returns how many jobs are left if they depart at a pace from a time on.
	behind := func(perSecond float64, from time.Time) int64 {
		return h.FinishJobs - int64(perSecond*max(h.Finish.Sub(from).Seconds(), 0))
	}
	late := shaper.LateBehind
	switch most := &v.Blocked[0]; {
	case h.TooSlow:
		late, left = shaper.LateRate, max(left, behind(v.Rate.PerSecond()*j.together(), j.Now), 1)
	case j.keepsUp || v.Code == WhyLater || v.Code == WhyStarting:
	case most.Code.endsByItself() && most.Until.After(j.Now):
		left = max(left, behind(j.fastest()*j.together(), most.Until))
	case j.isMuchSlower():
		left = max(left, behind(float64(j.progress.Gone)/j.progress.Window.Seconds(), j.Now))
	}
	if left = min(left, h.FinishJobs); left > 0 {
		v.Left, v.Late, v.Finish = left, late, h.Finish
	}
}

// KeptBy lists the codes of the causes that keep jobs now, without delays, most jobs first.
func (v *Verdict) KeptBy() []WhyCode {
	var codes []WhyCode
	for i := range v.Blocked {
		if code := v.Blocked[i].Code; code != WhyLater && !slices.Contains(codes, code) {
			codes = append(codes, code)
		}
	}
	return codes
}

// fastest is how many requests a second may depart when nothing else keeps them.
func (j *judgement) fastest() float64 {
	perSecond := j.Rate.PerSecond()
	for i := range j.Quotas {
		perSecond = min(perSecond, j.Quotas[i].Quota.PerSecond())
	}
	if p := j.Pool; p != nil && !p.Rate.IsZero() {
		perSecond = min(perSecond, p.Rate.PerSecond())
		for i := range p.Quotas {
			perSecond = min(perSecond, p.Quotas[i].Quota.PerSecond())
		}
	}
	return perSecond
}

// together is how many jobs a request had lately: more than one only in a bucket with batches.
func (j *judgement) together() float64 {
	if j.progress.Succeeded == 0 {
		return 1
	}
	return max(float64(j.progress.Gone)/float64(j.progress.Succeeded), 1)
}
