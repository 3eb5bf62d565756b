package cli

import (
	"bytes"
	"testing"
)

// Colours are for terminals: what goes elsewhere is as it was, and so is everything with NO_COLOR.
func TestNoColoursInAPipe(t *testing.T) {
	t.Parallel()
	for _, env := range [][]string{nil, {"NO_COLOR=1"}, {"TERM=dumb"}} {
		a := &invocation{env: env, out: &bytes.Buffer{}}
		if got := a.highlighted("one\ntwo\n"); got != "one\ntwo\n" {
			t.Errorf("with %v: %q", env, got)
		}
	}
	if got := coloured("one\ntwo\n"); got != "\x1b[33mone\x1b[0m\n\x1b[33mtwo\x1b[0m\n" {
		t.Errorf("on a terminal: %q", got)
	}
}
