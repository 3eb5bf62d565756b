package progress

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
		if got := Width(&out, 72); got != 72 {
			t.Errorf("Width = %d, want 72: a buffer is no terminal", got)
		}
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
		if got := out.String(); got != want {
			t.Errorf("inPlace wrote %q, want %q", got, want)
		}
	})
}
