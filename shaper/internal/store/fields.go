package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// Fields of a bucket's settings that no script reads. A client that knows only the name of a bucket needs them, and flow_key and group_key.
const (
	fieldFlowKey         = "flow_key"
	fieldDefaultURL      = "default_url"
	fieldNeedsURL        = "flow_needs_url" // scripts read it
	FieldKeep            = "flow_keep"      // whether jobs of disabled flows are kept; the same
	fieldCallbackBucket  = "callback_bucket"
	fieldCallbackURL     = "callback_url"
	fieldCallbackFailure = "callback_failure_url"
	fieldCallbackPayload = "callback_max_payload"
	fieldCallbackOrigins = "callback_origins"
)

// fieldName is the current name of a bucket, which may have been renamed.
const fieldName = "name"

// fieldInFlightRule says whether max_in_flight follows the rate.
const fieldInFlightRule = "in_flight_rule"

// Fields that name the writer of settings: see lua/configure.lua.
const (
	fieldOwned   = "owned"
	fieldCreated = "created"  // when a bucket's settings were first written: another value means that they were lost and written again
	fieldLeftFor = "left_for" // where the bucket is now
	fieldBy      = "by"
	fieldStarted = "started"
	fieldChanges = "changes"
)

// settingsOf returns the fields of the hash settings and their values, from the configuration of a bucket. Its timetable is not among them: it
// is computed from the plan.
func settingsOf(own *shaper.Bucket) ([]any, error) {
	limits, err := admission.EncodeLimits(own.Limits)
	if err != nil {
		return nil, err
	}
	plan, err := planText(own)
	if err != nil {
		return nil, err
	}
	effective := *own
	effective.BudgetBurst = cmp.Or(own.BudgetBurst, shaper.DefaultBudgetBurst)
	effective.MaxInFlight, effective.Weight = own.EffectiveMaxInFlight(), max(own.Weight, 1)
	if own.Flow != nil {
		flow := *own.Flow
		flow.MaxPerCaller = flow.EffectiveMaxPerCaller()
		effective.Flow = &flow
	}
	return append(OfBuckets.Write(&effective),
		fieldName, own.Name, "dead_drop", BoolArg(own.WhenDeadFull == shaper.DropOldestDead), "downstream", codec.DownstreamRules(own), "events", eventsText(own.Events),
		"batch", codec.BatchText(own.Batch), "flows", levelsOf(own), admission.FieldLimits, limits, FieldPlan, plan,
		fieldDefaultURL, defaultURL(own), fieldNeedsURL, BoolArg(own.Flow != nil && own.Flow.NeedsURL), FieldKeep, BoolArg(own.Flow != nil && own.Flow.WhenDisabled == shaper.KeepDisabled), fieldCallbackBucket, own.Callbacks.Bucket, fieldCallbackURL, own.Callbacks.URL,
		fieldCallbackFailure, own.Callbacks.FailureURL, fieldCallbackPayload, own.Callbacks.MaxPayload,
		fieldCallbackOrigins, strings.Join(own.Callbacks.Origins, " ")), nil
}

// defaultURL returns the URL of jobs that name none, as far as it contains names of flows.
func defaultURL(b *shaper.Bucket) string {
	if b.Flow == nil {
		return ""
	}
	return b.Flow.DefaultURL
}

// inFlightRule returns the rule by which scripts raise max_in_flight with an override of the rate (see lua/lib/in_flight.lua). It is "" if the
// configuration sets the number.
func inFlightRule(own *shaper.Bucket) string {
	if own.MaxInFlight != 0 || own.DeliveryTimeout == 0 {
		return ""
	}
	return strconv.FormatInt(own.DeliveryTimeout.Microseconds(), 10)
}

// poolSettingsOf returns the fields and values of a pool.
func poolSettingsOf(p *shaper.Pool) []any {
	effective := *p
	effective.Burst, effective.BudgetBurst = poolBurst(p), cmp.Or(p.BudgetBurst, shaper.DefaultBudgetBurst)
	return OfPools.Write(&effective)
}

// planText returns the plan of a bucket, "" if it has none.
func planText(b *shaper.Bucket) (string, error) {
	plan := b.Plan()
	if plan.IsZero() {
		return "", nil
	}
	text, err := json.Marshal(plan)
	return string(text), err
}

// described is a setting under its name for people, with the fields that hold it.
type described struct {
	name   shaper.Setting
	fields []string
	text   func(values []string) string
}

func plain(name shaper.Setting, field string) described {
	return described{name, []string{field}, firstOf}
}

func address(name shaper.Setting, field string) described {
	return described{name, []string{field}, func(values []string) string { return shaper.RedactedURL(values[0]) }}
}

var planTimes = regexp.MustCompile(`"(for|per)":(\d+)`)

// planForPeople formats a stored plan, with its durations as they are configured. The result may be cut off.
func planForPeople(values []string) string {
	return planTimes.ReplaceAllStringFunc(values[0], func(text string) string {
		parts := planTimes.FindStringSubmatch(text)
		n, err := strconv.ParseInt(parts[2], 10, 64) //nolint:mnd // the second group
		if err != nil {
			return text
		}
		return fmt.Sprintf("%q:%q", parts[1], time.Duration(n).String())
	})
}

func choice(name shaper.Setting, field string, texts ...string) described {
	return described{name, []string{field}, func(values []string) string {
		n, err := strconv.Atoi(values[0])
		if err != nil || n < 0 || n >= len(texts) {
			return values[0]
		}
		return texts[n]
	}}
}

// describedSettings are the settings of a bucket, and of a pool as far as it has them: what is stored as it is, and what follows from several.
var describedSettings = append(OfBuckets.described(), plain("name", fieldName),
	choice("when_dead_full", "dead_drop", string(shaper.RefuseJobs), string(shaper.DropOldestDead)),
	described{"adapt and breaker", []string{"downstream"}, func(values []string) string { return codec.ShownDownstreamRules(values[0]) }}, plain("events", "events"), plain("batch", "batch"),
	plain("limits", admission.FieldLimits), described{"drain and calendar", []string{FieldPlan}, planForPeople}, choice("flow and group", "flows", "neither", "flow", "flow and group"),
	choice("flow.when_disabled", FieldKeep, string(shaper.RefuseDisabled), string(shaper.KeepDisabled)),
	choice("a URL of each flow", fieldNeedsURL, "not needed", "needed"), address("url", fieldDefaultURL), plain("callbacks.bucket", fieldCallbackBucket), address("callbacks.url", fieldCallbackURL),
	address("callbacks.failure_url", fieldCallbackFailure), plain("callbacks.max_payload", fieldCallbackPayload), plain("callbacks.origins", fieldCallbackOrigins),
)

func (l StoredSettings) described() (list []described) {
	for _, s := range l {
		list = append(list, described{s.Name, s.Fields, s.form.text})
	}
	return list
}

const longestValue = 200 // bytes of a value that is shown

// valuesOf returns the values that a hash has for the fields of a setting. ok is false if it has none of them.
func (d *described) valuesOf(get func(field string) (string, bool)) (text string, values []string, ok bool) {
	for _, field := range d.fields {
		value, found := get(field)
		ok = ok || found
		values = append(values, value)
	}
	text = d.text(values)
	if len(text) > longestValue {
		text = strings.ToValidUTF8(text[:longestValue], "") + " …"
	}
	return text, values, ok
}

// differencesOf compares fields of a configuration with the effective ones, without what operators have overridden. A field that an older
// program has not written is no difference.
func differencesOf(prefix string, own []any, inForce map[string]string) []shaper.Difference {
	here := make(map[string]string, len(own)/2)
	for i := 0; i < len(own); i += 2 {
		here[fmt.Sprint(own[i])] = fmt.Sprint(own[i+1])
	}
	var list []shaper.Difference
	for i := range describedSettings {
		d := &describedSettings[i]
		text, values, has := d.valuesOf(func(field string) (string, bool) { value, ok := here[field]; return value, ok })
		there, others, known := d.valuesOf(func(field string) (string, bool) {
			if value, ok := inForce["own:"+field]; ok {
				return value, true
			}
			value, ok := inForce[field]
			return value, ok
		})
		if has && known && strings.Join(values, "\n") != strings.Join(others, "\n") {
			list = append(list, shaper.Difference{Setting: shaper.Setting(prefix) + d.name, Here: text, InForce: there})
		}
	}
	return list
}

// readChanges reads the record of changes, newest first. It skips entries that it cannot parse.
func readChanges(prefix, record string) []shaper.SettingsChange {
	var list []shaper.SettingsChange
	for line := range strings.Lines(record) {
		var entry struct {
			At, By, Action string
			Changes        [][3]string
		}
		if json.Unmarshal([]byte(line), &entry) != nil {
			continue
		}
		at, err := strconv.ParseInt(entry.At, 10, 64)
		if err != nil {
			continue
		}
		change := shaper.SettingsChange{At: time.UnixMicro(at).UTC(), By: entry.By, Action: entry.Action}
		for i := range describedSettings {
			if c, ok := describedSettings[i].changeIn(entry.Changes); ok {
				c.Setting = shaper.Setting(prefix) + c.Setting
				change.Changes = append(change.Changes, c)
			}
		}
		list = append(list, change)
	}
	return list
}

// changeIn returns the change of a setting that the changed fields describe.
func (d *described) changeIn(fields [][3]string) (shaper.Change, bool) {
	side := func(at int) func(string) (string, bool) {
		return func(field string) (string, bool) {
			for _, changed := range fields {
				if changed[0] == field {
					return changed[at], true
				}
			}
			return "", false
		}
	}
	before, _, ok := d.valuesOf(side(1))
	after, _, _ := d.valuesOf(side(2)) //nolint:mnd // the third of field, before, after
	return shaper.Change{Setting: d.name, Before: before, After: after}, ok
}

// DifferencesText formats the settings that differ from the effective ones, in a line.
func DifferencesText(list []shaper.Difference) string {
	texts := make([]string, len(list))
	for i, d := range list {
		texts[i] = d.String()
	}
	return strings.Join(texts, "; ")
}
