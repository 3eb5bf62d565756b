package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		code int
		text string
	}{
		{nil, 0, ""},
		{errors.New("broken"), 1, "p: broken\n"},
		{fail(3, "full: %w", io.EOF), 3, "p: full: EOF\n"},
		{fmt.Errorf("line 3: %w", fail(5, "gone")), 5, "p: line 3: gone\n"},
		{silent(2), 2, ""},
		{config.Faults{{File: "c.toml", Line: 3, Reason: "odd"}}, 2, "p: the configuration has 1 fault:\n  c.toml:3: odd\n"},
		{fmt.Errorf("%w: %q", shaper.ErrNotFound, "x"), 4, "p: no such job: \"x\"\n"},
		{fmt.Errorf("%w %q", shaper.ErrUnknownBucket, "x"), 4, "p: unknown bucket \"x\"\n"},
		{fmt.Errorf("ask: %w", context.Canceled), 1, "p: interrupted\n"},
	} {
		var said strings.Builder
		if code := report(&said, "p", test.err); code != test.code || said.String() != test.text {
			t.Errorf("report(%v) = %d, says %q; want %d, %q", test.err, code, said.String(), test.code, test.text)
		}
	}
}
