// Package setting reads the tags with which types describe their settings. Each setting is described once, at the field that holds it:
//
//	DeadBytes int64       `setting:"dead_bytes,bytes"`
//	Retry     RetryPolicy `setting:"retry"`
//
// The first part is the key in TOML. A struct whose fields have tags is a table, and a slice of such structs an array of tables. A key with a dot stands
// in the table before the dot. "-" is no setting. After the key come options:
//
//	squash    the keys of this struct stand in the table around it
//	optional  this table need not be there: its defaults hold only where it is
//	bytes     a number of bytes
//	percent   a part of a hundred
//	redis=F   the field of the settings in Redis that scripts read; of a rate the fields F_count and F_per. Of a setting that stands in
//	          a text there, F is its place in it. Of a table, and of a struct that is squashed, F is in front of the fields of all in it
//	change    an operator may change it while the bucket runs, as one value, also if it is a map; a tag help says what it is, for the
//	          command line: the first part of it in quotes is the value
//
// The package reads only types, and imports none of the packages that it describes.
package setting

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Kind is the kind of value of a key.
type Kind int

// The kinds.
const (
	Value  Kind = iota
	Table       // a struct
	Names       // a map whose keys the user chooses
	Tables      // a slice of structs
)

// Unit is of a number.
type Unit string

// The units.
const (
	Bytes   Unit = "bytes"
	Percent Unit = "percent"
)

// Key is a key of a table.
type Key struct {
	Name     string // in its table
	Path     string // with the tables around it: "retry.max_age"
	Kind     Kind
	Type     reflect.Type // of the value; of a table the struct, of tables the struct of one
	Unit     Unit         // "" has none
	Optional bool         // of a table
	Redis    string       // "": scripts do not read it, or not in this form
	Change   bool
	Help     string
	Keys     []*Key // of a table and of tables, in their order: values first, as TOML requires

	index []int // the field, from the struct passed to Keys; for tables the fields in it count from one of them
}

// In returns the value of a key in the struct passed to Keys. ok is false if a table around it is missing.
func (k *Key) In(root reflect.Value) (v reflect.Value, ok bool) {
	for _, i := range k.index {
		if root.Kind() == reflect.Pointer {
			if root.IsNil() {
				return reflect.Value{}, false
			}
			root = root.Elem()
		}
		root = root.Field(i)
	}
	return root, true
}

var known sync.Map // of reflect.Type: []*Key

// Keys lists the keys of a struct type. It panics if tags contradict each other: they are part of the program.
func Keys(t reflect.Type) []*Key {
	if keys, ok := known.Load(t); ok {
		return keys.([]*Key) //nolint:forcetypeassert // nothing else is stored
	}
	keys, _ := known.LoadOrStore(t, sorted(keysOf(t, nil), ""))
	return keys.([]*Key) //nolint:forcetypeassert // nothing else is stored
}

func keysOf(t reflect.Type, at []int) []*Key {
	var list []*Key
	for i := range t.NumField() {
		field := t.Field(i)
		name, options := tagOf(field)
		k := &Key{Name: name, Type: field.Type, Help: field.Tag.Get("help"), index: append(slices.Clone(at), i)}
		squash := slices.Contains(options, "squash")
		for _, option := range options {
			if !k.take(option) {
				panic(fmt.Sprintf("setting: %s.%s: unknown option %q", t, field.Name, option))
			}
		}
		switch {
		case squash:
			list = append(list, k.within(keysOf(field.Type, k.index))...)
		case name == "" || name == "-":
		default:
			k.describe()
			list = put(list, k)
		}
	}
	return list
}

// take applies an option of the tag, and reports whether there is such an option.
func (k *Key) take(option string) bool {
	switch field, isField := strings.CutPrefix(option, "redis="); {
	case isField:
		k.Redis = field
	case option == "optional":
		k.Optional = true
	case option == "change":
		k.Change = true
	case option == string(Bytes), option == string(Percent):
		k.Unit = Unit(option)
	default:
		return option == "squash"
	}
	return true
}

func tagOf(field reflect.StructField) (name string, options []string) {
	parts := strings.Split(field.Tag.Get("setting"), ",")
	return parts[0], parts[1:]
}

// describe sets the kind of a key.
func (k *Key) describe() {
	switch t := k.Type; {
	case t.Kind() == reflect.Pointer && isTable(t.Elem()):
		k.Kind, k.Type, k.Optional = Table, t.Elem(), true
		k.Keys = k.within(keysOf(k.Type, k.index))
	case isTable(t):
		k.Kind, k.Keys = Table, k.within(keysOf(t, k.index))
	case t.Kind() == reflect.Slice && isTable(t.Elem()):
		k.Kind, k.Type, k.Keys = Tables, t.Elem(), Keys(t.Elem())
	case t.Kind() == reflect.Map && !k.Change:
		k.Kind = Names
	}
}

// within adds the prefix in the tag of a struct to the fields of the keys in it.
func (k *Key) within(keys []*Key) []*Key {
	for _, inner := range values(keys) {
		if inner.Redis != "" {
			inner.Redis = k.Redis + inner.Redis
		}
	}
	return keys
}

// isTable reports whether a struct is a table: one of its fields has a tag. Other structs are values, such as a rate.
func isTable(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	for i := range t.NumField() {
		if _, ok := t.Field(i).Tag.Lookup("setting"); ok {
			return true
		}
	}
	return false
}

// put adds a key, one with a dot to the table that it names.
func put(list []*Key, k *Key) []*Key {
	table, rest, dotted := strings.Cut(k.Name, ".")
	if !dotted {
		return append(list, k)
	}
	for _, other := range list {
		if other.Name == table {
			k.Name = rest
			other.Keys = put(other.Keys, k)
			return list
		}
	}
	panic("setting: " + k.Name + ": no table before it has this name")
}

// sorted puts values before tables, in every table, and sets the path of each.
func sorted(list []*Key, path string) []*Key {
	for _, k := range list {
		k.Path = path + k.Name
		if k.Kind == Table {
			k.Keys = sorted(k.Keys, k.Path+".")
		}
	}
	slices.SortStableFunc(list, func(a, b *Key) int { return rank(a) - rank(b) })
	return list
}

func rank(k *Key) int {
	if k.Kind == Value {
		return 0
	}
	return 1
}

// Make is In, and creates missing tables around the value, and the table itself.
func (k *Key) Make(root reflect.Value) reflect.Value {
	for _, i := range k.index {
		root = made(root).Field(i)
	}
	if k.Kind == Table {
		return made(root)
	}
	return root
}

func made(v reflect.Value) reflect.Value {
	if v.Kind() != reflect.Pointer {
		return v
	}
	if v.IsNil() {
		v.Set(reflect.New(v.Type().Elem()))
	}
	return v.Elem()
}

// Values lists the keys of a struct type and of all tables in it that are no tables, in their order.
func Values(t reflect.Type) []*Key { return values(Keys(t)) }

func values(keys []*Key) (list []*Key) {
	for _, k := range keys {
		switch k.Kind {
		case Table:
			list = append(list, values(k.Keys)...)
		case Value:
			list = append(list, k)
		}
	}
	return list
}

// Changes lists the keys of those values that an operator may change.
func Changes(t reflect.Type) []*Key {
	return slices.DeleteFunc(slices.Clone(Values(t)), func(k *Key) bool { return !k.Change })
}

// Changeable lists the paths of those that an operator may change.
func Changeable[S ~string](t reflect.Type) (paths []S) {
	for _, k := range Changes(t) {
		paths = append(paths, S(k.Path))
	}
	return paths
}

// IsNumber reports whether the value is a whole number, in JSON too. One without a number may be there: it is a pointer.
func (k *Key) IsNumber() bool {
	return k.Type == reflect.TypeFor[int64]() || k.Type == reflect.TypeFor[*int64]()
}

// Text formats the value at a path in an object; "" without one.
func Text[S ~string](object any, path S) string {
	for _, k := range Values(reflect.Indirect(reflect.ValueOf(object)).Type()) {
		if k.Path == string(path) {
			return k.text(object)
		}
	}
	return ""
}

func (k *Key) text(object any) string {
	v, ok := k.In(reflect.Indirect(reflect.ValueOf(object)))
	if !ok {
		return ""
	}
	return fmt.Sprint(reflect.Indirect(v).Interface())
}

// Given lists the names and texts of an object's values that are not zero.
func Given(object any) (rows [][2]string) {
	root := reflect.Indirect(reflect.ValueOf(object))
	for _, k := range Values(root.Type()) {
		if v, ok := k.In(root); ok && !v.IsZero() {
			rows = append(rows, [2]string{k.Path, k.text(object)})
		}
	}
	return rows
}
