package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/tundish-io/tundish/internal/opsview"
)

// print writes data to stdout: v as JSON with --json, otherwise the output of table, with columns aligned at tabs.
func (a *invocation) print(v any, table func(w io.Writer)) error {
	if a.json {
		return writeJSON(a.out, v)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}

// printList prints like print, with n entries. Where there are none, it says so to stderr instead; with --json it prints the empty list.
func (a *invocation) printList(n int, empty string, v any, table func(w io.Writer)) error {
	if n == 0 && !a.json {
		a.note("%s", empty)
		return nil
	}
	return a.print(v, table)
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// highlighted highlights lines on a terminal that shows colours. In a pipe or a file, and where NO_COLOR is set, it returns them unchanged.
func (a *invocation) highlighted(lines string) string {
	plain := slices.ContainsFunc(a.env, func(v string) bool {
		return strings.HasPrefix(v, "NO_COLOR=") && v != "NO_COLOR=" || v == "TERM=dumb"
	})
	if plain || !isTerminal(a.out) {
		return lines
	}
	return coloured(lines)
}

// coloured colours each line by itself, so that output that is cut off colours nothing else.
func coloured(lines string) string {
	const yellow, end = "\x1b[33m", "\x1b[0m"
	return yellow + strings.ReplaceAll(strings.TrimSuffix(lines, "\n"), "\n", end+"\n"+yellow) + end + "\n"
}

// note prints an additional message to stderr.
func (a *invocation) note(format string, args ...any) { fmt.Fprintf(a.err, format+"\n", args...) }

// Texts that the API has too.
var (
	human    = opsview.Human
	relative = opsview.Relative
	line     = opsview.Line
)

// stamp is an instant for people and for JSON alike.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// deref returns the value that p points to, zero if p is nil.
func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// dash returns "-" for an empty text.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// columns returns the width of the terminal, 0 without one.
func columns(stream any) int {
	f, ok := stream.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// quoted is the name of a flow or a group, which may be any text, safe to show.
func quoted(name string) string {
	if name == "" {
		return `""`
	}
	return line(name, 80)
}

// inZone formats a fire in the time zone of its schedule, or in UTC if this machine does not know the zone.
func inZone(v *opsview.Schedule, fire time.Time) string {
	zone, err := time.LoadLocation(v.Timezone)
	if err != nil {
		zone = time.UTC
	}
	return fire.In(zone).Format(fireLayout)
}

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
