package httpapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// hidden are the settings that no client can read, so that it cannot send them again.
var hidden = []shaper.FlowSetting{shaper.FlowURL, shaper.FlowHeaders, shaper.FlowSecrets}

// readPatch reads settings of a flow or a group. Settings without a value stay as they are. With replace they are cleared, except the hidden ones.
func (p *parts[N, V, P, S]) readPatch(body []byte, replace bool) (operator.FlowPatch, *fault) {
	patch := p.newPatch(replace)
	f := readBytesBy(body, func(d *jobDecoder, body []byte) bool {
		return eachMember(body, func(name string, value []byte, again bool) bool {
			if again {
				d.fail(name, "is given twice")
			} else {
				p.patchMember(d, &patch, name, value)
			}
			return len(d.errs) < maxFieldFault
		})
	})
	if f == nil && patch.IsZero() {
		f = invalid([]*shaper.FieldError{{Field: bodyField, Reason: "changes nothing: name a setting and its value"}})
	}
	return patch, f
}

// newPatch is a patch that changes nothing, or that clears all settings but the hidden ones.
func (p *parts[N, V, P, S]) newPatch(replace bool) (patch operator.FlowPatch) {
	for _, name := range p.settings {
		if replace && !slices.Contains(hidden, name) {
			_ = patch.Clear(name) // of the list
		}
	}
	return patch
}

// patchMember reads a member of a body into a patch.
func (p *parts[N, V, P, S]) patchMember(d *jobDecoder, patch *operator.FlowPatch, name string, value []byte) {
	switch setting := shaper.FlowSetting(name); {
	case (name == operator.AddSecrets || name == operator.RemoveSecrets) && slices.Contains(p.settings, shaper.FlowSecrets):
		d.partSecrets(patch, name, value)
	case !slices.Contains(p.settings, setting):
		d.fail(name, fmt.Sprintf("is no setting of a %s: want one of %v", p.kind, p.settings))
	default:
		d.partSetting(patch, setting, value)
	}
}

var keysOfFlows = setting.Changes(reflect.TypeFor[shaper.OwnFlow]())

// partSetting reads one setting of a flow or a group.
func (d *jobDecoder) partSetting(patch *operator.FlowPatch, setting shaper.FlowSetting, value []byte) {
	name, err := string(setting), error(nil)
	switch {
	case isNull(value):
		err = patch.Clear(setting)
	case setting == shaper.FlowHeaders:
		headers := map[string]string{}
		d.eachHeader(name, value, func(field, name string, value []byte) int {
			if text, given := d.text(field, value); given {
				noReference(d, field, text)
				headers[name] = text
			}
			return 1
		})
		if len(d.errs) == 0 {
			err = patch.PutHeaders(headers)
		}
	case setting == shaper.FlowSecrets:
		d.partSecrets(patch, name, value)
		return
	default:
		d.setting(keysOfFlows, name, value, func(path, text string) error { return patch.Put(shaper.FlowSetting(path), text) })
	}
	d.failed(err)
}

// partSecrets reads the secrets of a flow: a whole list, some to add, or the fingerprints of some to remove.
func (d *jobDecoder) partSecrets(patch *operator.FlowPatch, name string, value []byte) {
	var texts []string
	if json.Unmarshal(value, &texts) != nil || isNull(value) {
		d.fail(name, "want a list of strings")
		return
	}
	for i, text := range texts {
		noReference(d, fmt.Sprintf("%s[%d]", name, i), text)
	}
	switch {
	case len(d.errs) > 0:
	case name == operator.AddSecrets:
		d.failed(patch.AddSecrets(texts))
	case name == operator.RemoveSecrets:
		d.failed(patch.RemoveSecrets(texts))
	default:
		d.failed(patch.PutSecrets(texts))
	}
}
