package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// place is where a key stands: its path, such as buckets[0].rate, and how it is
// shown, such as `buckets[0] "webhooks".rate`.
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

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func join(path, key string) string {
	if !bareKey.MatchString(key) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// tag is the key of a field.
func tag(f reflect.StructField) string { return f.Tag.Get("mapstructure") }

// isTable tells a table of the configuration from a value that happens to be a
// struct, such as a rate: its fields have keys. A pointer is to a table that need not be there.
func isTable(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && t.NumField() > 0 && tag(t.Field(0)) != ""
}

func isTables(t reflect.Type) bool { return t.Kind() == reflect.Slice && isTable(t.Elem()) }

// leaf is a key with a value that is no table.
type leaf struct {
	place

	header string // of its table in TOML: "", "[redis]", "[[buckets]]", "[buckets.retry]"
	table  string // path of its table
	name   string
	value  reflect.Value
}

// leaves lists the keys of a table and of all tables in it, in order.
func leaves(table reflect.Value, p place, header string) []leaf {
	var list []leaf
	for i := range table.NumField() {
		name, value := tag(table.Type().Field(i)), table.Field(i)
		here := p.key(name)
		switch {
		case value.Kind() == reflect.Pointer && value.IsNil():
		case isTable(value.Type()):
			value = reflect.Indirect(value)
			list = append(list, leaves(value, here, "["+unindexed(here.path)+"]")...)
		case isTables(value.Type()):
			for j := range value.Len() {
				element := value.Index(j)
				header := "[[" + unindexed(here.path) + "]]"
				list = append(list, leaves(element, here.element(j, nameOf(element)), header)...)
			}
		case value.Kind() == reflect.Map:
			for _, key := range slices.SortedFunc(slices.Values(value.MapKeys()), byText) {
				entry := here.key(key.String())
				list = append(list, leaf{
					place: entry, header: "[" + unindexed(here.path) + "]", table: here.path,
					name: join("", key.String()), value: value.MapIndex(key),
				})
			}
		default:
			list = append(list, leaf{place: here, header: header, table: p.path, name: name, value: value})
		}
	}
	return list
}

// nameOf is "" for a table whose kind has no names, such as a line of a calendar.
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

// byNames leaves out the numbers of tables that have a name.
func byNames(shown string) string { return indexOfNamed.ReplaceAllString(shown, ` "`) }
