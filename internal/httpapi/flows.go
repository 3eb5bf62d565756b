package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/webhook"
)

// Sizes of a list of flows.
const (
	flowsAtOnce = 100
	maxFlows    = 1000
)

// A flow is named by ?flow=, as its name may be any text.
func (o *ops) flowRoutes() []route {
	read, admin := roles(RoleRead), roles(RoleAdmin)
	return []route{
		{"GET", "/v1/buckets/{bucket}/flows", o.listFlows, read},
		{"GET", "/v1/buckets/{bucket}/flow", o.showFlow, read},
		{"PATCH", "/v1/buckets/{bucket}/flow", o.patchFlow, admin},
		{"POST", "/v1/buckets/{bucket}/flow/pause", o.pauseFlow, admin},
		{"POST", "/v1/buckets/{bucket}/flow/resume", o.resumeFlow, admin},
		{"POST", "/v1/buckets/{bucket}/flow/purge", o.purgeFlow, admin},
		{"GET", "/v1/buckets/{bucket}/flow-settings", o.showFlowSettings, read},
		{"PUT", "/v1/buckets/{bucket}/flow-settings", o.putFlowSettings, admin},
		{"DELETE", "/v1/buckets/{bucket}/flow-settings", o.deleteFlowSettings, admin},
	}
}

// flowView is a flow as it is answered.
type flowView struct {
	Bucket   string       `json:"bucket"`
	Flow     string       `json:"flow"`
	Waiting  int64        `json:"waiting"`
	InFlight int64        `json:"in_flight"`
	Turn     *time.Time   `json:"turn,omitempty"`  // when it is looked at next; none if it has nothing to send or is held back
	Pause    *pauseView   `json:"pause,omitempty"` // only of one that is paused
	Settings flowSettings `json:"settings"`
}

// flowSettings are what a flow has of its own. Secrets are told by their number only.
type flowSettings struct {
	Rate        string            `json:"rate,omitempty"`
	Burst       *int64            `json:"burst,omitempty"`
	Capacity    *int64            `json:"capacity,omitempty"`
	MaxInFlight *int64            `json:"max_in_flight,omitempty"`
	Weight      *int64            `json:"weight,omitempty"`
	URL         string            `json:"url,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Secrets     int               `json:"secrets_count,omitempty"`
}

func flowSettingsOf(own *shaper.OwnFlow) flowSettings {
	view := flowSettings{
		Burst: own.Burst, Capacity: own.Capacity, MaxInFlight: own.MaxInFlight, Weight: own.Weight,
		URL: own.URL, Headers: own.Headers, Secrets: len(own.Secrets),
	}
	if !own.Rate.IsZero() {
		view.Rate = own.Rate.String()
	}
	return view
}

func flowViewOf(info *shaper.FlowInfo) flowView {
	return flowView{
		Bucket: info.Bucket, Flow: info.Flow, Waiting: info.Waiting, InFlight: info.InFlight, Turn: instant(info.Turn),
		Pause: pauseViewOf(info.Own.Pause), Settings: flowSettingsOf(&info.Own),
	}
}

// listFlows answers flows of a bucket, in no order, and where to go on:
// GET /v1/buckets/{bucket}/flows.
func (o *ops) listFlows(w http.ResponseWriter, r *http.Request) {
	bucket, query, limit := r.PathValue("bucket"), r.URL.Query(), flowsAtOnce
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxFlows {
			invalid([]*shaper.FieldError{{Field: "limit", Reason: "want 1 to " + strconv.Itoa(maxFlows)}}).write(w, r)
			return
		}
		limit = n
	}
	infos, next, err := o.control(r).Flows(r.Context(), bucket, query.Get("cursor"), limit)
	if err != nil {
		o.controlFault(r, bucket, err).write(w, r)
		return
	}
	answer := struct {
		Flows []flowView `json:"flows"`
		Next  string     `json:"next,omitempty"` // the cursor to go on with; none at the end
	}{make([]flowView, len(infos)), next}
	for i := range infos {
		answer.Flows[i] = flowViewOf(&infos[i])
	}
	writeJSON(w, http.StatusOK, answer)
}

// onFlow calls do with the flow that the request names.
func (o *ops) onFlow(w http.ResponseWriter, r *http.Request, do func(bucket, flow string) error) bool {
	bucket := r.PathValue("bucket")
	query := r.URL.Query()
	if !query.Has("flow") {
		invalid([]*shaper.FieldError{{Field: "flow", Reason: "is missing: name the flow as ?flow="}}).write(w, r)
		return false
	}
	if err := do(bucket, query.Get("flow")); err != nil {
		o.controlFault(r, bucket, err).write(w, r)
		return false
	}
	return true
}

// showFlow answers one flow: GET /v1/buckets/{bucket}/flow.
func (o *ops) showFlow(w http.ResponseWriter, r *http.Request) {
	o.onFlow(w, r, func(bucket, flow string) error {
		info, err := o.control(r).Flow(r.Context(), bucket, flow)
		if err == nil {
			writeJSON(w, http.StatusOK, flowViewOf(&info))
		}
		return err
	})
}

// changeFlow does what the operator wants, whether or not he waits for it, and answers
// the flow as it is then.
func (o *ops) changeFlow(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, c *shaper.Control, bucket, flow string) error) {
	if o.onFlow(w, r, func(bucket, flow string) error {
		return do(context.WithoutCancel(r.Context()), o.control(r), bucket, flow)
	}) {
		o.showFlow(w, r)
	}
}

// pauseFlow stops departures: POST /v1/buckets/{bucket}/flow/pause.
func (o *ops) pauseFlow(w http.ResponseWriter, r *http.Request) {
	reason, f := readReason(w, r)
	if f != nil {
		f.write(w, r)
		return
	}
	o.changeFlow(w, r, func(ctx context.Context, c *shaper.Control, bucket, flow string) error {
		return c.PauseFlow(ctx, bucket, flow, reason)
	})
}

// resumeFlow lets a flow run again: POST /v1/buckets/{bucket}/flow/resume.
func (o *ops) resumeFlow(w http.ResponseWriter, r *http.Request) {
	o.changeFlow(w, r, func(ctx context.Context, c *shaper.Control, bucket, flow string) error {
		_, err := c.ResumeFlow(ctx, bucket, flow)
		return err
	})
}

// purgeFlow drops all jobs of a flow that wait: POST /v1/buckets/{bucket}/flow/purge.
func (o *ops) purgeFlow(w http.ResponseWriter, r *http.Request) {
	o.onFlow(w, r, func(bucket, flow string) error {
		options, f := readPurge(w, r, flow, "the flow's name")
		if f != nil {
			f.write(w, r)
			return nil
		}
		o.purge(w, r, purgeView{Bucket: bucket, Flow: &flow}, func(ctx context.Context, c *shaper.Control) (shaper.Purged, error) {
			return c.PurgeFlow(ctx, bucket, flow, options)
		})
		return nil
	})
}

// patchFlow changes settings of one flow; null has one be as for all flows:
// PATCH /v1/buckets/{bucket}/flow.
func (o *ops) patchFlow(w http.ResponseWriter, r *http.Request) { o.setFlow(w, r, false) }

// putFlowSettings replaces the settings of one flow, but for secrets that it does not
// name: nobody can read them to send them again. PUT /v1/buckets/{bucket}/flow-settings.
func (o *ops) putFlowSettings(w http.ResponseWriter, r *http.Request) { o.setFlow(w, r, true) }

func (o *ops) setFlow(w http.ResponseWriter, r *http.Request, replace bool) {
	patch, f := readFlowPatch(w, r, replace)
	if f != nil {
		f.write(w, r)
		return
	}
	o.changeFlow(w, r, func(ctx context.Context, c *shaper.Control, bucket, flow string) error {
		_, err := c.SetFlow(ctx, bucket, flow, patch)
		return err
	})
}

// showFlowSettings answers what a flow has of its own:
// GET /v1/buckets/{bucket}/flow-settings.
func (o *ops) showFlowSettings(w http.ResponseWriter, r *http.Request) {
	o.onFlow(w, r, func(bucket, flow string) error {
		info, err := o.control(r).Flow(r.Context(), bucket, flow)
		if err == nil {
			writeJSON(w, http.StatusOK, flowSettingsOf(&info.Own))
		}
		return err
	})
}

// deleteFlowSettings has a flow be as all of its bucket:
// DELETE /v1/buckets/{bucket}/flow-settings.
func (o *ops) deleteFlowSettings(w http.ResponseWriter, r *http.Request) {
	o.changeFlow(w, r, func(ctx context.Context, c *shaper.Control, bucket, flow string) error {
		_, err := c.DeleteFlowSettings(ctx, bucket, flow)
		return err
	})
}

// readFlowPatch reads settings of a flow: those that are not named stay, or are
// cleared where all are replaced.
func readFlowPatch(w http.ResponseWriter, r *http.Request, replace bool) (shaper.FlowPatch, *fault) {
	var patch shaper.FlowPatch
	if replace {
		for _, setting := range shaper.FlowSettingNames() {
			if setting != shaper.FlowSecrets {
				_ = patch.Clear(setting) // a name of the list
			}
		}
	}
	f := readBodyBy(w, r, func(d *jobDecoder, body []byte) bool {
		return eachMember(body, func(name string, value []byte, again bool) bool {
			if again {
				d.fail(name, "is given twice")
			} else {
				d.flowSetting(&patch, shaper.FlowSetting(name), value)
			}
			return len(d.errs) < maxFieldFault
		})
	})
	if f == nil && patch.IsZero() {
		f = invalid([]*shaper.FieldError{{Field: bodyField, Reason: "changes nothing: name a setting and its value"}})
	}
	return patch, f
}

// flowSetting reads one setting of a flow.
func (d *jobDecoder) flowSetting(patch *shaper.FlowPatch, setting shaper.FlowSetting, value []byte) {
	name, text := string(setting), string(value)
	var err error
	var own shaper.OwnDelivery // what the worker is asked about
	switch {
	case isNull(value):
		err = patch.Clear(setting)
	case setting == shaper.FlowHeaders:
		d.job.Headers = nil
		if d.headers(name, value); len(d.errs) == 0 {
			own.Headers = d.job.Headers
			err = patch.PutHeaders(own.Headers)
		}
	case setting == shaper.FlowSecrets:
		if json.Unmarshal(value, &own.Secrets) != nil {
			d.fail(name, "want a list of strings")
			return
		}
		err = patch.PutSecrets(own.Secrets)
	default:
		if setting == shaper.FlowRate || setting == shaper.FlowURL {
			given := false
			if text, given = d.text(name, value); !given {
				return
			}
		}
		if setting == shaper.FlowURL {
			own.URL = text
		}
		err = patch.Put(setting, text)
	}
	if err != nil {
		field, reason, _ := strings.Cut(err.Error(), ": ")
		d.fail(field, reason)
		return
	}
	for _, fault := range fieldErrors(webhook.CheckFlow(&own)) {
		d.fail(fault.Field, fault.Reason)
	}
}
