package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad wants no panic, and either faults or a configuration that prints and
// reads back.
func FuzzLoad(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.toml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(paths, referencePath) {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "TUNDISH_REDIS_TIMEOUT=2s")
	}
	f.Add(full, "TUNDISH_REDIS_PASSWORD_FILE=/secret")
	f.Fuzz(func(t *testing.T, text, env string) {
		c, err := load(text, env)
		if err != nil {
			if faults, ok := errors.AsType[Faults](err); !ok || len(faults) == 0 {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		for _, b := range c.Buckets {
			if err := b.Validate(); err != nil {
				t.Errorf("bucket: %v", err)
			}
		}
		for _, l := range c.Limits {
			if err := l.Validate(); err != nil {
				t.Errorf("limit: %v", err)
			}
		}
		c.Warnings()
		var out strings.Builder
		if err := c.WriteTOML(&out); err != nil {
			t.Fatal(err)
		}
		if _, err := load(strings.ReplaceAll(out.String(), `/***"`, `/x"`)); err != nil && c.Redis.URL == embedded {
			t.Errorf("does not read back: %v\n%s", err, out.String())
		}
	})
}
