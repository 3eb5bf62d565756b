package console

import (
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

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
