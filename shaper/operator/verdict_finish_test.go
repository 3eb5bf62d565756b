package operator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
)

// window has the bucket open a minute after midnight, with a finish.
func window(length time.Duration) func(b *shaper.Bucket) {
	return func(b *shaper.Bucket) {
		b.Drain = &schedule.Drain{Cron: "1 0 * * *", For: length + time.Minute, FinishBy: length.String()}
	}
}

// opens waits until the window has been open for so long. A bubble begins at midnight.
func opens(after time.Duration) {
	pass(time.Until(time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC)) + after)
}

// Deliveries are counted for half a minute. So nothing is foreseen, and nothing is a problem, just after a window has opened or the first dispatcher
// has started.
func TestNothingIsForeseenBeforeItIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newVerdictRig(t, window(40*time.Minute))
		j.enqueue(600)
		goesWell := func(when string) {
			t.Helper()
			for at := time.Duration(0); at < time.Minute; at += 5 * time.Second {
				if v, _, _ := j.readVerdict(); v.Left > 0 || v.IsProblem() {
					t.Errorf("%s after %s: %s, %d left: %s", at, when, v.Code, v.Left, v.Sentence())
				}
				pass(5 * time.Second)
			}
		}
		opens(time.Second)
		goesWell("the opening")
		j.kill()
		pass(time.Minute)
		if v, _, _ := j.readVerdict(); v.Code != operator.WhyNoDispatcher || v.Left < 500 || v.Late != shaper.LateBehind {
			t.Errorf("without a dispatcher: %s, %d left %s", v.Code, v.Left, v.Late)
		}
		j.run()
		pass(6 * time.Second)
		goesWell("the start of a dispatcher")
	})
}

// What will be left is what the allowed rate cannot send, however many jobs a request has.
func TestForeseenByTheRate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rate        string
		quotas      []admission.Rate
		jobs        int
		least, most int64
		late        shaper.Late
	}{
		"the rate is too low":          {"1/m", nil, 150, 85, 95, shaper.LateRate}, // 60 requests in an hour
		"a quota is":                   {"2/s", []admission.Rate{rig.Rate("10/10m")}, 150, 85, 100, shaper.LateBehind},
		"a quota does":                 {"2/s", []admission.Rate{rig.Rate("30/10m")}, 150, 0, 0, shaper.NotLate},
		"all goes well":                {"2/s", nil, 150, 0, 0, shaper.NotLate},
		"few jobs, at a crawling pace": {"2/s", nil, 5, 0, 0, shaper.NotLate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := newVerdictRig(t, window(time.Hour), func(b *shaper.Bucket) { b.Rate, b.Quotas = rig.Rate(c.rate), c.quotas })
				j.enqueue(c.jobs)
				opens(8 * time.Minute)
				v, _, _ := j.readVerdict()
				if v.Left < c.least || v.Left > c.most || v.Late != c.late {
					t.Errorf("%d left %q, want %d to %d %q: %s: %s", v.Left, v.Late, c.least, c.most, c.late, v.Code, v.Sentence())
				}
			})
		})
	}
}
