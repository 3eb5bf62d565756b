package console_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
)

// moreBuckets are "work", which leaks fast, keeps results and tries again after an hour, "hooks", which disables flows whose receivers are gone, "grouped", whose flows are in groups, and "nightly", which has
// windows, a calendar and a schedule over the nights in which the clocks of Paris change.
func moreBuckets() []shaper.Bucket {
	perHour := func(n int64) admission.Rate {
		return admission.Rate{Count: n, Per: time.Hour, Unit: admission.UnitRequests}
	}
	work, grouped, nightly := shaper.DefaultBucket(), shaper.DefaultBucket(), shaper.DefaultBucket()
	work.Name, work.Rate = "work", admission.Rate{Count: 1000, Per: time.Second, Unit: admission.UnitRequests}
	work.Results.Retention, work.Results.MaxBody, work.Retry = time.Hour, 0, work.Retry.WithSchedule(time.Hour)
	grouped.Name, grouped.Rate = "grouped", perHour(1)
	flows, groups := shaper.DefaultFlowSettings(), shaper.DefaultGroupSettings()
	flows.Key, groups.Key = shaper.FlowKeyJob, shaper.FlowKeyJob
	grouped.Flow, grouped.Group = &flows, &groups
	hooks := work
	hooks.Name, hooks.Flow, hooks.Breaker.OnGone = "hooks", &flows, shaper.GoneDisables
	nightly.Name, nightly.Rate = "nightly", perHour(1)
	nightly.Drain = &schedule.Drain{Cron: "0 1 * * *", Timezone: "Europe/Paris", For: 4 * time.Hour}
	nightly.Calendar = []shaper.CalendarLine{{From: "02:00", To: "04:30", Days: "sun", Timezone: "Europe/Paris", Rate: perHour(5)}}
	nightly.Schedules = []shaper.Schedule{{Name: "half-past", Cron: "30 2 * * *", Timezone: "Europe/Paris", Job: shaper.ScheduledJob{Payload: []byte("1")}}}
	return []shaper.Bucket{work, hooks, grouped, nightly}
}

// deliver ends jobs as their ids say, until the test ends.
func (s *site) deliver() {
	s.t.Helper()
	worker := shaper.WorkerFunc(func(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
		switch word, _, _ := strings.Cut(a.ID, "-"); word {
		case "done":
			return shaper.Done(http.StatusNoContent)
		case "dead":
			return shaper.Dead("http_404", "nobody <b>lives</b> here")
		case "gone":
			outcome := shaper.Dead("http_410", "it is gone")
			outcome.Gone = true
			return outcome
		case "held":
			return shaper.Outcome{Result: shaper.ResultHeld, Reason: "http_429", Status: http.StatusTooManyRequests, RetryAfter: time.Hour, Signal: shaper.SignalThrottled}
		case "again":
			outcome := shaper.Retry("http_500", "no luck")
			outcome.Status = http.StatusInternalServerError
			return outcome
		}
		<-ctx.Done()
		return shaper.Returned("stopped")
	})
	d := must.Get(dispatcher.New(dispatcher.Config{Redis: s.redis, Buckets: moreBuckets()[:2], Workers: map[string]shaper.Worker{"work": worker, "hooks": worker}, ShutdownTimeout: time.Millisecond}))(s.t)
	ctx, stop := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
}

// getUntil gets a page until it says something.
func (v *visitor) getUntil(t *testing.T, path, text string) seen {
	t.Helper()
	for {
		page := v.get(path)
		if strings.Contains(page.text, text) {
			return page
		}
		select {
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
			t.Fatalf("%s never says %q:\n%s", path, text, page.text)
		}
	}
}

// escaped is a text in the query of an address.
func escaped(text string) string { return url.QueryEscape(text) }
