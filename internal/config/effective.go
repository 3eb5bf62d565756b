package config

import (
	"fmt"
	"hash/maphash"
	"io"
	"reflect"
	"strings"

	"github.com/tundish-io/tundish/internal/setting"
)

// Setting is a key with its effective value and the source of the value.
type Setting struct {
	Key    string // such as redis.url or `buckets[0] "webhooks".rate`
	Value  string // as TOML, secrets masked
	Source string // "default", "config.toml:12" or "env TUNDISH_REDIS_URL"
}

// sourceDefault is the source of a value that no file and no variable sets.
const sourceDefault = "default"

// printed is a setting and its TOML table.
type printed struct {
	Setting

	path, header, table, name string
	mark                      uint64 // of the secrets in it, which its value masks
}

// markSeed makes marks, valid in this process, that reveal nothing of a secret.
var markSeed = maphash.MakeSeed()

// markOf returns a number that differs if secrets differ. It is 0 for a value without secrets.
func markOf(value any) uint64 {
	switch v := value.(type) {
	case Secret:
		return maphash.String(markSeed, string(v))
	case RedisURL:
		return maphash.String(markSeed, string(v))
	case SecretURL:
		return maphash.String(markSeed, string(v))
	case withheld:
		return maphash.String(markSeed, string(v))
	case []Secret:
		var hash maphash.Hash
		hash.SetSeed(markSeed)
		for _, secret := range v {
			_, _ = hash.WriteString(string(secret) + "\x00") // never fails
		}
		return hash.Sum64()
	}
	return 0
}

// Effective lists every key in the order of the shipped file.
func (c *Config) Effective() []Setting {
	var list []Setting
	for _, p := range c.printed() {
		list = append(list, p.Setting)
	}
	return list
}

// WriteTOML prints the effective configuration as TOML, with the source of each value as a comment. Except for masked secrets, it reads back as the same
// configuration.
func (c *Config) WriteTOML(w io.Writer) error {
	var b strings.Builder
	table := ""
	for _, p := range c.printed() {
		if p.table != table {
			fmt.Fprintf(&b, "\n%s\n", p.header)
			table = p.table
		}
		fmt.Fprintf(&b, "%-42s # %s\n", p.name+" = "+p.Value, p.Source)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s *settings) printed(from sources) []printed {
	var list []printed
	leaves(setting.Keys(reflect.TypeFor[settings]()), reflect.ValueOf(s).Elem(), place{}, "", from.has, func(key leaf) {
		list = append(list, printed{
			Setting: Setting{Key: key.shown, Value: key.literal(), Source: from.sourceOf(key.place)},
			path:    key.path, header: key.header, table: key.table, name: key.name, mark: markOf(key.value.Interface()),
		})
	})
	return list
}

// sources finds the sources of settings.
type sources struct {
	file      string
	lines     map[string]int    // of the file, by path
	variables map[string]string // that set a key, by path
}

// has reports whether the file or a variable sets a key.
func (s *sources) has(p place) bool { return s.sourceOf(p) != sourceDefault }

func (s *sources) sourceOf(p place) string {
	if name, ok := s.variables[p.path]; ok {
		return "env " + name
	}
	if line, ok := s.lines[p.path]; ok {
		return fmt.Sprintf("%s:%d", s.file, line)
	}
	return sourceDefault
}
