package tundish

import (
	"fmt"

	"github.com/tundish-io/tundish/shaper"
)

// Schedule is a schedule of a bucket, for [Settings]. Its Timezone is UTC until it is set; CatchUp and Overlap decide what becomes of missed fires, and
// of fires while the last job is unfinished.
type Schedule struct {
	shaper.Schedule
	err error
}

// Schedule enqueues a payload at the times of a cron line, such as "0 2 * * *" or "@every 10m". All programs that work the bucket have the schedule, and
// one of them enqueues the job of each fire, also after a crash. A name is unique over all buckets. [Client.Run] returns an error for an invalid
// schedule.
//
//	night := letters.Schedule("nightly", "0 2 * * *", Letter{To: "all"})
//	night.Timezone = "Europe/Paris"
//	t.Handle(letters.Work(tundish.Settings{Rate: "20/s", Schedules: []tundish.Schedule{night}}, send))
//
// The options [Flow] and [Priority] apply to each job. [ID], [In], [At] and [InBundle] are for a single job, and an error here.
func (b Bucket[T]) Schedule(name, cron string, payload T, options ...Option) Schedule {
	job, err := b.Job(payload, options...)
	switch {
	case err != nil:
		err = fmt.Errorf("schedule %q: %w", name, err)
	case job.ID != "" || job.Delay != 0 || !job.NotBefore.IsZero() || job.Bundle != "":
		err = fmt.Errorf("schedule %q: ID, In, At and InBundle are options of one job: a schedule makes the ids and times of its jobs itself", name)
	}
	return Schedule{err: err, Schedule: shaper.Schedule{Name: name, Cron: cron, Job: shaper.ScheduledJob{
		Flow: job.Flow, Group: job.Group, URL: job.URL, Method: job.Method, Headers: job.Headers, Payload: job.Payload,
		Priority: job.Priority, MaxAttempts: job.MaxAttempts, ExpiresIn: job.ExpiresIn,
	}}}
}
