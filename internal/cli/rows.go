package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/tundish-io/tundish/internal/opsview"
)

// rows writes the rows of one object: names and values.
type rows struct {
	w   io.Writer
	now time.Time
}

func (r rows) row(name, format string, args ...any) {
	fmt.Fprintf(r.w, "%s\t%s\n", name, fmt.Sprintf(format, args...))
}

// text writes a value that may come from a caller or a receiver, on one line; nothing if it is empty.
func (r rows) text(name, value string) {
	if value != "" {
		fmt.Fprintf(r.w, "%s\t%s\n", name, line(value, 2000))
	}
}

// at writes an instant, and how far it is from now; nothing of nil.
func (r rows) at(name string, t *time.Time) {
	if t != nil {
		r.row(name, "%s (%s)", stamp(*t), relative(*t, r.now))
	}
}

func (r rows) headers(headers map[string][]string) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		for _, value := range headers[name] {
			r.text("header", name+": "+value)
		}
	}
}

func (r rows) notes(notes []string) {
	for _, note := range notes {
		r.row("note", "%s", note)
	}
}

func (r rows) differences(differences []opsview.Difference) {
	for i := range differences {
		r.row("differs", "%s", differences[i].Text())
	}
}
