package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/term"
)

// print writes data to stdout: v as JSON if --json is given, else what table
// writes, with columns aligned at tabs.
func (a *app) print(v any, table func(w io.Writer)) error {
	if a.json {
		return writeJSON(a.out, v)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// note says something on the side, on stderr.
func (a *app) note(format string, args ...any) { fmt.Fprintf(a.err, format+"\n", args...) }

// count is a number with its noun: "1 bucket", "2 buckets".
func count[N int | int64](n N, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y") && !strings.HasSuffix(noun, "ey"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// human is a duration in at most two units: "340ms", "12.3s", "3m12s", "5h3m",
// "2d4h".
func human(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + human(-d)
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d.Round(100*time.Millisecond) < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d.Round(time.Second) < time.Hour:
		return twoUnits(d.Round(time.Second), time.Minute, "m", time.Second, "s")
	case d.Round(time.Minute) < day:
		return twoUnits(d.Round(time.Minute), time.Hour, "h", time.Minute, "m")
	}
	return twoUnits(d.Round(time.Hour), day, "d", time.Hour, "h")
}

func twoUnits(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprint(int64(d/large), largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprint(int64(rest), smallName)
	}
	return text
}

// relative is an instant as seen from now: "in 3s", "2m ago", "now".
func relative(t, now time.Time) string {
	switch d := t.Sub(now).Round(time.Millisecond); {
	case d > 0:
		return "in " + human(d)
	case d < 0:
		return human(-d) + " ago"
	}
	return "now"
}

// stamp is an instant for people and for JSON alike.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// line makes text from elsewhere safe to show in one line: no control
// characters reach the terminal, and it has at most limit characters.
func line(s string, limit int) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s))
	if len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return string(runes)
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

// columns is the width of the terminal, 0 where there is none.
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
