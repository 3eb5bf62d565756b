package console

import (
	"net/http"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
)

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
