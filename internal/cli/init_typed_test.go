package cli

import (
	"slices"
	"testing"
)

// A user of a clone types bin/dispatcher, and gets next commands to copy that start so.
func TestNextCommandsAreTyped(t *testing.T) {
	t.Parallel()
	commands := []string{"export KEY=…", "dispatcher run", "producer send a 1"}
	for _, c := range []struct {
		program, file string
		want          []string
	}{
		{"bin/dispatcher", "my.toml", []string{"export KEY=…", "bin/dispatcher run --config my.toml", "bin/producer send a 1 --config my.toml"}},
		{"dispatcher", "config.toml", commands},
		{"/tmp/go-build1/exe/cli.test", "config.toml", commands},
	} {
		if got := asTyped(commands, c.program, c.file); !slices.Equal(got, c.want) {
			t.Errorf("%s, %s: %q, want %q", c.program, c.file, got, c.want)
		}
	}
}
