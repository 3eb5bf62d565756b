package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

// Sizes of a list of flows or groups.
const (
	partsAtOnce = 100
	maxParts    = 1000
)

// parts serves the flows of a bucket, or its groups. A parameter of the query names a flow or group,
// because its name may be any text.
type parts struct {
	*ops
	opsview.Kind
}

func (o *ops) partRoutes(kind opsview.Kind) []route {
	p, read, admin := parts{o, kind}, roles(apikey.RoleRead), roles(apikey.RoleAdmin)
	one := "/v1/buckets/{bucket}/" + kind.Name
	routes := []route{
		{"GET", one + "s", p.lists.few(p.list), read},
		{"GET", one, p.show, read},
		{"PATCH", one, p.patch, admin},
		{"POST", one + "/pause", p.pause, admin},
		{"POST", one + "/resume", p.resume, admin},
		{"POST", one + "/purge", p.purge, admin},
		{"GET", one + "-settings", p.showSettings, read},
		{"PUT", one + "-settings", p.putSettings, admin},
		{"DELETE", one + "-settings", p.deleteSettings, admin},
	}
	if kind.Release != nil {
		routes = append(routes, route{"POST", one + "/release", p.release, admin})
	}
	if kind.Enable != nil {
		routes = append(routes, route{"POST", one + "/enable", p.enable, admin})
	}
	return routes
}

// groupOf is the group of the flow that the request is about, nil if it names none.
func (p parts) groupOf(r *http.Request) *string {
	query := r.URL.Query()
	if p.Name != "flow" || !query.Has("group") {
		return nil
	}
	group := query.Get("group")
	return &group
}

// one is the flow or the group of this name, to look at and to change.
func (p parts) one(r *http.Request, bucket, name string) opsview.Part {
	return p.One(p.as(r).Bucket(bucket), p.groupOf(r), name)
}

// list answers flows or groups of a bucket, in no order, and where to go on:
// GET /v1/buckets/{bucket}/flows.
func (p parts) list(w http.ResponseWriter, r *http.Request) {
	bucket, query, limit := r.PathValue("bucket"), r.URL.Query(), partsAtOnce
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxParts {
			invalid([]*shaper.FieldError{{Field: "limit", Reason: "want 1 to " + strconv.Itoa(maxParts)}}).write(w, r)
			return
		}
		limit = n
	}
	views, next, err := p.List(r.Context(), p.buckets.Bucket(bucket), p.groupOf(r), query.Get("cursor"), limit)
	if err != nil {
		p.controlFault(r, bucket, err).write(w, r)
		return
	}
	answer := map[string]any{p.Name + "s": views}
	if next != "" { // the cursor to go on with; none at the end
		answer["next"] = next
	}
	writeJSON(w, http.StatusOK, answer)
}

// on calls do with the flow or group that the request names.
func (p parts) on(w http.ResponseWriter, r *http.Request, do func(bucket, name string) error) bool {
	bucket := r.PathValue("bucket")
	query := r.URL.Query()
	if !query.Has(p.Name) {
		invalid([]*shaper.FieldError{{Field: p.Name, Reason: "is missing: name the " + p.Name + " as ?" + p.Name + "="}}).write(w, r)
		return false
	}
	err := do(bucket, query.Get(p.Name))
	if errors.Is(err, errNotKnown) {
		p.notKnown(bucket, query.Get(p.Name)).write(w, r)
		return false
	}
	if err != nil {
		p.controlFault(r, bucket, err).write(w, r)
		return false
	}
	return true
}

// show answers one: GET /v1/buckets/{bucket}/flow.
func (p parts) show(w http.ResponseWriter, r *http.Request) { p.answer(w, r, opsview.Outcome{}) }

// answer answers the flow or group that the request names, and what a change of it came to.
func (p parts) answer(w http.ResponseWriter, r *http.Request, outcome opsview.Outcome) {
	p.on(w, r, func(bucket, name string) error {
		view, err := p.one(r, bucket, name).Show(r.Context())
		if err == nil {
			view.Alike().Outcome = outcome
			writeJSON(w, http.StatusOK, view)
		}
		return err
	})
}

// partChange is a change of a flow or a group by an operator.
type partChange func(ctx context.Context, part opsview.Part) (opsview.Outcome, error)

// change makes the change of an operator, even if the client does not wait for it, and answers the flow
// or group after it.
func (p parts) change(w http.ResponseWriter, r *http.Request, do partChange) {
	var outcome opsview.Outcome
	if p.on(w, r, func(bucket, name string) (err error) {
		outcome, err = do(context.WithoutCancel(r.Context()), p.one(r, bucket, name))
		return err
	}) {
		p.answer(w, r, outcome)
	}
}

// changeKnown is change for a flow or group that the bucket has now, or for any name with ?create=true.
// Without it a mistyped name would pause or change an object that does not exist.
func (p parts) changeKnown(w http.ResponseWriter, r *http.Request, do partChange) {
	p.change(w, r, func(ctx context.Context, part opsview.Part) (opsview.Outcome, error) {
		if r.URL.Query().Get("create") != "true" {
			view, err := part.Show(ctx)
			if err != nil {
				return opsview.Outcome{}, err
			}
			if view.Alike().Unknown {
				return opsview.Outcome{}, errNotKnown
			}
		}
		return do(ctx, part)
	})
}

// errNotKnown says that a bucket does not have a flow or a group now.
var errNotKnown = errors.New("not known")

// notKnown is the fault of an errNotKnown.
func (p parts) notKnown(bucket, name string) *fault {
	code := codeUnknownFlow
	if p.Name == "group" {
		code = codeUnknownGroup
	}
	return newFault(code, "bucket %q has no %s %q now: correct the name, or add &create=true if its first job is still to come", bucket, p.Name, name)
}

// pause stops departures: POST /v1/buckets/{bucket}/flow/pause.
func (p parts) pause(w http.ResponseWriter, r *http.Request) {
	reason, f := readReason(w, r)
	if f != nil {
		f.write(w, r)
		return
	}
	p.changeKnown(w, r, func(ctx context.Context, part opsview.Part) (opsview.Outcome, error) {
		return opsview.Outcome{}, part.Pause(ctx, reason)
	})
}

// resume lets one run again: POST /v1/buckets/{bucket}/flow/resume.
func (p parts) resume(w http.ResponseWriter, r *http.Request) {
	p.change(w, r, func(ctx context.Context, part opsview.Part) (opsview.Outcome, error) {
		return outcomeOf(part.Resume(ctx))
	})
}

// release ends a hold and an open circuit breaker of a flow: POST /v1/buckets/{bucket}/flow/release.
func (p parts) release(w http.ResponseWriter, r *http.Request) {
	p.change(w, r, func(ctx context.Context, part opsview.Part) (opsview.Outcome, error) {
		return outcomeOf(p.Release(ctx, part))
	})
}

// enable lets a disabled flow run again, and with ?redrive=true redrives its dead letters: POST /v1/buckets/{bucket}/flow/enable.
func (p parts) enable(w http.ResponseWriter, r *http.Request) {
	redrive := r.URL.Query().Get("redrive") == "true"
	p.on(w, r, func(bucket, name string) error {
		part := p.one(r, bucket, name)
		ctx := context.WithoutCancel(r.Context())
		was, redriven, err := p.Enable(ctx, part, redrive)
		if err != nil {
			return err
		}
		view, err := part.Show(ctx)
		if err != nil {
			return err
		}
		view.Alike().Outcome = opsview.OutcomeOf(was)
		answer := opsview.EnabledFlow{Flow: *view.(*opsview.Flow)} //nolint:forcetypeassert // only flows are enabled
		if redrive {
			answer.Redriven = &opsview.FlowRedriven{Moved: redriven.Moved, Full: redriven.Full + redriven.FlowFull + redriven.GroupFull}
		}
		writeJSON(w, http.StatusOK, answer)
		return nil
	})
}

// purge drops all waiting jobs of a flow or group: POST /v1/buckets/{bucket}/flow/purge.
func (p parts) purge(w http.ResponseWriter, r *http.Request) {
	p.on(w, r, func(bucket, name string) error {
		part := p.one(r, bucket, name)
		view := opsview.Purge{Bucket: bucket, Flow: &name, Group: p.groupOf(r)}
		if p.Name == "group" {
			view.Flow, view.Group = nil, &name
		}
		p.ops.purge(w, r, purgeOf{
			view: view, name: name, what: p.Name, purge: part.Purge,
			waiting: func(ctx context.Context, _ bool) (int64, error) {
				one, err := part.Show(ctx)
				return one.Alike().Waiting, err
			},
		})
		return nil
	})
}

// patch changes settings of one; null has one be as for all:
// PATCH /v1/buckets/{bucket}/flow.
func (p parts) patch(w http.ResponseWriter, r *http.Request) { p.set(w, r, false) }

// putSettings replaces the settings of a flow or group. A URL, headers and secrets that it does not name
// stay, because no client can read them to send them again. PUT /v1/buckets/{bucket}/flow-settings.
func (p parts) putSettings(w http.ResponseWriter, r *http.Request) { p.set(w, r, true) }

func (p parts) set(w http.ResponseWriter, r *http.Request, replace bool) {
	patch, f := p.readPatch(w, r, replace)
	if f != nil {
		f.write(w, r)
		return
	}
	change := p.changeKnown
	if replace { // a PUT creates a missing flow or group
		change = p.change
	}
	change(w, r, func(ctx context.Context, part opsview.Part) (opsview.Outcome, error) {
		_, err := part.Set(ctx, patch)
		return opsview.Outcome{}, err
	})
}

// showSettings answers a flow's or group's own settings:
// GET /v1/buckets/{bucket}/flow-settings.
func (p parts) showSettings(w http.ResponseWriter, r *http.Request) {
	p.on(w, r, func(bucket, name string) error {
		view, err := p.one(r, bucket, name).Show(r.Context())
		if err == nil {
			writeJSON(w, http.StatusOK, view.Own())
		}
		return err
	})
}

// deleteSettings has one be as all of its bucket:
// DELETE /v1/buckets/{bucket}/flow-settings.
func (p parts) deleteSettings(w http.ResponseWriter, r *http.Request) {
	p.change(w, r, func(ctx context.Context, part opsview.Part) (opsview.Outcome, error) {
		return outcomeOf(part.Reset(ctx))
	})
}
