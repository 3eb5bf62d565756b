package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/workers/outgoing"
)

const notYet = "is not supported in this version yet"

// table reads a table of the file into the struct with these keys, and returns the values in the file, by key. A missing table leaves the struct
// unchanged.
func (l *loader) table(keys []*setting.Key, raw map[string]any, p place, root reflect.Value) map[string]any {
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		here := p.key(name)
		i := slices.IndexFunc(keys, func(k *setting.Key) bool { return k.Name == name })
		if i < 0 {
			l.fail(here, "", "is not a known key%s", cmp.Or(renamedHint(here.path), DidYouMean(name, namesOf(keys))))
			continue
		}
		if value, ok := l.standing(keys[i], raw[name], here, root); ok {
			out[name] = value
		}
	}
	return out
}

// standing reads the value of a key.
func (l *loader) standing(k *setting.Key, raw any, p place, root reflect.Value) (any, bool) {
	table, isTable := raw.(map[string]any)
	if k.Kind == setting.Table && !isTable {
		l.fail(p, "", "want a table: [%s]", unindexed(p.path))
		return nil, false
	}
	field := k.Make(root)
	switch k.Kind {
	case setting.Table:
		if k.Optional {
			field.Set(defaultOf(k.Type))
		}
		return l.table(k.Keys, table, p, root), true
	case setting.Tables:
		l.tables(k, raw, p, field)
	case setting.Names:
		field.Set(l.entries(field.Type(), raw, p))
	default:
		value, ok := l.value(k, raw, p)
		if !ok {
			return nil, false
		}
		field.Set(reflect.ValueOf(value).Convert(field.Type()))
	}
	return field.Interface(), true
}

func namesOf(keys []*setting.Key) []string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Name
	}
	return names
}

// entries reads a table whose keys are names that the user chose.
func (l *loader) entries(t reflect.Type, raw any, p place) reflect.Value {
	out := reflect.MakeMap(t)
	table, ok := raw.(map[string]any)
	if !ok {
		l.fail(p, "", "want a table: [%s]", unindexed(p.path))
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if value, ok := l.value(&setting.Key{Type: t.Elem()}, table[name], p.key(name)); ok {
			out.SetMapIndex(reflect.ValueOf(name), reflect.ValueOf(value))
		}
	}
	return out
}

// tables reads an array of tables. Each is complete: viper knows no defaults inside an array.
func (l *loader) tables(k *setting.Key, raw any, p place, into reflect.Value) {
	list, ok := raw.([]any)
	for i, item := range list {
		table, isMap := item.(map[string]any)
		if ok = ok && isMap; !isMap {
			break
		}
		name, _ := table["name"].(string)
		element := reflect.New(k.Type).Elem()
		element.Set(defaultOf(k.Type))
		l.table(k.Keys, table, p.element(i, name), element)
		into.Set(reflect.Append(into, element))
	}
	if !ok {
		l.fail(p, "", "want an array of tables: [[%s]], once for each", p.path)
	}
}

// value converts one value. It notes a fault and returns false if that fails.
func (l *loader) value(k *setting.Key, raw any, p place) (any, bool) {
	t := k.Type
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
	if isText && isSecret(t) {
		resolved, err := l.resolve(text, p)
		switch {
		case err == nil:
		case l.secretsElsewhere:
			resolved = standIn(t)
		default:
			l.fail(p, "", "%v", err) // it names the variable or the file
			return nil, false
		}
		raw = resolved
	}
	value, err := convert(k, raw)
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
		if secret, valid := l.value(&setting.Key{Type: reflect.TypeFor[Secret]()}, item, p.element(i, "")); valid {
			secrets = append(secrets, secret.(Secret))
		}
	}
	return secrets, len(secrets) == len(list)
}

func isSecret(t reflect.Type) bool {
	return t == reflect.TypeFor[Secret]() || t == reflect.TypeFor[RedisURL]() || t == reflect.TypeFor[SecretURL]()
}

// standIn is a value that a secret of this type may have.
func standIn(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[RedisURL]():
		return "redis://secret.invalid:6379"
	case reflect.TypeFor[SecretURL]():
		return "http://secret.invalid"
	}
	return "whsec_" + strings.Repeat("A", 43) + "="
}

// resolve follows "env:NAME", "file:/path", and "cred:NAME", a credential that systemd has passed.
func (l *loader) resolve(text string, p place) (string, error) {
	if name, ok := strings.CutPrefix(text, setting.EnvReference); ok {
		if l.env[name] == "" {
			return "", fmt.Errorf("the variable %s is not set", strconv.Quote(name))
		}
		return l.env[name], nil
	}
	if path, ok := strings.CutPrefix(text, setting.FileReference); ok {
		return l.secretFile(path, p)
	}
	if name, ok := strings.CutPrefix(text, setting.CredReference); ok {
		folder := l.env["CREDENTIALS_DIRECTORY"]
		switch {
		case folder == "":
			return "", errors.New("CREDENTIALS_DIRECTORY is not set: systemd sets it for a unit with LoadCredential=")
		case name == "" || name == "." || name == ".." || strings.Contains(name, "/"):
			return "", fmt.Errorf("the credential %s is no file name", strconv.Quote(name))
		}
		return l.secretFile(filepath.Join(folder, name), p)
	}
	return text, nil
}

// secretFile reads a secret, without the newline at its end, and records the file of the key.
func (l *loader) secretFile(path string, p place) (string, error) {
	secret, err := outgoing.ReadSecret(path, l.readFile)
	if err == nil {
		l.secretFiles[p.path] = path
	}
	return secret, err
}
