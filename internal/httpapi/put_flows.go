package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Bounds of one list of flows to put.
const (
	MaxFlowLines = 10_000
	MaxFlowBytes = 4 << 20
)

// FlowLines are settings of flows of a bucket.
type FlowLines struct {
	BucketName
	Lines []byte `json:"-" in:"lines" schema:"FlowLine"`
}

// FlowsPut is the result of the lines.
type FlowsPut struct {
	Bucket string `json:"bucket"`

	// Flows whose settings are written: the flows of the first lines.
	Flows int `json:"flows"`

	// `true` if the others were not written, because it took longer than a request may. Send the others, or all again.
	More bool `json:"more,omitempty"`
}

// PutFlows replaces the settings of many flows.
var PutFlows = &Operation[FlowLines, *FlowsPut]{
	ID: "putFlows", InParts: true, Method: "PUT", Path: "/v1/buckets/{bucket}/flows", Roles: []apikey.Role{apikey.RoleAdmin}, Faults: partFaults,
	Commands: []string{"flow import"}, MaxBody: MaxFlowBytes,
	Answer:  "The settings are written.",
	Summary: "Replace the settings of many flows, one a line",
	Description: `Each line is a flow with the settings that it is to have, as in PUT of one flow: settings that are not named return to the values for all flows, but
` + "`url`, `headers` and `secrets`" + ` stay. Flows without a line stay as they are. At most 10,000 lines and 4 MiB.

All lines are checked before the first is written: a fault names its line, as in ` + "`line 7: url`" + `, and nothing is changed then. Safe to repeat.`,
}

// putFlows reads lines, and writes the settings of their flows.
func (o *ops) putFlows(r *http.Request, in *FlowLines, member func(d *jobDecoder, patch *operator.FlowPatch, name string, value []byte), whole func() operator.FlowPatch) (*FlowsPut, error) {
	var changes []operator.FlowChange
	var lines []int // of the changes
	var faults []*shaper.FieldError
	n := 0
	for text := range bytes.Lines(in.Lines) {
		if n++; len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if len(changes) == MaxFlowLines {
			return nil, newFault(codeTooLarge, "there are more than %d lines: send them in parts", MaxFlowLines)
		}
		change, errs := readFlowLine(text, member, whole())
		changes, lines = append(changes, change), append(lines, n)
		for _, f := range errs {
			faults = append(faults, ofLine(n, f))
		}
		if len(faults) >= maxFieldFault {
			break
		}
	}
	switch {
	case len(faults) > 0:
		return nil, invalid(faults)
	case len(changes) == 0:
		return nil, invalid([]*shaper.FieldError{{Field: bodyField, Reason: "has no lines: want a flow on each"}})
	}
	ctx, cancel := o.patient(r)
	defer cancel()
	written, err := o.as(r).Bucket(in.Bucket).PutFlows(ctx, changes)
	answer := &FlowsPut{Bucket: in.Bucket, Flows: written}
	if bad, ok := errors.AsType[*operator.FlowChangeError](err); ok {
		if f := o.fault(r, bad.Err); f.Code == codeInvalid {
			for _, fault := range f.Errors {
				faults = append(faults, ofLine(lines[bad.Index], &shaper.FieldError{Field: fault.Field, Reason: fault.Reason}))
			}
			return nil, invalid(faults)
		}
		return nil, bad.Err
	}
	if err != nil && ctx.Err() != nil && r.Context().Err() == nil {
		answer.More = true
		return answer, nil
	}
	if err != nil {
		return nil, o.partial(r, err, func(p *problem) { p.Detail += fmt.Sprintf(" (%d flows are written)", written) })
	}
	return answer, nil
}

func ofLine(n int, f *shaper.FieldError) *shaper.FieldError {
	return &shaper.FieldError{Field: fmt.Sprintf("line %d: %s", n, f.Field), Reason: f.Reason}
}

// readFlowLine reads a flow and its settings.
func readFlowLine(text []byte, member func(d *jobDecoder, patch *operator.FlowPatch, name string, value []byte), patch operator.FlowPatch) (operator.FlowChange, []*shaper.FieldError) {
	change, named := operator.FlowChange{}, false
	if err := checkJSON(text); err != nil {
		return change, fieldErrors(err)
	}
	f := readBytesBy(text, func(d *jobDecoder, text []byte) bool {
		return eachMember(text, func(name string, value []byte, again bool) bool {
			switch {
			case again:
				d.fail(name, "is given twice")
			case name == "flow":
				change.Flow, named = d.text(name, value)
			case name == "group":
				if group, given := d.text(name, value); given {
					change.Group = &group
				}
			case slices.Contains([]string{operator.AddSecrets, operator.RemoveSecrets}, name):
				d.fail(name, "is not taken for many flows: give all secrets")
			default:
				member(d, &patch, name, value)
			}
			return len(d.errs) < maxFieldFault
		})
	})
	var errs []*shaper.FieldError
	if f != nil {
		for _, one := range f.Errors {
			errs = append(errs, &shaper.FieldError{Field: one.Field, Reason: one.Reason})
		}
	}
	if !named && len(errs) == 0 {
		errs = append(errs, &shaper.FieldError{Field: "flow", Reason: "is missing: each line names its flow"})
	}
	change.Patch = patch
	return change, errs
}
