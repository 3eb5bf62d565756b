package console

import (
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// jobsContent are the jobs of an id.
type jobsContent struct {
	ID        string
	Cancelled bool // the visitor has just cancelled one
	Jobs      []jobContent
}

// jobContent is a job with the actions that a visitor may take.
type jobContent struct {
	*opsview.Job

	Timeline  []moment
	MayCancel bool
}

// IsDead reports whether the job is a dead letter, which has a page for its actions.
func (j jobContent) IsDead() bool { return j.State == shaper.StateDead }

// moment is an event in the life of a job. A nil time is not known.
type moment struct {
	At     *time.Time
	What   string
	Detail string
}

// findJob shows the jobs of an id.
func findJob(v *visit) {
	page := jobsContent{ID: v.r.FormValue("id"), Cancelled: v.r.FormValue("did") == actionCancel}
	if page.ID != "" {
		found, err := call(v, httpapi.FindJob, httpapi.JobID{ID: page.ID})
		if err != nil {
			v.fail(err)
			return
		}
		for _, job := range found.Jobs {
			name := httpapi.JobName{BucketName: httpapi.BucketName{Bucket: job.Bucket}, ID: job.ID}
			if whole, err := call(v, httpapi.ShowJob, name); err == nil {
				job = whole
			}
			waits := job.State == shaper.StateQueued || job.State == shaper.StateScheduled || job.State == shaper.StateRetrying
			page.Jobs = append(page.Jobs, jobContent{Job: job, Timeline: timeline(job), MayCancel: waits && v.may(apikey.RoleEnqueue)})
		}
	}
	v.render(http.StatusOK, "jobs", "Find a job", &page)
}

const actionCancel = "cancel"

// retryNow makes jobs that wait for another attempt due, and shows their bucket or flow again.
func retryNow(v *visit, in httpapi.JobRetry, back string) {
	retried, err := call(v, httpapi.RetryJobs, in)
	v.acted(back, "retry", err, func() bool { return retried.Jobs > 0 })
}

// cancelJob cancels a waiting job.
func cancelJob(v *visit) {
	name := httpapi.JobName{BucketName: httpapi.BucketName{Bucket: v.r.PathValue("bucket")}, ID: v.r.PostFormValue("id")}
	if name.ID == "" {
		v.fail(&apiError{Status: http.StatusBadRequest, Detail: "no job is named: open the page of a job, and cancel it there"})
		return
	}
	_, err := call(v, httpapi.CancelJob, name)
	v.acted("../../../jobs?"+query("id", name.ID), actionCancel, err, func() bool { return true })
}

// timeline returns the known events of a job, the earliest first. An event without a known time is placed by its order.
func timeline(job *opsview.Job) []moment {
	var list []moment
	add := func(at *time.Time, what, detail string) { list = append(list, moment{at, what, detail}) }
	if job.EnqueuedAt != nil {
		add(job.EnqueuedAt, "enqueued", "")
	}
	if job.Due != nil && job.State == shaper.StateScheduled {
		add(job.Due, "due", "it does not leave before")
	}
	if n := count(job.Attempts) + job.Lost - len(job.LastAttempts); n > 0 && len(job.LastAttempts) > 0 {
		add(nil, counted(n, "more attempt"), "no outcome is kept of these")
	}
	for i := range job.LastAttempts {
		a := &job.LastAttempts[i]
		add(&a.At, fmt.Sprintf("attempt %d", a.Number), attemptText(a))
	}
	switch job.State {
	case shaper.StateInFlight:
		add(job.LeaseUntil, "in flight", "the end of its lease: if no worker renews it or ends the job by then, the job goes back to the queue")
	case shaper.StateDead:
		add(job.DiedAt, "dead", answerText(job.LastResponse))
	case shaper.StateDone:
		addEnd(job, add)
	case shaper.StateCancelled, shaper.StateDropped:
		add(nil, string(job.State), "when is not kept")
	default:
		if job.State == shaper.StateRetrying && job.Due != nil {
			add(job.Due, "next attempt due", "it does not leave before")
		}
		if job.ETA != nil {
			add(job.ETA, "next departure", "estimated")
		} else {
			add(nil, "next departure", "not known: "+job.Why)
		}
	}
	return list
}

// addEnd adds how a job ended that is done.
func addEnd(job *opsview.Job, add func(at *time.Time, what, detail string)) {
	if job.DepartedAt == nil {
		add(nil, "done", "no result of it is kept (result_retention), so when is not known")
		return
	}
	ended := *job.DepartedAt
	if job.Took != nil {
		ended = ended.Add(time.Duration(*job.Took * float64(time.Second)))
	}
	add(job.DepartedAt, "last departure", "")
	add(&ended, "done", strings.Join(slices.DeleteFunc([]string{answerText(job.LastResponse), tookText(job.Took)}, isEmpty), ", "))
}

func isEmpty(text string) bool { return text == "" }

// attemptText describes the outcome of an attempt, and its duration.
func attemptText(a *opsview.Attempt) string {
	var parts []string
	if a.Status > 0 {
		parts = append(parts, fmt.Sprint(a.Status))
	}
	parts = append(parts, a.Reason, "after "+opsview.Human(time.Duration(a.Took*float64(time.Second))), "then "+a.Result, a.Detail)
	return strings.Join(slices.DeleteFunc(parts, isEmpty), ", ")
}

func answerText(last *shaper.LastResponse) string {
	if last == nil {
		return ""
	}
	var parts []string
	if last.Status > 0 {
		parts = append(parts, fmt.Sprint(last.Status))
	}
	return strings.Join(slices.DeleteFunc(append(parts, last.Reason, last.Detail), isEmpty), ", ")
}

func tookText(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	return "after " + opsview.Human(time.Duration(*seconds*float64(time.Second)))
}

// jobListContent holds the jobs of a bucket that a filter matches.
type jobListContent struct {
	Bucket       string
	HasFlows     bool
	HasGroups    bool
	State        shaper.State
	Flow, Group  string
	Since, Until string // as the visitor wrote them
	Cursor       string
	States       []stateChoice
	IsDone       bool
	NoneDone     string // why there is none that is done

	since, until time.Time

	*opsview.JobPage
}

// stateChoice is a state in the filter of a list, and how people call it.
type stateChoice struct {
	State shaper.State
	Text  string
}

// listedStates are the states by which jobs are listed. Dead letters have a page of their own.
var listedStates = []stateChoice{
	{"", "waiting or in flight"}, {operator.AnyWaiting, "waiting"}, {shaper.StateQueued, "queued"}, {operator.AnyLater, "later"}, {shaper.StateScheduled, "scheduled"},
	{shaper.StateRetrying, "retrying"}, {shaper.StateInFlight, "in flight"}, {shaper.StateDone, "done"},
}

// Query is the filter in an address, escaped for it.
func (l *jobListContent) Query() template.URL {
	values := url.Values{}
	for name, value := range map[string]string{"state": string(l.State), "flow": l.Flow, "group": l.Group, "since": l.Since, "until": l.Until} {
		if value != "" {
			values.Set(name, value)
		}
	}
	return template.URL(values.Encode()) //nolint:gosec // all of it is escaped
}

// Sent returns the deliveries of a job in the period that the visitor chose; none without a period.
func (l *jobListContent) Sent(job *opsview.Job) []opsview.Attempt {
	if l.since.IsZero() && l.until.IsZero() {
		return nil
	}
	return job.SentWithin(l.since, l.until)
}

// jobList shows the jobs of a bucket by state, flow, group and time.
func jobList(v *visit) {
	form := v.r.FormValue
	page := jobListContent{
		Bucket: v.r.PathValue("bucket"), HasFlows: true, HasGroups: true, State: shaper.State(form("state")), Flow: form("flow"), Group: form("group"),
		Since: form("since"), Until: form("until"), Cursor: form("cursor"), States: listedStates,
	}
	page.IsDone = page.State == shaper.StateDone
	in := httpapi.JobQuery{BucketName: httpapi.BucketName{Bucket: page.Bucket}, State: page.State, Page: httpapi.Page{Limit: linesOnPage, Cursor: page.Cursor}}
	if page.Flow != "" {
		in.Flow = &page.Flow
	}
	if page.Group != "" {
		in.Group = &page.Group
	}
	var err error
	if in.Since, err = timeOf("since", page.Since); err == nil {
		in.Until, err = timeOf("until", page.Until)
	}
	if page.since, page.until = in.Since, in.Until; err == nil {
		page.JobPage, err = call(v, httpapi.ListJobs, in)
	}
	if err != nil {
		v.fail(err)
		return
	}
	if bucket, err := call(v, httpapi.ShowBucket, in.BucketName); err == nil { // without it fields of the form are too many, and why there is none is not known
		page.HasFlows, page.HasGroups = bucket.Flows != nil, bucket.Groups != nil
		page.NoneDone = bucket.NoneDone(in.Asked())
	}
	v.render(http.StatusOK, "joblist", "Jobs of "+page.Bucket, &page)
}
