package config

import (
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Setting is a key with the value in force and where that comes from.
type Setting struct {
	Key    string // such as redis.url or `buckets[0] "webhooks".rate`
	Value  string // as TOML, secrets masked
	Source string // "default", "config.toml:12" or "env TUNDISH_REDIS_URL"
}

// sourceDefault is the source of a value that no file and no variable sets.
const sourceDefault = "default"

// printed is a setting and the table of TOML in which it stands.
type printed struct {
	Setting

	path, header, table, name string
}

// Effective lists every key in the order of the shipped file.
func (c *Config) Effective() []Setting {
	list := make([]Setting, len(c.effective))
	for i, p := range c.effective {
		list[i] = p.Setting
	}
	return list
}

// WriteTOML prints the configuration in force as TOML, with the source of each value as a
// comment. But for masked secrets, it reads back as the same configuration.
func (c *Config) WriteTOML(w io.Writer) error {
	var b strings.Builder
	table := ""
	for _, p := range c.effective {
		if p.table != table {
			fmt.Fprintf(&b, "\n%s\n", p.header)
			table = p.table
		}
		fmt.Fprintf(&b, "%-42s # %s\n", p.name+" = "+p.Value, p.Source)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (l *loader) effective(s settings) []printed {
	var list []printed
	for _, key := range leaves(reflect.ValueOf(s), place{}, "") {
		source := sourceDefault
		if line, ok := l.doc.lines[key.path]; ok {
			source = fmt.Sprintf("%s:%d", l.doc.file, line)
		}
		if name, ok := l.variables[key.path]; ok {
			source = "env " + name
		}
		list = append(list, printed{
			Setting: Setting{Key: key.shown, Value: literal(key.value.Interface()), Source: source},
			path:    key.path, header: key.header, table: key.table, name: key.name,
		})
	}
	return list
}
