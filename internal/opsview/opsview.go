// Package opsview holds the views that operators have of buckets, flows, groups, pools and jobs. The HTTP API returns these views, and the command line
// prints them.
package opsview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// View is a flow or a group as JSON shows it: a [*Flow], an [*EnabledFlow] or a [*Group].
type View interface {
	Alike() *Common
	Names() (group, flow *string) // nil for the one it does not have
	Own() Settings
	Notes() []string // what keeps it from sending, besides a pause
}

// Common is the part that flows and groups have in common.
type Common struct {
	operator.FlowNumbers

	// The time of its turn, unless its group is held back. Absent if it has nothing to send or is held back itself.
	Turn *time.Time `json:"turn,omitempty"`

	// Only of a paused flow.
	Pause *Pause `json:"pause,omitempty"`

	// The budgets that apply to it alone, with what is charged to each: its own, or else the budgets for all flows of its bucket. Absent without
	// budgets.
	Budgets []Budget `json:"budgets,omitempty"`

	// The quotas that apply to it alone, with what remains of each: its own, or else the quotas for all flows of its bucket. Absent without quotas.
	Quotas []Quota `json:"quotas,omitempty"`

	// Redis has nothing of it: no job of it waits or is in flight, it has no settings, no pause, no charge of a budget and no departure of a quota. It is
	// idle, or its name is wrong. Absent otherwise.
	Unknown bool `json:"unknown,omitempty"`

	// Only in the response to a change: there was something to resume, release, enable or delete.
	Changed *bool `json:"changed,omitempty"`
}

// Alike returns the part that flows and groups have in common.
func (c *Common) Alike() *Common { return c }

// Left returns what remains of the most used quota or budget, such as "2 of 10/m"; "" without any.
func (c *Common) Left() string { return leastLeft(c.Quotas, c.Budgets) }

// AllowanceNote returns the quota or budget that holds it longest; "" if none does.
func (c *Common) AllowanceNote() string {
	var longest time.Time
	note := ""
	for i := range c.Budgets {
		if b := &c.Budgets[i]; b.HeldUntil != nil && b.HeldUntil.After(longest) {
			longest = *b.HeldUntil
			note = fmt.Sprintf("its budget of %s lets the next job go at %s (free in its window: %d)", b.Budget, longest.Format(time.RFC3339), b.Free)
		}
	}
	for i := range c.Quotas {
		if q := &c.Quotas[i]; q.HeldUntil != nil && q.HeldUntil.After(longest) {
			longest = *q.HeldUntil
			note = fmt.Sprintf("its quota of %s is used up until %s", q.Quota, longest.Format(time.RFC3339))
		}
	}
	return note
}

// Flow is a flow as JSON shows it.
type Flow struct {
	Bucket string `json:"bucket"`

	// Only in a bucket with groups.
	Group *string `json:"group,omitempty"`
	Flow  string  `json:"flow"`
	Common

	// Only of a disabled flow: it sends nothing and takes no jobs until it is enabled.
	Disabled *Disabled `json:"disabled,omitempty"`

	// Only of a disabled flow in a bucket with `flow.when_disabled = "keep"`: its jobs wait, up to its capacity, until it is enabled.
	Keeps bool `json:"keeps_jobs,omitempty"`

	// Only in a bucket with `flow.must_exist`, of a flow without settings of its own: its jobs are refused (404 unknown-flow), and those that wait
	// stay until it has a setting.
	Missing bool `json:"missing,omitempty"`

	// Its own settings. For absent ones the bucket's settings for all flows apply.
	Settings   Settings    `json:"settings"`
	Downstream *Downstream `json:"downstream,omitempty"` // the effect of its responses; none without one
}

// Names returns the flow and, with groups, its group.
func (f *Flow) Names() (group, flow *string) { return f.Group, &f.Flow }

// Own are its own settings.
func (f *Flow) Own() Settings { return f.Settings }

// Notes returns what keeps the flow from sending, besides a pause.
func (f *Flow) Notes() (notes []string) {
	if f.Missing {
		notes = append(notes, "has no settings of its own, which flow.must_exist asks for: it takes and sends no jobs until `flow set` gives it one")
	}
	if d := f.Disabled; d != nil {
		note := (&shaper.Disabled{Since: d.Since, Reason: d.Reason}).String()
		if f.Keeps {
			note += ": its jobs are kept, up to its capacity, and depart once `flow enable` has enabled it"
		}
		notes = append(notes, note)
	}
	switch d := f.Downstream; {
	case d != nil && d.Text != "":
		notes = append(notes, d.Text)
	case d != nil && d.Failures > 0:
		notes = append(notes, fmt.Sprintf("%s in a row, the last one %s", Count(d.Failures, "failure"), cmp.Or(d.Reason, "of an unknown reason")))
	}
	return notes
}

// Group is a group of flows as JSON shows it.
type Group struct {
	Bucket string `json:"bucket"`
	Group  string `json:"group"`
	Common

	// Its own settings. For absent ones the bucket's settings for all groups apply.
	Settings shaper.OwnBounds `json:"settings"`
}

// Names returns the group; flow is nil.
func (g *Group) Names() (group, flow *string) { return &g.Group, nil }

// Own are its own settings.
func (g *Group) Own() Settings { return Settings{OwnBounds: g.Settings} }

// Notes returns none: a group is only ever paused.
func (*Group) Notes() []string { return nil }

// Settings are the own settings of a flow; a group has only bounds. They show the origin of a URL, the names of headers, and the number and the
// fingerprints of secrets: each of these may hold credentials.
type Settings struct {
	shaper.OwnBounds

	// The receiver of its jobs that name no URL, before the bucket's: its origin, and /*** for the rest.
	URL string `json:"url,omitempty"`

	// Names of the headers that replace a job's, towards the origin of the url only.
	Headers []string `json:"headers,omitempty"`

	// The number of its secrets.
	Secrets int `json:"secrets_count,omitempty"`

	// The first 12 hex digits of the SHA-256 of each secret. The newest secret comes first.
	SecretFingerprints []string `json:"secret_fingerprints,omitempty"`
}

// FlowOf shows a flow.
func FlowOf(info *operator.FlowInfo) *Flow {
	own := &info.Own
	view := &Flow{Bucket: info.Bucket, Flow: info.Flow, Common: commonOf(&info.PartInfo), Disabled: DisabledOf(own.Disabled), Missing: info.Missing, Settings: Settings{
		OwnBounds: own.OwnBounds, URL: shaper.RedactedURL(own.URL), Headers: slices.Sorted(maps.Keys(own.Headers)), Secrets: len(own.Secrets),
		SecretFingerprints: own.SecretFingerprints(),
	}}
	view.Downstream = DownstreamOf(info.Downstream, time.Now())
	if d := info.Downstream; d != nil && d.HeldUntil.After(info.Turn) {
		view.Turn = nil // nothing is sent at that turn: the downstream says until when it is held
	}
	if info.Group != "" {
		view.Group = &info.Group
	}
	return view
}

// GroupOf shows a group.
func GroupOf(info *operator.GroupInfo) *Group {
	return &Group{Bucket: info.Bucket, Group: info.Group, Common: commonOf(&info.PartInfo), Settings: info.Own.OwnBounds}
}

func commonOf(info *operator.PartInfo) Common {
	common := Common{FlowNumbers: info.FlowNumbers, Pause: PauseOf(info.Own.Pause), Budgets: BudgetsOf(info.Budgets, time.Time{}), Quotas: QuotasOf(info.Quotas, time.Time{}), Unknown: !info.Known}
	if info.Own.Pause == nil && info.Own.Disabled == nil { // a turn may remain until a claim sees that
		common.Turn = instant(info.Turn)
	}
	return common
}
