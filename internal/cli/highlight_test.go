package cli

import (
	"bytes"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// Colours are for terminals: what goes elsewhere is as it was, and so is everything with NO_COLOR.
func TestNoColoursInAPipe(t *testing.T) {
	t.Parallel()
	for _, env := range [][]string{nil, {"NO_COLOR=1"}, {"TERM=dumb"}} {
		a := &invocation{env: env, out: &bytes.Buffer{}}
		must.Equal(t, a.highlighted("one\ntwo\n"), "one\ntwo\n", "with %v", env)
	}
	must.Equal(t, coloured("one\ntwo\n"), "\x1b[33mone\x1b[0m\n\x1b[33mtwo\x1b[0m\n", "on a terminal")
}
