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
	return viewOfFlow(&info), err
}

type group struct{ operator.GroupControl }

func (g group) Show(ctx context.Context) (View, error) {
	info, err := g.Info(ctx)
	return viewOfGroup(&info), err
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
			return viewsOf(infos, viewOfFlow), next, err
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
			return viewsOf(infos, viewOfGroup), next, err
		},
		One: func(b operator.BucketControl, _ *string, name string) Part { return group{b.Group(name)} },
	}
}

// View is a flow or a group as JSON shows it.
type View struct {
	Bucket   string     `json:"bucket"`
	Group    *string    `json:"group,omitempty"` // of a flow, only where there are groups
	Flow     *string    `json:"flow,omitempty"`  // none of a group
	Waiting  int64      `json:"waiting"`
	InFlight int64      `json:"in_flight"`
	Turn     *time.Time `json:"turn,omitempty"`     // when it is looked at next; none if it has nothing to send or is held back
	Pause    *Pause     `json:"pause,omitempty"`    // only of one that is paused
	Disabled *Disabled  `json:"disabled,omitempty"` // only of a disabled flow
	Settings Settings   `json:"settings"`

	Downstream *Downstream `json:"downstream,omitempty"` // of a flow: what the answers to it have changed; none if nothing

	// Unknown says that Redis holds nothing of it: no job that waits or is in flight, no settings, no state. It is idle, or its name is wrong.
	Unknown bool `json:"unknown,omitempty"`

	Outcome
}

// Settings are what a flow or a group has of its own. Of a URL the origin is told, of headers the
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

func viewOfFlow(info *operator.FlowInfo) View {
	view := viewOf(info.Bucket, info.Waiting, info.InFlight, info.Turn, &info.Own)
	view.Flow, view.Unknown = &info.Flow, !info.Known
	view.Downstream = DownstreamOf(info.Downstream, time.Now())
	if d := info.Downstream; d != nil && d.HeldUntil.After(info.Turn) {
		view.Turn = nil // nothing leaves at that turn: the downstream says until when it is held
	}
	if info.Group != "" {
		view.Group = &info.Group
	}
	return view
}

func viewOfGroup(info *operator.GroupInfo) View {
	view := viewOf(info.Bucket, info.Waiting, info.InFlight, info.Turn, &info.Own)
	view.Group, view.Unknown = &info.Group, !info.Known
	return view
}

func viewOf(bucket string, waiting, inFlight int64, turn time.Time, own *shaper.OwnFlow) View {
	view := View{
		Bucket: bucket, Waiting: waiting, InFlight: inFlight, Pause: PauseOf(own.Pause), Disabled: DisabledOf(own.Disabled),
		Settings: Settings{
			OwnBounds: own.OwnBounds, URL: shaper.RedactedURL(own.URL), Headers: slices.Sorted(maps.Keys(own.Headers)), Secrets: len(own.Secrets),
			SecretFingerprints: own.SecretFingerprints(),
		},
	}
	if own.Pause == nil && own.Disabled == nil { // a turn may stand until a claim sees that
		view.Turn = instant(turn)
	}
	return view
}
