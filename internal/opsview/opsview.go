// Package opsview holds the views of flows, groups and pools for operators. The HTTP API and
// the command line print the same views.
package opsview

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Kind is flows or groups: what can be done to one, by the [operator.Control] that is given.
// That one may have to know in which group a flow is ([operator.Control.InGroup]).
type Kind struct {
	Name     string               // "flow" or "group", also on the command line and in paths
	Settings []shaper.FlowSetting // that one may have of its own

	List   func(c *operator.Control, ctx context.Context, bucket, cursor string, limit int) (views []View, next string, err error)
	Show   func(c *operator.Control, ctx context.Context, bucket, name string) (View, error)
	Pause  func(c *operator.Control, ctx context.Context, bucket, name, reason string) error
	Resume func(c *operator.Control, ctx context.Context, bucket, name string) (was bool, err error)
	Set    func(c *operator.Control, ctx context.Context, bucket, name string, patch operator.FlowPatch) (shaper.OwnFlow, error)
	Reset  func(c *operator.Control, ctx context.Context, bucket, name string) (had bool, err error)
	Purge  func(c *operator.Control, ctx context.Context, bucket, name string, options operator.PurgeOptions) (operator.Purged, error)
}

// Flows are the flows of a bucket.
func Flows() Kind {
	return Kind{
		Name: "flow", Settings: shaper.FlowSettingNames(),
		List: func(c *operator.Control, ctx context.Context, bucket, cursor string, limit int) ([]View, string, error) {
			infos, next, err := c.Flows(ctx, bucket, cursor, limit)
			return viewsOf(infos, viewOfFlow), next, err
		},
		Show: func(c *operator.Control, ctx context.Context, bucket, name string) (View, error) {
			info, err := c.Flow(ctx, bucket, name)
			return viewOfFlow(&info), err
		},
		Pause: (*operator.Control).PauseFlow, Resume: (*operator.Control).ResumeFlow,
		Set: (*operator.Control).SetFlow, Reset: (*operator.Control).DeleteFlowSettings, Purge: (*operator.Control).PurgeFlow,
	}
}

// Groups are the groups of a bucket's flows.
func Groups() Kind {
	return Kind{
		Name: "group", Settings: shaper.GroupSettingNames(),
		List: func(c *operator.Control, ctx context.Context, bucket, cursor string, limit int) ([]View, string, error) {
			infos, next, err := c.Groups(ctx, bucket, cursor, limit)
			return viewsOf(infos, viewOfGroup), next, err
		},
		Show: func(c *operator.Control, ctx context.Context, bucket, name string) (View, error) {
			info, err := c.Group(ctx, bucket, name)
			return viewOfGroup(&info), err
		},
		Pause: (*operator.Control).PauseGroup, Resume: (*operator.Control).ResumeGroup,
		Set: (*operator.Control).SetGroup, Reset: (*operator.Control).DeleteGroupSettings, Purge: (*operator.Control).PurgeGroup,
	}
}

// View is a flow or a group as JSON shows it.
type View struct {
	Bucket   string     `json:"bucket"`
	Group    *string    `json:"group,omitempty"` // of a flow, only where there are groups
	Flow     *string    `json:"flow,omitempty"`  // none of a group
	Waiting  int64      `json:"waiting"`
	InFlight int64      `json:"in_flight"`
	Turn     *time.Time `json:"turn,omitempty"`  // when it is looked at next; none if it has nothing to send or is held back
	Pause    *Pause     `json:"pause,omitempty"` // only of one that is paused
	Settings Settings   `json:"settings"`

	Known bool `json:"-"` // Redis holds something of it
}

// Settings are what a flow or a group has of its own. Of a URL the origin is told, of headers the
// names, and of secrets the number: all of them may hold credentials.
type Settings struct {
	Rate        string   `json:"rate,omitempty"`
	Burst       *int64   `json:"burst,omitempty"`
	Capacity    *int64   `json:"capacity,omitempty"`
	MaxInFlight *int64   `json:"max_in_flight,omitempty"`
	Weight      *int64   `json:"weight,omitempty"`
	URL         string   `json:"url,omitempty"`     // its origin: path and query may hold a token
	Headers     []string `json:"headers,omitempty"` // their names: a value may be a credential
	Secrets     int      `json:"secrets_count,omitempty"`
}

// Pause is that of a bucket, a group or a flow.
type Pause struct {
	Since  time.Time `json:"since"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
}

// PauseOf shows a pause: nil of what runs.
func PauseOf(pause *shaper.Pause) *Pause {
	if pause == nil {
		return nil
	}
	return &Pause{Since: pause.Since.UTC(), By: pause.By, Reason: pause.Reason}
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
	view.Flow, view.Known = &info.Flow, info.Known
	if info.Group != "" {
		view.Group = &info.Group
	}
	return view
}

func viewOfGroup(info *operator.GroupInfo) View {
	view := viewOf(info.Bucket, info.Waiting, info.InFlight, info.Turn, &info.Own)
	view.Group, view.Known = &info.Group, info.Known
	return view
}

func viewOf(bucket string, waiting, inFlight int64, turn time.Time, own *shaper.OwnFlow) View {
	view := View{
		Bucket: bucket, Waiting: waiting, InFlight: inFlight, Pause: PauseOf(own.Pause),
		Settings: Settings{
			Burst: own.Burst, Capacity: own.Capacity, MaxInFlight: own.MaxInFlight, Weight: own.Weight,
			URL: redactedURL(own.URL), Headers: slices.Sorted(maps.Keys(own.Headers)), Secrets: len(own.Secrets),
		},
	}
	if !own.Rate.IsZero() {
		view.Settings.Rate = own.Rate.String()
	}
	view.Turn = instant(turn)
	return view
}

// redactedURL is a URL as it is shown: its origin, and [shaper.RedactedPath] for the rest.
func redactedURL(text string) string {
	u, err := url.Parse(text)
	if text == "" || err != nil {
		return ""
	}
	origin, err := shaper.OriginOf(u)
	switch {
	case err != nil:
		return u.Scheme + "://" + shaper.RedactedPath[1:]
	case u.RawQuery == "" && (u.Path == "" || u.Path == "/"):
		return origin.String() + u.Path
	}
	return origin.String() + shaper.RedactedPath
}
