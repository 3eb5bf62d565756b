// Package progress shows the progress of a long command in one line.
package progress

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/term"
)

// onTerminal is how often a line on a terminal is drawn again.
const onTerminal = 200 * time.Millisecond

// Show writes the result of text to w until ctx ends. On a terminal it is one line, drawn again five times a second and wiped at the end, so that later
// output begins on a clean line. Elsewhere it writes a line at each interval, and none at the end.
func Show(ctx context.Context, w io.Writer, every time.Duration, text func() string) {
	if fd, ok := terminal(w); ok {
		inPlace(ctx, w, func() int { return columns(fd) }, text)
		return
	}
	each(ctx, every, func() { fmt.Fprintln(w, text()) })
}

// Width returns the number of columns of w if it is a terminal, otherwise other.
func Width(w io.Writer, other int) int {
	if fd, ok := terminal(w); ok {
		return columns(fd)
	}
	return other
}

func terminal(w io.Writer) (fd int, ok bool) {
	file, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return 0, false
	}
	fd = int(file.Fd())
	return fd, term.IsTerminal(fd)
}

func columns(fd int) int {
	if width, _, err := term.GetSize(fd); err == nil && width > 0 {
		return width
	}
	return 80
}

// inPlace needs no escape sequences: it overwrites with spaces, so it works on every terminal. A line as wide as the terminal would wrap.
func inPlace(ctx context.Context, w io.Writer, width func() int, text func() string) {
	drawn := 0
	draw := func(line string) {
		runes := []rune(line)
		runes = runes[:min(len(runes), max(width()-1, 0))]
		fmt.Fprintf(w, "\r%s%s", string(runes), strings.Repeat(" ", max(drawn-len(runes), 0)))
		drawn = len(runes)
	}
	draw(text())
	each(ctx, onTerminal, func() { draw(text()) })
	draw("")
	fmt.Fprint(w, "\r")
}

func each(ctx context.Context, period time.Duration, do func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			do()
		}
	}
}
