package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/shaper"
)

// settings makes the schemas of a change of the settings that operators may change, and of their names.
func (s *schemas) settings(patch, names string, t reflect.Type) {
	properties, list := mapping(), &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, k := range setting.Changes(t) {
		list.Content = append(list.Content, value(k.Path))
		at, name := properties, k.Path
		if table, rest, nested := strings.Cut(k.Path, "."); nested {
			of := get(properties, table)
			if of == nil {
				of = mapping("type", "object", "additionalProperties", false, "properties", mapping())
				put(properties, table, of)
			}
			at, name = get(of, "properties"), rest
		}
		kind := "string"
		if k.IsNumber() {
			kind = "integer"
		}
		put(at, name, mapping("type", kind, "description", sentence(helpOf(k))))
	}
	s.made[patch] = mapping("type", "object", "description", "Settings with the keys of the configuration, and its bounds.", "additionalProperties", false,
		"minProperties", 1, "properties", properties)
	s.made[names] = mapping("type", "string", "enum", list)
}

// helpOf returns the help of a setting, without the quotes around its value.
func helpOf(k *setting.Key) string { return strings.Replace(k.Help, "'", "", 2) }

// changeable returns a row for each setting that operators may change, and the object that has it.
func changeable() string {
	type row struct {
		path, help string
		of         []string
	}
	var rows []row
	for _, object := range []struct {
		name string
		keys []*setting.Key
	}{
		{"bucket", setting.Changes(reflect.TypeFor[shaper.Bucket]())}, {"pool", setting.Changes(reflect.TypeFor[shaper.Pool]())},
		{"flow", setting.Changes(reflect.TypeFor[shaper.OwnFlow]())}, {"group", setting.Changes(reflect.TypeFor[shaper.OwnBounds]())},
	} {
		for _, k := range object.keys {
			if k.Help == "" { // flow set has flags of its own for it
				continue
			}
			at := slices.IndexFunc(rows, func(r row) bool { return r.path == k.Path && r.help == helpOf(k) })
			if at < 0 {
				at = len(rows)
				rows = append(rows, row{path: k.Path, help: helpOf(k)})
			}
			rows[at].of = append(rows[at].of, object.name)
		}
	}
	var text strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&text, "| `%s` | %s | %s |\n", r.path, strings.Join(r.of, ", "), r.help)
	}
	return text.String()
}
