// Package opsview holds what operators see of buckets, flows, groups, pools and jobs. The HTTP API answers these views, and
// the command line prints them.
package opsview

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Kind is flows or groups.
type Kind struct {
	Name     string               // "flow" or "group", also on the command line and in paths
	Settings []shaper.FlowSetting // that one may have of its own

	// List lists those of a bucket, from a cursor on; flows of one group, if it is not nil.
	List func(ctx context.Context, b operator.Bucket, group *string, cursor string, limit int) (views []View, next string, err error)

	// Release ends what the downstream's answers have changed of one, and reports whether there was something; nil of groups, which
	// have nothing of it.
	Release func(ctx context.Context, part Part) (was bool, err error)

	// Enable lets a disabled one run again, and reports whether it was disabled; redrive: and redrives its dead letters. nil of groups,
	// which are never disabled.
	Enable func(ctx context.Context, part Part, redrive bool) (was bool, redriven operator.Redriven, err error)

	// New is an empty one, to read the answer to a change into.
	New func() View

	// One names one of a bucket, to look at and to change; a flow of a group, if it is not nil.
	One func(b operator.BucketControl, group *string, name string) Part
}

// Part is a flow or a group to look at and to change: an [operator.FlowControl] or an [operator.GroupControl].
type Part interface {
	Show(ctx context.Context) (View, error)
	Pause(ctx context.Context, reason string) error
	Resume(ctx context.Context) (was bool, err error)
	Set(ctx context.Context, patch operator.FlowPatch) (shaper.OwnFlow, error)
	Reset(ctx context.Context) (had bool, err error)
	Purge(ctx context.Context, options operator.PurgeOptions) (operator.Purged, error)
}

type flow struct{ operator.FlowControl }

func (f flow) Show(ctx context.Context) (View, error) {
	info, err := f.Info(ctx)
	return flowOf(&info), err
}

type group struct{ operator.GroupControl }

func (g group) Show(ctx context.Context) (View, error) {
	info, err := g.Info(ctx)
	return groupOf(&info), err
}

// Flows are the flows of a bucket.
func Flows() Kind {
	return Kind{
		Name: "flow", Settings: shaper.FlowSettingNames(),
		List: func(ctx context.Context, b operator.Bucket, group *string, cursor string, limit int) ([]View, string, error) {
			list := b.Flows
			if group != nil {
				list = b.Group(*group).Flows
			}
			infos, next, err := list(ctx, cursor, limit)
			return viewsOf(infos, flowOf), next, err
		},
		Release: func(ctx context.Context, part Part) (bool, error) {
			return part.(flow).Release(ctx) //nolint:forcetypeassert // One makes it
		},
		Enable: func(ctx context.Context, part Part, redrive bool) (was bool, redriven operator.Redriven, err error) {
			f := part.(flow) //nolint:forcetypeassert // One makes it
			if was, err = f.Enable(ctx); err == nil && redrive {
				redriven, err = f.RedriveDisabled(ctx)
			}
			return was, redriven, err
		},
		New: func() View { return &EnabledFlow{} },
		One: func(b operator.BucketControl, group *string, name string) Part {
			if group != nil {
				return flow{b.Group(*group).Flow(name)}
			}
			return flow{b.Flow(name)}
		},
	}
}

// Groups are the groups of a bucket's flows.
func Groups() Kind {
	return Kind{
		Name: "group", Settings: shaper.GroupSettingNames(),
		List: func(ctx context.Context, b operator.Bucket, _ *string, cursor string, limit int) ([]View, string, error) {
			infos, next, err := b.Groups(ctx, cursor, limit)
			return viewsOf(infos, groupOf), next, err
		},
		New: func() View { return &Group{} },
		One: func(b operator.BucketControl, _ *string, name string) Part { return group{b.Group(name)} },
	}
}

// View is a flow or a group as JSON shows it: a [*Flow], an [*EnabledFlow] or a [*Group].
type View interface {
	Alike() *Common
	Names() (group, flow *string) // nil of what it does not have
	Own() Settings
	Notes() []string // on what keeps it from sending, besides a pause
}

// Common is what flows and groups show alike.
type Common struct {
	operator.FlowNumbers
	Turn  *time.Time `json:"turn,omitempty"`  // when it is looked at next; none if it has nothing to send or is held back
	Pause *Pause     `json:"pause,omitempty"` // only of one that is paused

	// Unknown says that Redis holds nothing of it: no job that waits or is in flight, no settings, no state. It is idle, or its name is wrong.
	Unknown bool `json:"unknown,omitempty"`

	Outcome
}

// Alike is what it shows as any flow or group does.
func (c *Common) Alike() *Common { return c }

// Flow is a flow as JSON shows it.
type Flow struct {
	Bucket string  `json:"bucket"`
	Group  *string `json:"group,omitempty"` // only where there are groups
	Flow   string  `json:"flow"`
	Common
	Disabled   *Disabled   `json:"disabled,omitempty"` // only of a disabled one
	Settings   Settings    `json:"settings"`
	Downstream *Downstream `json:"downstream,omitempty"` // what the answers to it have changed; none if nothing
}

// Names are those of the flow and, where there are groups, of its group.
func (f *Flow) Names() (group, flow *string) { return f.Group, &f.Flow }

// Own are its own settings.
func (f *Flow) Own() Settings { return f.Settings }

// Notes are on what keeps it from sending, besides a pause.
func (f *Flow) Notes() (notes []string) {
	if d := f.Disabled; d != nil {
		notes = append(notes, (&shaper.Disabled{Since: d.Since, Reason: d.Reason}).String())
	}
	if d := f.Downstream; d != nil && d.Text != "" {
		notes = append(notes, d.Text)
	}
	return notes
}

// Group is a group of flows as JSON shows it.
type Group struct {
	Bucket string `json:"bucket"`
	Group  string `json:"group"`
	Common
	Settings shaper.OwnBounds `json:"settings"`
}

// Names are that of the group, and of no flow.
func (g *Group) Names() (group, flow *string) { return &g.Group, nil }

// Own are its own settings.
func (g *Group) Own() Settings { return Settings{OwnBounds: g.Settings} }

// Notes are none: a group is only ever paused.
func (*Group) Notes() []string { return nil }

// Settings are what a flow has of its own; of a group there are bounds only. Of a URL the origin is told, of headers the
// names, and of secrets the number and the fingerprints: all of them may hold credentials.
type Settings struct {
	shaper.OwnBounds

	URL     string   `json:"url,omitempty"`     // its origin: path and query may hold a token
	Headers []string `json:"headers,omitempty"` // their names: a value may be a credential
	Secrets int      `json:"secrets_count,omitempty"`

	SecretFingerprints []string `json:"secret_fingerprints,omitempty"` // see shaper.SecretFingerprint
}

func viewsOf[T any](infos []T, viewOf func(*T) View) []View {
	views := make([]View, len(infos))
	for i := range infos {
		views[i] = viewOf(&infos[i])
	}
	return views
}

func flowOf(info *operator.FlowInfo) View {
	own := &info.Own
	view := &Flow{Bucket: info.Bucket, Flow: info.Flow, Common: commonOf(&info.PartInfo), Disabled: DisabledOf(own.Disabled), Settings: Settings{
		OwnBounds: own.OwnBounds, URL: shaper.RedactedURL(own.URL), Headers: slices.Sorted(maps.Keys(own.Headers)), Secrets: len(own.Secrets),
		SecretFingerprints: own.SecretFingerprints(),
	}}
	view.Downstream = DownstreamOf(info.Downstream, time.Now())
	if d := info.Downstream; d != nil && d.HeldUntil.After(info.Turn) {
		view.Turn = nil // nothing leaves at that turn: the downstream says until when it is held
	}
	if info.Group != "" {
		view.Group = &info.Group
	}
	return view
}

func groupOf(info *operator.GroupInfo) View {
	return &Group{Bucket: info.Bucket, Group: info.Group, Common: commonOf(&info.PartInfo), Settings: info.Own.OwnBounds}
}

func commonOf(info *operator.PartInfo) Common {
	common := Common{FlowNumbers: info.FlowNumbers, Pause: PauseOf(info.Own.Pause), Unknown: !info.Known}
	if info.Own.Pause == nil && info.Own.Disabled == nil { // a turn may stand until a claim sees that
		common.Turn = instant(info.Turn)
	}
	return common
}
