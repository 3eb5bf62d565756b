package console

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
)

// deadRun is a change of all dead letters that a filter matches. The page makes it step by step, and each step reads 2000 dead letters. All its state is
// in the page, so it stops when the page is closed.
type deadRun struct {
	*deadChosen

	Action string // "redrive" or "drop"
	Cursor string // where the next step continues; "" at the first and after the last
	Run    string // the id of all its requests
	Part   string // the token of the last step, so that the audit has one record of them
	Done   int    // dead letters changed so far
	Looked int
	Step   *opsview.DeadChange // the result of the last step; nil: none yet
	Count  *opsview.DeadChange // before the first step: the number of matches
}

// runIDs are the ids of requests that a run may have.
var runIDs = regexp.MustCompile(`^[A-Za-z0-9]{20,60}$`)

func deadRunOf(v *visit) (*deadRun, error) {
	chosen, err := deadOf(v)
	if err != nil {
		return nil, err
	}
	run := &deadRun{deadChosen: chosen, Action: v.r.PathValue("action"), Cursor: v.r.PostFormValue("cursor"), Run: v.r.PostFormValue("run")}
	if run.Action != "redrive" && run.Action != "drop" {
		return nil, errNoAction
	}
	if !runIDs.MatchString(run.Run) {
		run.Run = rand.Text()
	}
	run.Done, _ = strconv.Atoi(v.r.PostFormValue("done"))
	run.Looked, _ = strconv.Atoi(v.r.PostFormValue("looked"))
	return run, nil
}

// change calls the API for a step, or for a count.
func (d *deadRun) change(v *visit, choice httpapi.DeadChoice) (*opsview.DeadChange, error) {
	if d.Action == "redrive" {
		return call(v, httpapi.RedriveDead, httpapi.DeadRedrive{DeadChoice: choice})
	}
	choice.Confirm = v.r.PostFormValue("confirm")
	return call(v, httpapi.DropDead, choice)
}

// askDead shows what a change of all would change, and asks for confirmation.
func askDead(v *visit) {
	run, err := deadRunOf(v)
	if err == nil {
		choice := run.choice()
		choice.DryRun = true
		run.Count, err = run.change(v, choice)
	}
	if err != nil {
		v.fail(err)
		return
	}
	v.render(http.StatusOK, "deadall", run.title(), run)
}

// stepDead makes one step. A step that is sent again, as by a reload, changes the rest of the first one.
func stepDead(v *visit) {
	run, err := deadRunOf(v)
	if err != nil {
		v.fail(err)
		return
	}
	choice := run.choice()
	choice.Cursor = run.Cursor
	v.request, v.part = run.Run, v.r.PostFormValue("part")
	if run.Step, err = run.change(v, choice); err != nil {
		v.fail(err)
		return
	}
	run.Cursor, run.Part = run.Step.Next, v.part
	run.Looked += run.Step.Looked
	run.Done += count(run.Step.Moved) + count(run.Step.Dropped)
	if v.r.Header.Get("Accept") != "application/json" {
		v.render(http.StatusOK, "deadall", run.title(), run)
		return
	}
	v.w.Header().Set("Content-Type", "application/json") // for the script, whose page stays as it is
	_ = json.NewEncoder(v.w).Encode(struct {             // a visitor that has disconnected needs no response
		Said    string `json:"said"`
		Cursor  string `json:"cursor"`
		Part    string `json:"part"`
		Done    int    `json:"done"`
		Looked  int    `json:"looked"`
		Waiting bool   `json:"waiting"`
	}{run.Said(), run.Cursor, run.Part, run.Done, run.Looked, run.Step.Waiting})
}

func (d *deadRun) title() string {
	if d.Action == "drop" {
		return "Drop dead letters of " + d.Bucket
	}
	return "Redrive dead letters of " + d.Bucket
}

// Said returns the progress of the run.
func (d *deadRun) Said() string {
	done := "put back"
	if d.Action == "drop" {
		done = "dropped"
	}
	text := fmt.Sprintf("%s %s, %d looked at.", counted(d.Done, "dead letter"), done, d.Looked)
	switch left := d.Step.Full + d.Step.FlowFull + d.Step.GroupFull; {
	case d.Cursor == "":
		text += " This was all of them."
	case d.Step.Waiting:
		text += fmt.Sprintf(" %s found no place: the next step tries them again, as jobs leave.", counted(left, "letter"))
	}
	if d.Step.Disabled > 0 {
		text += fmt.Sprintf(" %s stay dead, as their flows are disabled.", counted(d.Step.Disabled, "letter"))
	}
	return text
}
