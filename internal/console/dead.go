package console

import (
	"html/template"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/shellword"
	"github.com/tundish-io/tundish/shaper/operator"
)

// deadChosen are the dead letters of a bucket that a filter matches. The address holds the whole filter.
type deadChosen struct {
	Bucket string
	Fields []field
	filter operator.DeadFilter
}

// field is one of a filter.
type field struct{ Name, Label, Value, flag string }

// deadFields are the fields of a filter of dead letters, and the flags of the commands for them.
var deadFields = []field{
	{"cause", "Cause", "", "--cause"}, {"reason", "Reason", "", "--reason"}, {"status", "Status", "", "--status"}, {"flow", "Flow", "", "--flow"},
	{"since", "Died since", "", "--since"}, {"until", "Died before", "", "--until"}, {"q", "Text", "", "--text"},
}

// deadOf reads a filter.
func deadOf(v *visit) (*deadChosen, error) {
	chosen := &deadChosen{Bucket: v.r.PathValue("bucket")}
	f := &chosen.filter
	for _, one := range deadFields {
		one.Value = v.r.FormValue(one.Name)
		if one.Value == "" {
			chosen.Fields = append(chosen.Fields, one)
			continue
		}
		var err error
		switch one.Name {
		case "cause":
			f.Cause = one.Value
		case "reason":
			f.Reason = one.Value
		case "status":
			if f.Status, err = strconv.Atoi(one.Value); err != nil {
				err = &apiError{Status: http.StatusBadRequest, Detail: "status: want a number, such as 503"}
			}
		case "flow":
			f.Flow = &one.Value
		case "since":
			f.Since, err = timeOf(one.Name, one.Value)
			one.Value = absolute(f.Since)
		case "until":
			f.Until, err = timeOf(one.Name, one.Value)
			one.Value = absolute(f.Until)
		case "q":
			f.Text = one.Value
		}
		if err != nil {
			return nil, err
		}
		chosen.Fields = append(chosen.Fields, one)
	}
	return chosen, nil
}

// Query is the filter in an address.
func (d *deadChosen) Query() template.URL { return template.URL(d.query()) } //nolint:gosec // it is encoded

func (d *deadChosen) query() string {
	values := url.Values{}
	for _, one := range d.Fields {
		if one.Value != "" {
			values.Set(one.Name, one.Value)
		}
	}
	return values.Encode()
}

// All reports whether the filter matches every dead letter.
func (d *deadChosen) All() bool { return d.filter == operator.DeadFilter{} }

// Command returns the command that changes all these dead letters.
func (d *deadChosen) Command(verb string) string {
	words := []string{"dispatcher", "dead", verb, d.Bucket}
	for _, one := range d.Fields {
		if one.Value != "" {
			words = append(words, one.flag, one.Value)
		}
	}
	if d.All() && verb != "reasons" {
		words = append(words, "--all")
	}
	return shellword.Join(words...)
}

// choice returns the choice of these dead letters for the API.
func (d *deadChosen) choice() httpapi.DeadChoice {
	return httpapi.DeadChoice{BucketName: httpapi.BucketName{Bucket: d.Bucket}, Filter: d.filter, All: d.All()}
}

// deadContent holds dead letters, and their number by reason.
type deadContent struct {
	*deadChosen
	*opsview.DeadPage

	Reasons *httpapi.DeadReasons
}

func deadPage(v *visit) {
	chosen, err := deadOf(v)
	if err != nil {
		v.fail(err)
		return
	}
	page := deadContent{deadChosen: chosen}
	name := httpapi.BucketName{Bucket: chosen.Bucket}
	page.DeadPage, err = call(v, httpapi.ListDead, httpapi.DeadQuery{BucketName: name, DeadFilter: chosen.filter, Page: httpapi.Page{Limit: linesOnPage, Cursor: v.r.FormValue("cursor")}})
	if err == nil {
		page.Reasons, err = call(v, httpapi.ShowDeadReasons, httpapi.DeadReasonsQuery{BucketName: name, DeadFilter: chosen.filter})
	}
	if err != nil {
		v.fail(err)
		return
	}
	v.render(http.StatusOK, "dead", "Dead letters of "+chosen.Bucket, &page)
}

// Only is the filter of this page with the words of a reason, for a link.
func (d *deadContent) Only(reason operator.DeadReason) template.URL {
	values, err := url.ParseQuery(d.query())
	if err != nil {
		return ""
	}
	values.Set("cause", reason.Cause)
	for name, value := range map[string]string{"reason": reason.Reason, "status": strconv.Itoa(reason.Status)} {
		if value != "" && value != "0" {
			values.Set(name, value)
		}
	}
	return template.URL(values.Encode()) //nolint:gosec // it is encoded
}

// changeDead redrives or drops the dead letters that were marked.
func changeDead(v *visit) {
	chosen, err := deadOf(v)
	if err != nil {
		v.fail(err)
		return
	}
	choice := httpapi.DeadChoice{BucketName: httpapi.BucketName{Bucket: chosen.Bucket}, IDs: v.r.PostForm["id"]}
	var after *opsview.DeadChange
	action := v.r.PathValue("action")
	switch {
	case len(choice.IDs) == 0:
		err = &apiError{Status: http.StatusBadRequest, Detail: "no dead letter is chosen: mark some"}
	case action == "redrive":
		after, err = call(v, httpapi.RedriveDead, httpapi.DeadRedrive{DeadChoice: choice})
	case action == "drop":
		after, err = call(v, httpapi.DropDead, choice)
	default:
		err = errNoAction
	}
	v.acted("../dead?"+chosen.query(), action, err, func() bool { return count(after.Moved)+count(after.Dropped) > 0 })
}

func count(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}
