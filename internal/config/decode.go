package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// later lists keys and values that the design promises and this version lacks.
var later = map[string]bool{
	"buckets.llm": true,

	"buckets.worker=llm": true,
}

const notYet = "is not supported in this version yet"

// table checks the keys and types of a table of the file and returns it with
// the types of settings. A missing optional table is returned with all defaults.
func (l *loader) table(t reflect.Type, raw map[string]any, p place) map[string]any {
	if t.Kind() == reflect.Pointer {
		whole := asMap(defaultElement(t.Elem()))
		overlay(whole, l.table(t.Elem(), raw, p))
		return whole
	}
	out := map[string]any{}
	fields, names := map[string]reflect.Type{}, []string{}
	for i := range t.NumField() {
		fields[tag(t.Field(i))] = t.Field(i).Type
		names = append(names, tag(t.Field(i)))
	}
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		here, field := p.key(key), fields[key]
		switch {
		case field == nil && later[unindexed(here.path)]:
			l.fail(here, "", notYet)
		case field == nil:
			l.fail(here, "", "is not a known key%s", didYouMean(key, names))
		case isTable(field):
			if sub, ok := raw[key].(map[string]any); ok {
				out[key] = l.table(field, sub, here)
			} else {
				l.fail(here, "", "want a table: [%s]", unindexed(here.path))
			}
		case isTables(field):
			out[key] = l.tables(field.Elem(), raw[key], here)
		case field.Kind() == reflect.Map:
			out[key] = l.entries(field, raw[key], here)
		default:
			if value, ok := l.value(field, raw[key], here); ok {
				out[key] = value
			}
		}
	}
	return out
}

// entries does the same for a table whose keys are names that the user chose.
// It returns a map of type t, because viper would change the keys of a map of type any.
func (l *loader) entries(t reflect.Type, raw any, p place) any {
	out := reflect.MakeMap(t)
	table, ok := raw.(map[string]any)
	if !ok {
		l.fail(p, "", "want a table: [%s]", unindexed(p.path))
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		if value, ok := l.value(t.Elem(), table[key], p.key(key)); ok {
			out.SetMapIndex(reflect.ValueOf(key), reflect.ValueOf(value))
		}
	}
	return out.Interface()
}

// tables does the same for an array of tables. Each element is complete: viper
// knows no defaults inside an array.
func (l *loader) tables(t reflect.Type, raw any, p place) []any {
	list, ok := raw.([]any)
	out := []any{}
	for i, item := range list {
		table, isMap := item.(map[string]any)
		if ok = ok && isMap; !isMap {
			break
		}
		name, _ := table["name"].(string)
		element := asMap(defaultElement(t))
		overlay(element, l.table(t, table, p.element(i, name)))
		out = append(out, element)
	}
	if !ok {
		l.fail(p, "", "want an array of tables: [[%s]], once for each", p.path)
	}
	return out
}

// value converts one value. It notes a fault and returns false if that fails.
func (l *loader) value(t reflect.Type, raw any, p place) (any, bool) {
	if t == reflect.TypeFor[[]Secret]() {
		return l.secrets(raw, p)
	}
	shown := literal(raw)
	text, isText := raw.(string)
	switch {
	case t == reflect.TypeFor[SecretURL]() && isText:
		shown = literal(SecretURL(text))
	case isSecret(t):
		shown = literal(Secret(mask))
	case t == reflect.TypeFor[digests](), t == reflect.TypeFor[withheld]():
		shown = "" // it may be the secret itself, by mistake
	}
	if isText {
		if later[unindexed(p.path)+"="+text] {
			l.fail(p, shown, notYet)
			return nil, false
		}
		if isSecret(t) {
			resolved, err := l.resolve(text)
			if err != nil {
				l.fail(p, shown, "%v", err)
				return nil, false
			}
			raw = resolved
		}
	}
	value, err := convert(t, raw)
	if err == nil {
		return value, true
	}
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range list.Unwrap() {
			if element, ok := errors.AsType[elementError](err); ok {
				l.fail(p.element(element.index, ""), literal(element.value), "%v", err)
			}
		}
		return nil, false
	}
	l.fail(p, shown, "%v", err)
	return nil, false
}

// secrets converts a list of secrets. No fault shows any part of them.
func (l *loader) secrets(raw any, p place) (any, bool) {
	list, ok := raw.([]any)
	if !ok {
		l.fail(p, "", `want a list, such as ["env:NEW_SECRET", "file:/run/secrets/old"]`)
		return nil, false
	}
	var secrets []Secret
	for i, item := range list {
		if secret, valid := l.value(reflect.TypeFor[Secret](), item, p.element(i, "")); valid {
			secrets = append(secrets, secret.(Secret))
		}
	}
	return secrets, len(secrets) == len(list)
}

func isSecret(t reflect.Type) bool {
	return t == reflect.TypeFor[Secret]() || t == reflect.TypeFor[RedisURL]() || t == reflect.TypeFor[SecretURL]()
}

// resolve follows "env:NAME" and "file:/path".
func (l *loader) resolve(text string) (string, error) {
	if name, ok := strings.CutPrefix(text, "env:"); ok {
		if l.env[name] == "" {
			return "", fmt.Errorf("the variable %s is not set", strconv.Quote(name))
		}
		return l.env[name], nil
	}
	if path, ok := strings.CutPrefix(text, "file:"); ok {
		return l.secretFile(path)
	}
	return text, nil
}

// secretFile reads a secret, without the newline at its end.
func (l *loader) secretFile(path string) (string, error) {
	data, err := l.readFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", err)
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if secret == "" {
		return "", fmt.Errorf("the file %s is empty", strconv.Quote(path))
	}
	return secret, nil
}

func asMap(table reflect.Value) map[string]any {
	out := map[string]any{}
	for i := range table.NumField() {
		switch field := table.Field(i); {
		case field.Kind() == reflect.Pointer: // a table that need not be there
		case isTable(field.Type()):
			out[tag(table.Type().Field(i))] = asMap(field)
		default:
			out[tag(table.Type().Field(i))] = field.Interface()
		}
	}
	return out
}

func overlay(under, over map[string]any) {
	for key, value := range over {
		table, ok := value.(map[string]any)
		if below, both := under[key].(map[string]any); ok && both {
			overlay(below, table)
			continue
		}
		under[key] = value
	}
}
