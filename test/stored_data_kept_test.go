package test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// wantNews holds that flows that were disabled still are, that hooks hear of it, and that the attempts of a dead letter are known.
func wantNews(t *testing.T, all actors, heard []string) {
	t.Helper()
	for bucket, flow := range map[string]operator.Flow{
		"flows": all.operator.Bucket("flows").Flow("f-gone"), "groups": all.operator.Bucket("groups").Group("g").Flow("f-gone"),
	} {
		info, err := flow.Info(t.Context())
		if err != nil || info.Own.Disabled == nil || info.Own.Disabled.Reason != "gone" {
			t.Errorf("the flow of %s has of its own %+v: %v", bucket, info.Own, err)
		}
		for _, event := range []string{"flow.disabled", "job.dead"} {
			if !slices.ContainsFunc(heard, func(text string) bool {
				return strings.Contains(text, event) && strings.Contains(text, `"bucket":"`+bucket+`"`) && strings.Contains(text, `"flow":"f-gone"`)
			}) {
				t.Errorf("nobody heard of %s in %s: %q", event, bucket, heard)
			}
		}
	}
	info, err := all.operator.Bucket("plain").Job("dropped1").Info(t.Context())
	if err != nil || info.State != shaper.StateDropped {
		t.Errorf("plain/dropped1 is %+v: %v", info, err)
	}
	dead, err := all.operator.Bucket("flows").Dead().List(t.Context(), 0, 10)
	if err != nil || !slices.ContainsFunc(dead, func(job shaper.JobInfo) bool { return job.ID == "dead1" && len(job.LastAttempts) == 1 }) {
		t.Errorf("the dead letters of flows are %+v: %v", dead, err)
	}
}

// wantAnswers holds that results are still there, and that callbacks are told.
func wantAnswers(t *testing.T, all actors, heard []string) {
	t.Helper()
	result, err := all.producer.Result(t.Context(), "plain", "done1")
	if err != nil || result.State != shaper.StateDone || result.Answer == nil || string(result.Answer.Body) != "answer\n" || result.Answer.Headers["X-Of"][0] != "done1" {
		t.Errorf("the result of plain/done1 is %+v: %v", result, err)
	}
	for id, kind := range map[string]string{"done1": "job.done", "dead1": "job.dead"} {
		if !slices.ContainsFunc(heard, func(text string) bool {
			return strings.Contains(text, `"`+kind+`"`) && strings.Contains(text, `"id":"`+id+`"`) && strings.Contains(text, `"bucket":"flows"`)
		}) {
			t.Errorf("nobody was told that flows/%s has ended: %q", id, heard)
		}
	}
}

// wantHours holds that schedules are still there, that drains go on, and that jobs that left together have come back together.
func wantHours(t *testing.T, all actors) {
	t.Helper()
	info, err := all.operator.Schedule("nightly").Info(t.Context())
	if err != nil || info.Cron != "0 3 * * *" || info.Bucket != "plain" {
		t.Errorf("the schedule is %+v: %v", info, err)
	}
	runs, err := all.operator.Schedule("nightly").Runs(t.Context())
	if err != nil || len(runs) != 1 || runs[0].JobState != shaper.StateDone {
		t.Errorf("the schedule has fired %+v: %v", runs, err)
	}
	hours, err := all.operator.Bucket("hours").Info(t.Context())
	if err != nil || hours.Drain == nil || hours.Drain.By != "anna" || hours.Drain.Departed == 0 {
		t.Errorf("the drain is %+v: %v", hours.Drain, err)
	}
}

// wantEnded holds that ids of jobs that had ended are known: a job that was done is a duplicate, and one that will never be
// delivered is refused.
func wantEnded(t *testing.T, client *producer.Client, fates map[string]string) {
	t.Helper()
	for _, job := range slices.Sorted(maps.Keys(fates)) {
		bucket, id, _ := strings.Cut(job, "/")
		want := shaper.State(fates[job])
		if want == "waits" {
			continue
		}
		again := storedJob(bucket, id)
		if want == shaper.StateCancelled {
			again.Delay = 2 * time.Minute
		}
		receipts, err := client.Enqueue(t.Context(), again)
		if err != nil || receipts[0].State != want || receipts[0].Duplicate != (want == shaper.StateDone) {
			t.Errorf("%s, enqueued again: %+v, %v", job, receipts, err)
		}
	}
}
