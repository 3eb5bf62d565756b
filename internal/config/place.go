package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tundish-io/tundish/internal/setting"
)

// place is the place of a key: its path, such as buckets[0].rate, and its text, such as `buckets[0] "webhooks".rate`.
type place struct{ path, shown string }

func at(path string) place { return place{path, path} }

func (p place) key(name string) place {
	return place{join(p.path, name), join(p.shown, name)}
}

// keyOrElement is key, or an element of it: of "calendar[1]" the second one.
func (p place) keyOrElement(name string) place {
	if array, number, ok := strings.Cut(strings.TrimSuffix(name, "]"), "["); ok {
		if i, err := strconv.Atoi(number); err == nil {
			return p.key(array).element(i, "")
		}
	}
	return p.key(name)
}

// element is the i-th of an array; name may be "".
func (p place) element(i int, name string) place {
	index := fmt.Sprintf("[%d]", i)
	e := place{p.path + index, p.shown + index}
	if name != "" {
		e.shown += " " + clip(strconv.Quote(name))
	}
	return e
}

// bareKey reports whether a key needs no quotes in TOML.
func bareKey(key string) bool {
	for _, c := range []byte(key) {
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return key != ""
}

func join(path, key string) string {
	if !bareKey(key) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// leaf is a key with a value that is no table.
type leaf struct {
	place

	header string // of its table in TOML: "", "[redis]", "[[buckets]]", "[buckets.retry]"
	table  string // path of its table
	name   string
	key    *setting.Key
	value  reflect.Value
}

// literal is the value as TOML.
func (f leaf) literal() string {
	switch f.key.Unit {
	case setting.Bytes:
		return literal(size(f.value.Int()))
	case setting.Percent:
		return literal(percent(f.value.Int()))
	}
	return literal(f.value.Interface())
}

// leaves calls do with the keys of a struct and of all tables in it, in order. there reports whether an optional table that is no pointer is set.
func leaves(keys []*setting.Key, root reflect.Value, p place, header string, there func(place) bool, do func(leaf)) {
	for _, k := range keys {
		here := p.key(k.Name)
		value, ok := k.In(root)
		switch {
		case !ok, value.Kind() == reflect.Pointer && value.IsNil():
		case k.Kind == setting.Table:
			if value.Kind() == reflect.Pointer || !k.Optional || there(here) {
				leaves(k.Keys, root, here, "["+unindexed(here.path)+"]", there, do)
			}
		case k.Kind == setting.Tables:
			header := "[[" + unindexed(here.path) + "]]"
			for j := range value.Len() {
				element := value.Index(j)
				leaves(k.Keys, element, here.element(j, nameOf(element)), header, there, do)
			}
		case k.Kind == setting.Names:
			for _, name := range slices.SortedFunc(slices.Values(value.MapKeys()), byText) {
				do(leaf{
					place: here.key(name.String()), header: "[" + unindexed(here.path) + "]", table: here.path,
					name: join("", name.String()), key: &setting.Key{}, value: value.MapIndex(name),
				})
			}
		default:
			do(leaf{place: here, header: header, table: p.path, name: k.Name, key: k, value: value})
		}
	}
}

// nameOf returns the name of a table, "" for a table whose kind has no names, such as a line of a calendar.
func nameOf(table reflect.Value) string {
	if name := table.FieldByName("Name"); name.IsValid() {
		return name.String()
	}
	return ""
}

func byText(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }

var index = regexp.MustCompile(`\[\d+\]`)

func unindexed(path string) string { return index.ReplaceAllString(path, "") }

var indexOfNamed = regexp.MustCompile(`\[\d+\] "`)

// byNames drops the numbers of tables that have a name.
func byNames(shown string) string { return indexOfNamed.ReplaceAllString(shown, ` "`) }
