package progress

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/internal/must"
)

// counter returns a text that is another one each time.
func counter() func() string {
	n := 0
	return func() string { n++; return fmt.Sprint("line ", n) }
}

func TestLinesElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var out bytes.Buffer
		Show(ctx, &out, 2*time.Second, counter())
		if got, want := out.String(), "line 1\nline 2\n"; got != want {
			t.Errorf("Show wrote %q, want %q", got, want)
		}
		must.Equal(t, Width(&out, 72), 72, "Width =, want 72: a buffer is no terminal")
	})
}

func TestInPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*onTerminal-1)
		defer cancel()
		texts := []string{"a long line", "short", "wider than the terminal"}
		var out bytes.Buffer
		inPlace(ctx, &out, func() int { return 12 }, func() string {
			text := texts[0]
			texts = texts[1:]
			return text
		})
		want := "\ra long line" + "\rshort      " + "\rwider than " + "\r" + strings.Repeat(" ", 11) + "\r"
		must.Equal(t, out.String(), want, "inPlace wrote")
	})
}
