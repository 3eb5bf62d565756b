package store

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// Fields of a rate.
const (
	FieldRateCount = "rate_count"
	FieldRatePer   = "rate_per" // microseconds
)

// Stored is a setting that Redis keeps for the scripts as it is. The tags of its type describe it: see package setting.
type Stored struct {
	Name   shaper.Setting // as in the configuration
	Fields []string       // of the hash settings

	key  *setting.Key
	form form
}

// The settings that are stored as they are. settingsOf has the fields that follow from several of them.
var (
	OfBuckets = storedOf(reflect.TypeFor[shaper.Bucket]())
	OfPools   = storedOf(reflect.TypeFor[shaper.Pool]())
)

// StoredSettings lists the settings of a type that are stored in Redis.
type StoredSettings []Stored

func storedOf(t reflect.Type) (list StoredSettings) {
	for _, k := range setting.Values(t) {
		if k.Redis != "" {
			f := formOf(k.Type)
			list = append(list, Stored{Name: shaper.Setting(k.Path), Fields: f.fields(k.Redis), key: k, form: f})
		}
	}
	return list
}

// Changeable returns the settings that an operator may change.
func (l StoredSettings) Changeable() StoredSettings {
	return slices.DeleteFunc(slices.Clone(l), func(s Stored) bool { return !s.key.Change })
}

// Find returns a setting, nil if there is none of this name.
func (l StoredSettings) Find(name shaper.Setting) *Stored {
	if i := slices.IndexFunc(l, func(s Stored) bool { return s.Name == name }); i >= 0 {
		return &l[i]
	}
	return nil
}

// Fields returns the hash fields of all settings.
func (l StoredSettings) Fields() (names []string) {
	for i := range l {
		names = append(names, l[i].Fields...)
	}
	return names
}

// Write returns the fields of an object and their values. A missing table is written as zero, so that its settings are removed.
func (l StoredSettings) Write(object any) (args []any) {
	root := reflect.ValueOf(object).Elem()
	for i := range l {
		v, ok := l[i].key.In(root)
		if !ok {
			v = reflect.Zero(l[i].key.Type)
		}
		args = append(args, l[i].Args(Value{v})...)
	}
	return args
}

// Read sets the object's settings from the fields of a hash.
func (l StoredSettings) Read(object any, hash map[string]string) {
	root := reflect.ValueOf(object).Elem()
	for i := range l {
		v, there := l[i].key.In(root)
		if _, known := hash[l[i].Fields[0]]; !there || !known {
			continue
		}
		if value, ok := l[i].form.read(l[i].valuesIn(hash)); ok {
			v.Set(value.Convert(v.Type()))
		}
	}
}

// Value is a value of a setting.
type Value struct{ of reflect.Value }

// IsZero reports whether it is the zero of its type.
func (v Value) IsZero() bool { return v.of.IsZero() }

// Parse reads a value as the configuration has it.
func (s *Stored) Parse(text string) (Value, error) {
	v, err := s.form.parse(text)
	return Value{v}, err
}

// SetOn changes the setting of an object.
func (s *Stored) SetOn(object any, value Value) {
	v := s.key.Make(reflect.ValueOf(object).Elem())
	v.Set(value.of.Convert(v.Type()))
}

// Args returns field, value, ... for a value.
func (s *Stored) Args(value Value) (args []any) {
	for i, v := range s.form.write(value.of) {
		args = append(args, s.Fields[i], v)
	}
	return args
}

// Text formats the setting as in the configuration, from the fields of a hash.
func (s *Stored) Text(hash map[string]string) string { return s.form.text(s.valuesIn(hash)) }

func (s *Stored) valuesIn(hash map[string]string) []string {
	values := make([]string, len(s.Fields))
	for i, field := range s.Fields {
		values[i] = hash[field]
	}
	return values
}

// form is how values of a type are stored.
type form struct {
	fields func(name string) []string
	write  func(v reflect.Value) []any
	read   func(values []string) (reflect.Value, bool)
	text   func(values []string) string
	parse  func(text string) (reflect.Value, error)
}

func oneField(name string) []string  { return []string{name} }
func asItIs(v reflect.Value) []any   { return []any{v.Interface()} }
func firstOf(values []string) string { return values[0] }
func noParse(string) (reflect.Value, error) {
	return reflect.Value{}, fmt.Errorf("is not changed at run time")
}

func formOf(t reflect.Type) form {
	switch {
	case t == reflect.TypeFor[admission.Rate]():
		return form{rateFields, writeRate, readRateFields, rateText, parseRate}
	case t == reflect.TypeFor[[]admission.Rate]():
		return form{oneField, writeQuotas, readQuotas, quotasText, noParse}
	case t == reflect.TypeFor[shaper.Budgets]():
		return form{oneField, writeBudgets, readBudgets, budgetsText, parseBudgets}
	case t == reflect.TypeFor[time.Duration]():
		return form{oneField, writeDuration, readDuration, durationText, noParse}
	case t.Kind() == reflect.Bool:
		return form{oneField, writeTruth, readTruth, truthText, noParse}
	case t.Kind() == reflect.String:
		return form{oneField, asItIs, readText, firstOf, noParse}
	}
	return form{oneField, asItIs, readNumber, firstOf, parseNumber}
}

func rateFields(name string) []string { return []string{name + "_count", name + "_per"} }

func writeRate(v reflect.Value) []any {
	rate, _ := v.Interface().(admission.Rate)
	return []any{rate.Count, rate.Per.Microseconds()}
}

func readRateFields(values []string) (reflect.Value, bool) {
	count, _ := strconv.ParseInt(values[0], 10, 64) // a text that is no number becomes 0
	per, _ := strconv.ParseInt(values[1], 10, 64)
	return reflect.ValueOf(admission.Rate{Count: count, Per: time.Duration(per) * time.Microsecond, Unit: admission.UnitRequests}), true
}

func rateText(values []string) string {
	v, _ := readRateFields(values)
	if rate, _ := v.Interface().(admission.Rate); rate.Count != 0 {
		return rate.String()
	}
	return "none"
}

func parseRate(text string) (reflect.Value, error) {
	rate, err := admission.ParseRate(text)
	if err != nil && rate.Count == 0 && rate.Per > 0 {
		err = fmt.Errorf("%q would mean that it is paused: pause it, or the buckets of a pool, so that all see why", text)
	}
	return reflect.ValueOf(rate), err
}

func writeQuotas(v reflect.Value) []any {
	quotas, _ := v.Interface().([]admission.Rate)
	return []any{codec.QuotasText(quotas)}
}

func readQuotas(values []string) (reflect.Value, bool) {
	return reflect.ValueOf(codec.ReadQuotas(values[0])), true
}

func quotasText(values []string) string {
	var texts []string
	for _, quota := range codec.ReadQuotas(values[0]) {
		texts = append(texts, quota.String())
	}
	return strings.Join(texts, " ")
}

func writeBudgets(v reflect.Value) []any {
	budgets, _ := v.Interface().(shaper.Budgets)
	return []any{codec.BudgetsText(budgets)}
}

func readBudgets(values []string) (reflect.Value, bool) {
	return reflect.ValueOf(codec.ReadBudgets(values[0])), true
}

func budgetsText(values []string) string { return codec.ReadBudgets(values[0]).String() }

func parseBudgets(text string) (reflect.Value, error) {
	var budgets shaper.Budgets
	err := budgets.UnmarshalText([]byte(text))
	return reflect.ValueOf(budgets), err
}

func writeDuration(v reflect.Value) []any {
	return []any{time.Duration(v.Int()).Microseconds()}
}

func readDuration(values []string) (reflect.Value, bool) {
	micros, err := strconv.ParseInt(values[0], 10, 64)
	return reflect.ValueOf(time.Duration(micros) * time.Microsecond), err == nil
}

func durationText(values []string) string {
	if v, ok := readDuration(values); ok {
		return time.Duration(v.Int()).String()
	}
	return values[0]
}

func writeTruth(v reflect.Value) []any { return []any{BoolArg(v.Bool())} }

func readTruth(values []string) (reflect.Value, bool) { return reflect.ValueOf(values[0] == "1"), true }

func truthText(values []string) string { return strconv.FormatBool(values[0] == "1") }

func readText(values []string) (reflect.Value, bool) { return reflect.ValueOf(values[0]), true }

func readNumber(values []string) (reflect.Value, bool) {
	n, err := strconv.ParseInt(values[0], 10, 64)
	return reflect.ValueOf(n), err == nil
}

func parseNumber(text string) (reflect.Value, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		err = fmt.Errorf("%q is not a whole number", text)
	}
	return reflect.ValueOf(n), err
}
