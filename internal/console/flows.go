package console

import (
	"html/template"
	"net/http"
	"net/url"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/shellword"
)

// flowsContent are flows of a bucket.
type flowsContent struct {
	Bucket, Match, Group, Sort string
	Failing                    bool

	*httpapi.FlowList
}

// sortAny lists all flows in no order, also those without waiting jobs.
const sortAny = "any"

// Query is the filter in an address, escaped for it.
func (f *flowsContent) Query() template.URL {
	values := url.Values{}
	for name, value := range map[string]string{"q": f.Match, "group": f.Group, "sort": f.Sort} {
		if value != "" {
			values.Set(name, value)
		}
	}
	if f.Failing {
		values.Set("failing", "true")
	}
	return template.URL(values.Encode()) //nolint:gosec // all of it is escaped
}

// flowsPage lists the flows of a bucket: first the fullest of a part, because reading all may take long.
func flowsPage(v *visit) {
	form := v.r.FormValue
	page := flowsContent{Bucket: v.r.PathValue("bucket"), Match: form("q"), Group: form("group"), Sort: form("sort"), Failing: form("failing") == "true"}
	in := httpapi.FlowQuery{
		BucketName: httpapi.BucketName{Bucket: page.Bucket}, Q: page.Match, Failing: page.Failing, Group: named(page.Group),
		PartPage: httpapi.PartPage{Limit: linesOnPage, Cursor: form("cursor")},
	}
	if page.Sort != sortAny && !page.Failing && page.Match == "" {
		in.Sort, in.Look = "waiting", flowsLooked
	}
	var err error
	if page.FlowList, err = call(v, httpapi.ListFlows, in); err != nil {
		v.fail(err)
		return
	}
	v.render(http.StatusOK, "flows", "Flows of "+page.Bucket, &page)
}

// named returns a pointer to a name, nil for "".
func named(name string) *string {
	if name == "" {
		return nil
	}
	return &name
}

// flowContent is one flow.
type flowContent struct{ *opsview.Flow }

// Command is a command of the command line on the flow.
func (f flowContent) Command(words string) string {
	return partCommand("flow "+words, f.Bucket, f.Flow.Flow, deref(f.Group))
}

// RetryCommand returns the command that makes its retries due.
func (f flowContent) RetryCommand() string {
	words := []string{"dispatcher", "job", "retry", f.Bucket}
	if f.Group != nil {
		words = append(words, "--group="+*f.Group)
	}
	return shellword.Join(append(words, "--flow="+f.Flow.Flow)...)
}

// partCommand is a command on a flow or a group. A name may begin as a flag does.
func partCommand(words, bucket, name, group string) string {
	text := "dispatcher " + words + " " + bucket
	if group != "" {
		text += " --group=" + shellword.Quote(group)
	}
	if name != "" && name[0] == '-' {
		text += " --"
	}
	return text + " " + shellword.Quote(name)
}

func flowPage(v *visit) {
	in := httpapi.FlowName{BucketName: httpapi.BucketName{Bucket: v.r.PathValue("bucket")}, Flow: v.r.FormValue("flow"), Group: named(v.r.FormValue("group"))}
	flow, err := call(v, httpapi.FlowOperations.Show, in)
	if err != nil {
		v.fail(err)
		return
	}
	v.render(http.StatusOK, "flow", "Flow "+shownName(in.Flow), flowContent{flow})
}

// changeFlow carries out an action on a flow, and shows it again.
func changeFlow(v *visit) {
	of := httpapi.FlowName{BucketName: httpapi.BucketName{Bucket: v.r.PathValue("bucket")}, Flow: v.r.PostFormValue("flow"), Group: named(v.r.PostFormValue("group"))}
	action := v.r.PathValue("action")
	back := "../flow?" + query("flow", of.Flow)
	if of.Group != nil {
		back += "&" + query("group", *of.Group)
	}
	var after *opsview.Flow
	var err error
	switch action {
	case "pause":
		after, err = call(v, httpapi.FlowOperations.Pause, httpapi.PartPause[httpapi.FlowName]{Part: of, PauseReason: httpapi.PauseReason{Reason: v.r.PostFormValue("reason")}})
	case "resume":
		after, err = call(v, httpapi.FlowOperations.Resume, of)
	case "release":
		after, err = call(v, httpapi.ReleaseFlow, of)
	case "retry":
		retryNow(v, httpapi.JobRetry{BucketName: of.BucketName, Flow: &of.Flow, Group: of.Group}, back)
		return
	case "enable":
		var enabled *opsview.EnabledFlow
		if enabled, err = call(v, httpapi.EnableFlow, httpapi.FlowEnable{FlowName: of}); err == nil {
			after, action = &enabled.Flow, "resume"
		}
	default:
		err = errNoAction
	}
	v.acted(back, action, err, func() bool { return isChange(after.Changed) })
}

// groupsContent are groups of a bucket.
type groupsContent struct {
	Bucket, Next string
	Groups       []groupContent
}

type groupContent struct{ *opsview.Group }

// Command is a command of the command line on the group.
func (g groupContent) Command(words string) string {
	return partCommand("group "+words, g.Bucket, g.Group.Group, "")
}

func groupsPage(v *visit) {
	in := httpapi.GroupQuery{BucketName: httpapi.BucketName{Bucket: v.r.PathValue("bucket")}, PartPage: httpapi.PartPage{Limit: linesOnPage, Cursor: v.r.FormValue("cursor")}}
	list, err := call(v, httpapi.ListGroups, in)
	if err != nil {
		v.fail(err)
		return
	}
	page := groupsContent{Bucket: in.Bucket, Next: list.Next}
	for _, group := range list.Groups {
		page.Groups = append(page.Groups, groupContent{group})
	}
	v.render(http.StatusOK, "groups", "Groups of "+page.Bucket, &page)
}

// changeGroup pauses or resumes a group.
func changeGroup(v *visit) {
	of := httpapi.GroupName{BucketName: httpapi.BucketName{Bucket: v.r.PathValue("bucket")}, Group: v.r.PostFormValue("group")}
	action := v.r.PathValue("action")
	var after *opsview.Group
	var err error
	switch action {
	case "pause":
		after, err = call(v, httpapi.GroupOperations.Pause, httpapi.PartPause[httpapi.GroupName]{Part: of, PauseReason: httpapi.PauseReason{Reason: v.r.PostFormValue("reason")}})
	case "resume":
		after, err = call(v, httpapi.GroupOperations.Resume, of)
	default:
		err = errNoAction
	}
	v.acted("../groups", action, err, func() bool { return isChange(after.Changed) })
}
