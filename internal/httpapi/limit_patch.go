package httpapi

import (
	"errors"
	"strings"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// decodePatch reads a change of a limit, strictly: joined errors, each a [*shaper.FieldError]. It does not check whether the changed limit is valid.
func decodePatch(data []byte) (admission.Patch, error) {
	var p admission.Patch
	if err := checkJSON(data); err != nil {
		return p, err
	}
	var d jobDecoder // for its readers of values
	isObject := eachMember(data, func(name string, value []byte, again bool) bool {
		switch {
		case again:
			d.fail(name, "is given twice")
		case isNull(value):
			d.fail(name, "is null: leave it out; DELETE .../override takes back every change")
		case name == "limit":
			p.Limit = d.rate(name, value)
		case name == "burst":
			if n := d.count(name, value); n > 0 {
				p.Burst = &n
			}
		case name == "mode":
			if text, given := d.text(name, value); given {
				mode := admission.Mode(text)
				p.Mode = &mode
			}
		case name == "tiers":
			p.Tiers = d.tiers(name, value)
		default:
			d.fail(name, "is not a field that can be changed: want limit, burst, mode or tiers")
		}
		return len(d.errs) < maxFieldFault
	})
	switch {
	case !isObject:
		return p, bodyFault("want a JSON object with limit, burst, mode or tiers")
	case len(d.errs) == 0 && p.IsZero():
		return p, bodyFault("changes nothing: give limit, burst, mode or tiers")
	}
	return p, errors.Join(d.errs...)
}

func (d *jobDecoder) rate(field string, value []byte) *admission.Rate {
	text, given := d.text(field, value)
	if !given {
		return nil
	}
	rate, err := admission.ParseRate(text)
	if err != nil {
		d.fail(field, err.Error())
		return nil
	}
	return &rate
}

func (d *jobDecoder) tiers(field string, value []byte) map[string]admission.Rate {
	tiers := map[string]admission.Rate{}
	isObject := eachMember(value, func(name string, value []byte, again bool) bool {
		switch {
		case again:
			d.fail(field+"."+name, "is given twice")
		case isNull(value):
			d.fail(field+"."+name, "is null: leave it out")
		default:
			if rate := d.rate(field+"."+name, value); rate != nil {
				tiers[name] = *rate
			}
		}
		return len(d.errs) < maxFieldFault
	})
	if !isObject {
		d.fail(field, "want an object of tiers and limits")
	}
	return tiers
}

// patchFaults returns the faults of an invalid limit: lines that begin with the key.
func patchFaults(err error) []*shaper.FieldError {
	var faults []*shaper.FieldError
	for line := range strings.Lines(err.Error()) {
		field, reason, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if !ok {
			field, reason = bodyField, field
		}
		faults = append(faults, &shaper.FieldError{Field: field, Reason: reason})
	}
	return faults
}
