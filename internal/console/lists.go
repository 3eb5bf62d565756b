package console

import (
	"net/http"
	"net/url"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/audit"
	"github.com/tundish-io/tundish/shaper/operator"
)

const linesOnPage = 50

// deadContent are dead letters that a filter means.
type deadContent struct {
	Bucket                      string
	Cause, Reason, Text, Cursor string
	*opsview.DeadPage
}

// filter is what a visitor asked for.
func (d *deadContent) filter() operator.DeadFilter {
	return operator.DeadFilter{Cause: d.Cause, Reason: d.Reason, Text: d.Text}
}

// Query is the filter in an address.
func (d *deadContent) Query() string {
	values := url.Values{}
	for name, value := range map[string]string{"cause": d.Cause, "reason": d.Reason, "q": d.Text} {
		if value != "" {
			values.Set(name, value)
		}
	}
	return values.Encode()
}

func deadOf(v *visit) *deadContent {
	return &deadContent{Bucket: v.r.PathValue("bucket"), Cause: v.r.FormValue("cause"), Reason: v.r.FormValue("reason"), Text: v.r.FormValue("q"), Cursor: v.r.FormValue("cursor")}
}

func deadPage(v *visit) {
	page := deadOf(v)
	var err error
	page.DeadPage, err = call(v, httpapi.ListDead, httpapi.DeadQuery{
		BucketName: httpapi.BucketName{Bucket: page.Bucket}, DeadFilter: page.filter(), Page: httpapi.Page{Limit: linesOnPage, Cursor: page.Cursor},
	})
	if err != nil {
		v.fail(err)
		return
	}
	v.render(http.StatusOK, "dead", "Dead letters of "+page.Bucket, page)
}

// changeDead redrives or drops the letters that were chosen.
func changeDead(v *visit) {
	page := deadOf(v)
	choice := httpapi.DeadChoice{BucketName: httpapi.BucketName{Bucket: page.Bucket}, IDs: v.r.PostForm["id"]}
	var after *opsview.DeadChange
	var err error
	action := v.r.PathValue("action")
	switch {
	case len(choice.IDs) == 0:
		err = &apiError{Status: http.StatusBadRequest, Detail: "no dead letter is chosen: mark some"}
	case action == "redrive":
		after, err = call(v, httpapi.RedriveDead, httpapi.DeadRedrive{DeadChoice: choice})
	case action == "drop":
		after, err = call(v, httpapi.DropDead, choice)
	default:
		err = &apiError{Status: http.StatusNotFound, Detail: "there is no such action"}
	}
	v.acted("../dead?"+page.Query(), action, err, func() bool { return count(after.Moved)+count(after.Dropped) > 0 })
}

func count(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func schedulesPage(v *visit) {
	list, err := call(v, httpapi.ListSchedules, struct{}{})
	if err != nil {
		v.fail(err)
		return
	}
	v.render(http.StatusOK, "schedules", "Schedules", list.Schedules)
}

func changeSchedule(v *visit) {
	name, action := httpapi.ScheduleName{Schedule: v.r.PathValue("schedule")}, v.r.PathValue("action")
	var after *opsview.Schedule
	var err error
	switch action {
	case "pause":
		after, err = call(v, httpapi.PauseSchedule, httpapi.SchedulePause{ScheduleName: name, PauseReason: httpapi.PauseReason{Reason: v.r.PostFormValue("reason")}})
	case "resume":
		after, err = call(v, httpapi.ResumeSchedule, name)
	case "fire":
		after, err = call(v, httpapi.FireSchedule, name)
	default:
		err = &apiError{Status: http.StatusNotFound, Detail: "there is no such action"}
	}
	v.acted("../../schedules", action, err, func() bool { return isChange(after.Changed) })
}

func fleetPage(v *visit) {
	list, err := call(v, httpapi.ShowFleet, httpapi.FleetQuery{})
	if err != nil {
		v.fail(err)
		return
	}
	v.render(http.StatusOK, "fleet", "Fleet", list)
}

// auditContent are records.
type auditContent struct {
	Bucket, Next string
	Records      []audit.Record
}

func auditPage(v *visit) {
	in := httpapi.AuditQuery{Bucket: v.r.FormValue("bucket"), Limit: linesOnPage, Cursor: v.r.FormValue("cursor")}
	page, err := call(v, httpapi.ShowAudit, in)
	if err != nil {
		v.fail(err)
		return
	}
	v.render(http.StatusOK, "audit", "Who changed what", &auditContent{in.Bucket, page.Next, page.Records})
}
