package console

import (
	"net/http"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/audit"
)

const linesOnPage = 50

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
		err = errNoAction
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
	Bucket, Author, Next string
	Logins               bool
	Records              []audit.Record
}

func auditPage(v *visit) {
	in := httpapi.AuditQuery{Bucket: v.r.FormValue("bucket"), Author: v.r.FormValue("author"), Logins: v.r.FormValue("logins") == "true", Limit: linesOnPage, Cursor: v.r.FormValue("cursor")}
	page, err := call(v, httpapi.ShowAudit, in)
	if err != nil {
		v.fail(err)
		return
	}
	title := "Who changed what"
	if in.Logins {
		title = "Logins"
	}
	v.render(http.StatusOK, "audit", title, &auditContent{in.Bucket, in.Author, page.Next, in.Logins, page.Records})
}

func sessionsPage(v *visit) {
	list, err := call(v, httpapi.ListSessions, struct{}{})
	if err != nil {
		v.fail(err)
		return
	}
	v.render(http.StatusOK, "sessions", "Who is logged in", list)
}

func endSession(v *visit) {
	after, err := call(v, httpapi.EndSession, httpapi.SessionName{ID: v.r.PathValue("id")})
	v.acted("../../sessions", "end-session", err, func() bool { return after.Changed })
}
