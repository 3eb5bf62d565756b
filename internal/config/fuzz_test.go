package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// FuzzLoad wants no panic, and either faults or a configuration that prints and
// reads back.
func FuzzLoad(f *testing.F) {
	paths := must.Get(filepath.Glob("testdata/*.toml"))(f)
	for _, path := range append(paths, referencePath) {
		text := must.Get(os.ReadFile(path))(f)
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
		must.OK(t, c.WriteTOML(&out))
		if _, err := load(strings.ReplaceAll(out.String(), `/***"`, `/x"`)); err != nil && c.Redis.URL == embedded {
			t.Errorf("does not read back: %v\n%s", err, out.String())
		}
	})
}
